"""`python -m coverwell` is the command `coverwell`."""

from coverwell.cli import main

if __name__ == "__main__":  # worker processes import this file too
    main(prog_name="coverwell")
