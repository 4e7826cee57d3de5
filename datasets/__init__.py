"""Data sets that read what is on disk; each follows the Dataset protocol."""
