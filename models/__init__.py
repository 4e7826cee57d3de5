"""Network builders: plain torch modules."""
