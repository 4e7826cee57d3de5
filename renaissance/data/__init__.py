"""From a data set to batches: transforms, workers, the staging ring and the loader."""
