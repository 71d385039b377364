"""The domains of the paper's comparisons: their data, their runs, and what a line about a run holds."""
