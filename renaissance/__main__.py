"""``python -m renaissance``: the command line."""

from renaissance.cli.main import run

if __name__ == "__main__":
    run()
