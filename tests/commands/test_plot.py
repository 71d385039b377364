"""`coverwell plot`: figures from a model and a file, one-line errors, and nothing overwritten."""

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from coverwell import MLP, MatchedRegressor, save
from coverwell.commands.plot import plot

WITH_DATA = ("intervals", "calibration", "widths", "slices")
PNG = b"\x89PNG\r\n\x1a\n"


def table(n_rows, seed):
    rng = np.random.default_rng(seed)
    area, city = rng.uniform(30, 200, n_rows), rng.choice(["Oslo", "Rome"], n_rows)
    price = 3 * area + 50 * (city == "Oslo") + rng.normal(0, 10, n_rows)
    day = np.datetime64("2024-01-01") + rng.integers(0, 300, n_rows)
    gaps = np.where(np.arange(n_rows) % 10 == 0, None, area.round(1))
    frame = pl.DataFrame(
        {"area": gaps.tolist(), "city": city, "day": day, "price": price.round(2), "rent": (price / 20).round(3)}
    )
    return frame.with_columns(pl.col("area").cast(pl.Float64), garden=pl.int_range(n_rows) % 3 == 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models of one target and level, and of two each, and a table with known targets."""
    place = tmp_path_factory.mktemp("plot")
    train = table(80, seed=0)
    features = train.select("area", "city", "day", "garden")
    settings = {"network": MLP(hidden=8), "max_rounds": 2, "repeats": 1, "random_state": 0}
    save(MatchedRegressor(0.8, **settings).fit(features, train["price"]), place / "one.safetensors")
    two = MatchedRegressor([0.5, 0.8], **settings).fit(features, train.select("price", "rent"))
    save(two, place / "two.safetensors")
    table(60, seed=1).write_csv(place / "test.csv")
    return place


def run(*arguments):
    return CliRunner().invoke(plot, [str(argument) for argument in arguments])


def arguments_of(kind, model, folder):
    return [kind, folder / model, *([folder / "test.csv"] if kind in WITH_DATA else [])]


def assert_message(result, *parts):
    """One line on standard error, and exit code 2."""
    assert result.exit_code == 2, result.output
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("Error: ")
    assert "Traceback" not in result.output
    for part in parts:
        assert part in message


@pytest.mark.parametrize("model", ["one.safetensors", "two.safetensors"])
@pytest.mark.parametrize("kind", [*WITH_DATA, "rounds"])
def test_every_kind_of_picture_is_written_and_its_place_is_said(kind, model, folder, tmp_path):
    out = tmp_path / "figure.png"
    result = run(*arguments_of(kind, model, folder), "--out", out)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"wrote {out}\n"
    assert out.read_bytes().startswith(PNG)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("along", ["area", "day"])
def test_rows_can_stand_along_numbers_and_dates_though_some_are_missing(along, folder, tmp_path):
    out = tmp_path / "figure.svg"
    result = run(*arguments_of("intervals", "one.safetensors", folder), "--along", along, "--unit", "EUR", "--out", out)
    assert result.exit_code == 0, result.output
    assert out.read_text().startswith("<?xml")


def test_the_same_command_writes_the_same_bytes_and_another_level_others(folder, tmp_path):
    files = [tmp_path / f"{name}.png" for name in "abc"]
    for file, level in zip(files, ("0.8", "0.8", "0.5"), strict=True):
        more = ["--coverage", level, "--target", "rent", "--rows", 20, "--out", file]
        assert run(*arguments_of("intervals", "two.safetensors", folder), *more).exit_code == 0
    one, again, other = (file.read_bytes() for file in files)
    assert one == again
    assert one != other


@pytest.mark.parametrize("kind", [*WITH_DATA, "rounds"])
def test_a_figure_that_exists_is_kept_unless_forced(kind, folder, tmp_path):
    out = tmp_path / "figure.png"
    out.write_bytes(b"mine")
    command = [*arguments_of(kind, "one.safetensors", folder), "--out", out]
    assert_message(run(*command), "exists", "--force")
    assert out.read_bytes() == b"mine"
    assert run(*command, "--force").exit_code == 0
    assert out.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--coverage", "0.95"], ["0.95 was not fitted", "0.8"]),
        (["--target", "prise"], ["no target prise", "its targets are price"]),
        (["--along", "rooms"], ["rooms is no feature", "area, city, day, garden"]),
        (["--along", "city"], ["city holds text"]),
        (["--along", "garden"], ["garden holds true and false alone; rows can stand along numbers or dates"]),
        (["--delimiter", ";"], ["test.csv"]),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line_and_nothing_is_written(more, parts, folder, tmp_path):
    out = tmp_path / "figure.png"
    assert_message(run(*arguments_of("intervals", "one.safetensors", folder), *more, "--out", out), *parts)
    assert list(tmp_path.iterdir()) == []


def test_another_ending_or_a_folder_is_refused_before_any_work(folder, tmp_path):
    missing_work = [*arguments_of("rounds", "test.csv", folder), "--out"]  # no model: it is not even looked at
    assert_message(run(*missing_work, tmp_path / "figure.jpeg"), ".png, .svg or .pdf")
    (tmp_path / "folder.png").mkdir()
    assert_message(run(*missing_work, tmp_path / "folder.png"), "is a folder")


def test_a_file_that_is_no_model_is_refused_in_one_line(folder, tmp_path):
    assert_message(run("rounds", folder / "test.csv", "--out", tmp_path / "a.png"), "damaged or not a model file")


def test_data_without_the_target_are_refused(folder, tmp_path):
    pl.read_csv(folder / "test.csv").drop("price").write_csv(tmp_path / "without.csv")
    result = run("slices", folder / "one.safetensors", tmp_path / "without.csv", "--out", tmp_path / "a.png")
    assert_message(result, "price")
    assert not (tmp_path / "a.png").exists()


def test_without_matplotlib_the_extra_is_named_before_any_work(folder, tmp_path, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else find(name, *more)
    )
    result = run(*arguments_of("rounds", "one.safetensors", folder), "--out", tmp_path / "a.png")
    assert result.exit_code == 1
    assert 'pip install "coverwell[plots]"' in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [*WITH_DATA, "rounds"])
def test_the_help_of_every_kind_has_an_example(kind):
    result = run(kind, "--help")
    assert result.exit_code == 0
    assert f"coverwell plot {kind} model.safetensors" in result.stdout
