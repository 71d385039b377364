"""The paper's tables and figures again: `python -m reproduction table1`, from the root of the repository.

Beside the code lie its results: one JSON line per run, and the tables and figures that are made from those lines alone.
"""
