"""A table of houses in files, a model that was fitted to it by the command, and a way to run commands."""

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_iris

from coverwell.cli import main

N_TRAIN = 90


def run_command(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="coverwell")


@pytest.fixture
def tried():
    """Runs a command in this process."""
    return run_command


@pytest.fixture
def run():
    """Runs a command that must succeed."""

    def run(*arguments):
        result = run_command(*arguments)
        assert result.exit_code == 0, result.output
        return result

    return run


@pytest.fixture
def refused():
    """Runs a command that must end with one line on standard error, exit code 2, and nothing on standard output."""

    def run(*arguments, code=2):
        result = run_command(*arguments)
        assert result.exit_code == code, result.output
        assert isinstance(result.exception, SystemExit)
        assert result.stdout == ""
        (line,) = [line for line in result.stderr.splitlines() if not line.startswith("Warning: ")]
        return line.removeprefix("Error: ")

    return run


def houses_frame(n):
    rng = np.random.default_rng(0)
    area = rng.gamma(5, 20, n).round(1)
    city = rng.choice(["Rome", "Oslo", "Bern"], n)
    return pl.DataFrame(
        {
            "id": [f"h{i:03d}" for i in range(n)],
            "area": [None if i % 17 == 0 else value for i, value in enumerate(area)],
            "city": city,
            "sold": (np.datetime64("2020-01-01") + rng.integers(0, 1000, n)).astype(str),
            "garden": rng.random(n) < 0.5,
            "rent": (area / 10 + rng.normal(size=n)).round(3),
            "price": (area * 2 + 50 * (city == "Oslo") + 10 * rng.normal(size=n)).round(3),
        }
    )


@pytest.fixture(scope="session")
def houses():
    """All rows; the first are those that the model is fitted to."""
    return houses_frame(N_TRAIN + 40)


@pytest.fixture(scope="session")
def folder(tmp_path_factory, houses):
    """`houses.csv` and `test.csv`, and `model.safetensors` for rent and price at two levels; to be left as it is."""
    folder = tmp_path_factory.mktemp("houses")
    houses[:N_TRAIN].write_csv(folder / "houses.csv")
    houses[N_TRAIN:].write_csv(folder / "test.csv")
    result = run_command(
        *("fit", folder / "houses.csv", "--target", "rent", "--target", "price", "--coverage", 0.8, "--coverage", 0.5),
        *("--ignore", "id", "--seed", 3, "--folds", 2, "--max-rounds", 1, "--device", "cpu"),
        *("--out", folder / "model.safetensors"),
    )
    assert result.exit_code == 0, result.stderr
    (folder / "fit.txt").write_text(result.stdout)
    return folder


@pytest.fixture
def model(folder):
    return folder / "model.safetensors"


@pytest.fixture(scope="session")
def flowers(tmp_path_factory):
    """`old.csv` and `new.csv`, irises whose kind is text, and `model.safetensors` at two levels; to be left so."""
    data = load_iris()
    columns = dict(zip(["sepal", "sepal_width", "petal", "petal_width"], data.data.T, strict=True))
    frame = pl.DataFrame({**columns, "kind": data.target_names[data.target]}).sample(fraction=1, shuffle=True, seed=0)
    folder = tmp_path_factory.mktemp("flowers")
    frame[:N_TRAIN].write_csv(folder / "old.csv")
    frame[N_TRAIN:].write_csv(folder / "new.csv")
    brief = ("--seed", 3, "--folds", 2, "--max-rounds", 1, "--device", "cpu")
    asked = ("--target", "kind", "--coverage", "0.5,0.9", "--hold-for", "class", *brief)
    result = run_command("fit", folder / "old.csv", *asked, "--out", folder / "model.safetensors")
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.fixture
def classifier(flowers):
    return flowers / "model.safetensors"


@pytest.fixture
def irises(flowers):
    """Features and kinds of the new irises."""
    rows = pl.read_csv(flowers / "new.csv")
    return rows.drop("kind"), rows["kind"].to_numpy()


@pytest.fixture
def lilies(flowers, tmp_path):
    """The new irises, of which one kind was never seen."""
    path = tmp_path / "lilies.csv"
    path.write_text((flowers / "new.csv").read_text().replace("virginica", "lily"))
    return path
