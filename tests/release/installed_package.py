"""What `make dist` asks of an installed wheel, run by the Python of a clean environment: a fit, a file, the command.

python installed_package.py VERSION REPOSITORY
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import coverwell

BRIEF = coverwell.Schedule(max_rounds=1)

PREDICTED = ["y", "y_lower_0.9", "y_upper_0.9"]


def check_python(folder: Path) -> None:
    """A small fit, saved and loaded, says the same to the bit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    model = coverwell.MatchedRegressor(0.9, folds=2, schedule=BRIEF, repeats=1, random_state=0).fit(X, y)
    coverwell.save(model, folder / "model.safetensors")
    again = coverwell.load(folder / "model.safetensors")
    assert np.array_equal(again.predict_interval(X).lower, model.predict_interval(X).lower)
    rows = "\n".join(",".join(map(repr, map(float, row))) for row in np.column_stack([X, y]))
    (folder / "table.csv").write_text(f"a,b,y\n{rows}\n")


def check_command(folder: Path, version: str) -> None:
    """The command says its version, fits a file and predicts another."""
    command = str(Path(sys.executable).with_name("coverwell"))

    def run(*words: str) -> str:
        return subprocess.run([command, *words], cwd=folder, check=True, capture_output=True, text=True).stdout

    assert version in run("--version"), run("--version")
    brief = ("--max-rounds", "1", "--folds", "2")
    run("fit", "table.csv", "--target", "y", "--coverage", "0.9", *brief, "--out", "table.safetensors")
    run("predict", "table.safetensors", "table.csv", "--out", "predicted.csv")
    lines = (folder / "predicted.csv").read_text().splitlines()
    assert lines[0].split(",") == PREDICTED, lines[0]
    assert len(lines) == 61, len(lines)


def main(version: str, repository: Path) -> None:
    place = Path(coverwell.__file__).resolve()
    assert not place.is_relative_to(repository / "src"), f"this is the checkout, not the wheel: {place}"
    assert coverwell.__version__ == version, coverwell.__version__
    assert (place.parent / "py.typed").is_file(), "the wheel has no py.typed, so its types are lost"
    with TemporaryDirectory() as folder:
        check_python(Path(folder))
        check_command(Path(folder), version)
    print(f"coverwell {version} from {place.parent}: fit, save, load, predict and the command work")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve())
