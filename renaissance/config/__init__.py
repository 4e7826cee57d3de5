"""Experiments as YAML: what a file may name, how it is read and checked, and its schema."""
