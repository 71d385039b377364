"""`python -m reproduction`."""

from reproduction.cli import main

if __name__ == "__main__":  # worker processes import this file too
    main(prog_name="python -m reproduction")
