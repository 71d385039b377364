"""The paper's baselines and deep ensembles: every file of this folder is imported, so a new baseline is one file."""

from importlib import import_module
from pkgutil import iter_modules

from coverwell.baselines.baseline import BaselineEstimator
from coverwell.options import STORED

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")

_ESTIMATORS = {name: stored for name, stored in STORED.items() if issubclass(stored, BaselineEstimator)}
globals().update(_ESTIMATORS)
__all__ = sorted(_ESTIMATORS)
