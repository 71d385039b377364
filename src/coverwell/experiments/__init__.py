"""The paper's studies and ours: settings and splits that the benchmarks and the reproduction share."""

from coverwell.experiments.protocol import AS_PUBLISHED, LEVELS, random_split, split_by_group

__all__ = ["AS_PUBLISHED", "LEVELS", "random_split", "split_by_group"]
