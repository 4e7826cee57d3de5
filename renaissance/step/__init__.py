"""One training step: what is traced of a batch, run eagerly or as one captured graph."""
