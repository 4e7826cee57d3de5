"""Learning rates over training: what schedules share, the closed curves, the plateau, a picture."""
