"""The lowest versions that pyproject.toml allows, one requirement a line.

    python lowest_versions.py EXTRA ... > requirements.txt

torch is left out: which builds of it are at hand differs from machine to machine, so `make test-lowest` installs it
first.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lowest(requirements: list[str]) -> list[str]:
    """Each requirement with its lower limit as the version; those without one as they are.

    >>> lowest(["numpy>=1.26", "torch>=2.4,<3", "beartype", "coverwell[tables]"])
    ['numpy==1.26', 'beartype']
    """
    names = [line for line in requirements if re.split(r"[\[<>=,]", line)[0] not in ("coverwell", "torch")]
    return [re.sub(r"^([\w.-]+)>=([\w.]+).*$", r"\1==\2", line) for line in names]


def main(extras: list[str]) -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    optional = project["optional-dependencies"]
    for line in lowest([*project["dependencies"], *(line for extra in extras for line in optional[extra])]):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
