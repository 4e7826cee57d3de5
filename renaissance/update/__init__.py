"""From gradients to weights: the optimizer as range operations, and who runs them."""
