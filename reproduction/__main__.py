"""`python -m reproduction`."""

from reproduction.cli import main

main(prog_name="python -m reproduction")
