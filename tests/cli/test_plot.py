"""`coverwell plot`: figures from a model and a file, one-line errors, and nothing overwritten."""

import pytest

WITH_DATA = ("intervals", "calibration", "widths", "slices")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def arguments(folder):
    def arguments_of(kind):
        return ["plot", kind, folder / "model.safetensors", *([folder / "test.csv"] if kind in WITH_DATA else [])]

    return arguments_of


@pytest.mark.parametrize("kind", [*WITH_DATA, "rounds"])
def test_every_kind_of_figure_is_written(run, arguments, kind, tmp_path):
    out = tmp_path / "figure.png"
    result = run(*arguments(kind), "--out", out)
    assert result.stdout == f"wrote {out}\n"
    assert out.read_bytes().startswith(PNG)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("along", ["area", "sold"])
def test_rows_can_stand_along_numbers_and_dates_though_some_are_missing(run, arguments, along, tmp_path):
    out = tmp_path / "figure.svg"
    run(*arguments("intervals"), "--along", along, "--unit", "EUR", "--out", out)
    assert out.read_text().startswith("<?xml")


def test_the_same_command_writes_the_same_bytes_and_another_level_others(run, arguments, tmp_path):
    files = [tmp_path / f"{name}.png" for name in "abc"]
    for file, level in zip(files, ("0.8", "0.8", "0.5"), strict=True):
        more = ["--coverage", level, "--target", "rent", "--rows", 20, "--out", file]
        run(*arguments("intervals"), *more)
    one, again, other = (file.read_bytes() for file in files)
    assert one == again
    assert one != other


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--coverage", "0.95"], ["0.95 was not fitted", "0.8"]),
        (["--target", "prise"], ["no target prise", "its targets are rent, price"]),
        (["--along", "rooms"], ["rooms is no feature", "area, city, sold, garden"]),
        (["--along", "city"], ["city holds text"]),
        (["--along", "garden"], ["garden holds true and false alone; rows can stand along numbers or dates"]),
        (["--delimiter", ";"], ["test.csv"]),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_nothing_is_written(refused, arguments, more, parts, tmp_path):
    message = refused(*arguments("intervals"), *more, "--out", tmp_path / "figure.png")
    assert all(part in message for part in parts)
    assert list(tmp_path.iterdir()) == []


def test_another_ending_or_a_folder_is_refused_before_any_work(refused, folder, tmp_path):
    no_model = ["plot", "rounds", folder / "test.csv", "--out"]  # it is not even looked at
    assert ".png, .svg or .pdf" in refused(*no_model, tmp_path / "figure.jpeg")
    (tmp_path / "folder.png").mkdir()
    assert "is a folder" in refused(*no_model, tmp_path / "folder.png")


def test_without_matplotlib_the_extra_is_named_before_any_work(refused, arguments, tmp_path, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else find(name, *more)
    )
    message = refused(*arguments("rounds"), "--out", tmp_path / "a.png", code=1)
    assert 'pip install "coverwell[plots]"' in message
    assert list(tmp_path.iterdir()) == []


# Of classes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reliability", "sizes", "classes", "calibration", "slices", "rounds"])
def test_every_kind_of_figure_of_classes_is_written_though_a_class_was_never_seen(
    run, classifier, lilies, kind, tmp_path
):
    out = tmp_path / "figure.png"
    result = run("plot", kind, classifier, *([] if kind == "rounds" else [lilies]), "--out", out)
    assert result.stdout == f"wrote {out}\n"
    assert out.read_bytes().startswith(PNG)


def test_figures_of_numbers_and_of_classes_are_not_drawn_of_each_other(
    refused, arguments, flowers, classifier, tmp_path
):
    out = ("--out", tmp_path / "figure.png")
    message = refused("plot", "widths", classifier, flowers / "new.csv", *out)
    assert message.startswith("plot widths is for models of numbers, and ")
    assert message.endswith("predicts classes; draw reliability, sizes or classes")
    test, model = arguments("widths")[3], arguments("widths")[2]
    message = refused("plot", "classes", model, test, *out)
    assert message == f"plot classes is for models of classes, and {model} predicts numbers; draw intervals or widths"
    assert list(tmp_path.iterdir()) == []
