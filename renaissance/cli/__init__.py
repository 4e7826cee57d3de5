"""The command line, one file a command, and what several commands share."""
