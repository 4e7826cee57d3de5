"""What fit does around the steps: the loop, evaluation, the run's folder, saving and going on."""
