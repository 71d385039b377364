"""Every error and warning of our own, in one place to import from."""


class TableFileError(ValueError):
    """A file does not hold a table that can be read, or lacks what is asked of it; the message is one line."""


class BlankLinesWarning(UserWarning):
    """Lines without anything stand between the rows of a file, and were left out."""


class FactorBoundWarning(UserWarning):
    """The width factor has reached a bound and is held there: mean coverage is no longer promised."""


class ImageError(ValueError):
    """An image is missing, broken, empty or no image; the message names its path or its position."""


class LargeImageWarning(UserWarning):
    """A file has more pixels than Pillow takes for safe, up to twice as many; the message names its path."""


class BoxOutsideImageWarning(UserWarning):
    """Boxes ran past the edge of their images and were cut there."""


class ClusterError(RuntimeError):
    """A Ray cluster does not answer, or its nodes lack what the work needs."""


class NonFiniteLossError(FloatingPointError):
    """The loss became NaN or infinite in training."""


class ModelFileError(ValueError):
    """A file does not hold a model that can be loaded: damaged, of another kind, too new, or in need of an argument."""


class CheckpointError(ValueError):
    """A fit cannot go on from a checkpoint: it is damaged, or of other data, options or versions."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the fit goes on without."""


class ColumnWarning(UserWarning):
    """A column was left out, looks like something else, or has at prediction what it never had in training."""


class DecimalCommaWarning(UserWarning):
    """A column of text looks like numbers with a decimal comma."""


class ExtrapolationWarning(UserWarning):
    """Predictions were asked for outside the range of the training inputs, far or for more rows than by chance."""


class CoverageWarning(UserWarning):
    """Some rows are covered less than was asked, by more than chance explains."""


class ConstantDataWarning(UserWarning):
    """A column or a target has one value only."""


class FarOffTargetWarning(UserWarning):
    """Some targets lie so far from all others that they look wrong; networks learn from them as if they were nearer."""


class FewValuesWarning(UserWarning):
    """A target of numbers has few whole ones, as classes may have."""


class TwoValuesWarning(FewValuesWarning):
    """A target has two values only, as classes have."""


class UnseenClassWarning(UserWarning):
    """Rows that a classifier is judged by have classes that it was not fitted on."""


class ManyClassesWarning(UserWarning):
    """The classes are so many different numbers that they look like a quantity."""


class RareClassWarning(UserWarning):
    """Coverage is to be held within each class, and some class has too few rows for it."""


class FullSetsWarning(UserWarning):
    """At some level every set holds all classes, and says nothing."""


class DamagedFeaturesWarning(UserWarning):
    """A file of kept features was damaged, and the features are computed again."""


class NotEnoughMemoryError(RuntimeError):
    """A device has too little memory for what was to be trained side by side.

    Attributes
    ----------
    n_jobs, n_members : int
        The fits, and the networks of each team of a fit, that were to be trained side by side.
    jobs_that_fit, members_that_fit : int
        Of how many a short trial went through, each time with half as many.
    """

    def __init__(self, memory: str, n_jobs: int, n_members: int, fits: tuple[int, int]) -> None:
        self.n_jobs, self.n_members = n_jobs, n_members
        self.jobs_that_fit, self.members_that_fit = fits
        stack = f"{n_jobs} fits of " if n_jobs > 1 else ""
        asked = f"{stack}{n_members} networks side by side need more memory than {memory}"
        smaller = "a smaller batch_size or network, or device='cpu'"
        if fits[1] == 0:
            advice = f"not even one network fits: give {smaller}"
        elif n_jobs > 1:
            advice = f"{fits[0]} at a time fit: fit fewer together, or give {smaller}"
        else:
            advice = f"{fits[1]} fit: give fewer repeats or folds, {smaller}"
        super().__init__(f"{asked}; {advice}")
