"""The command as a whole: its help, its version, and a start that loads nothing heavy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import coverwell
from coverwell.cli import COMMANDS

SOURCES = Path(__file__).parents[2] / "src"
HEAVY = {"jaxtyping", "matplotlib", "narwhals", "numpy", "pandas", "polars", "safetensors", "scipy", "sklearn", "torch"}
COMPILER = {"sympy", "torch._dynamo"}  # of torch, which takes as long to load as all the rest of it
GROUPS = {"plot": ("intervals", "calibration", "widths", "slices", "rounds")}


def test_the_version_is_the_packages(run):
    assert run("--version").output == f"coverwell, version {coverwell.__version__}\n"


def test_the_help_lists_every_command_with_its_purpose(run):
    text = run("--help").output
    assert "Example:\n    coverwell fit " in text
    listed = {line.split()[0]: line.split()[1:] for line in text.partition("Commands:")[2].splitlines() if line.strip()}
    assert tuple(listed) == COMMANDS
    assert all(listed.values())


@pytest.mark.parametrize(
    "command", [*COMMANDS, *(f"{group} {name}" for group, names in GROUPS.items() for name in names)]
)
def test_every_command_has_a_help_text_with_an_example(run, command):
    text = run(*command.split(), "--help").output
    assert f"coverwell {command}" in text.partition("Example:")[2]


COMMAND = """
from coverwell.cli import main
try:
    main(sys.argv[1:], prog_name="coverwell")
except SystemExit as end:
    print(f"exit code {end.code}")
"""


def heavy_after(code, *arguments):
    """The heavy packages that are loaded when this code has run, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('loaded', *sys.modules)", *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=True,
    )
    printed, _, modules = done.stdout.rpartition("loaded ")
    return (HEAVY | COMPILER) & set(modules.split()), printed


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        *(([*name.split(), "--help"], 0) for name in (*COMMANDS, "plot intervals")),
        (["forecast"], 2),
        (["fit"], 2),
        (["fit", "none.csv", "--target", "y"], 2),
        (["fit", __file__, "--target", "y", "--out", "model", "--coverage", "2"], 2),
        (["predict", __file__, __file__, "--out", "out.xlsx"], 2),
    ],
)
def test_help_and_wrong_arguments_load_nothing_heavy(arguments, code):
    heavy, printed = heavy_after(COMMAND, *arguments)
    assert heavy == set()
    assert printed.endswith(f"exit code {code}\n")


def test_a_column_that_is_not_there_loads_no_torch(tmp_path):
    (tmp_path / "flats.csv").write_text("rent,area\n900,40\n1200,55\n")
    named = ("--target", "rennt", "--out", str(tmp_path / "model.safetensors"))
    heavy, printed = heavy_after(COMMAND, "fit", str(tmp_path / "flats.csv"), *named)
    assert heavy == {"numpy"}
    assert printed.endswith("exit code 2\n")


def test_a_prediction_loads_no_scikit_learn_and_no_compiler(folder, tmp_path):
    heavy, printed = heavy_after(
        COMMAND,
        "predict",
        str(folder / "model.safetensors"),
        str(folder / "test.csv"),
        "--out",
        str(tmp_path / "p.csv"),
    )
    assert not heavy & {"matplotlib", "pandas", "scipy", "sklearn", *COMPILER}
    assert printed.endswith("exit code 0\n")


def test_the_package_loads_its_names_when_they_are_used():
    uses = "import coverwell; dir(coverwell); coverwell.__version__; coverwell.errors.ColumnWarning; coverwell.tables"
    assert heavy_after(uses) == (set(), "")
    heavy, printed = heavy_after("import coverwell; print(coverwell.MLP.__name__, hasattr(coverwell, 'nothing'))")
    assert "torch" in heavy
    assert printed == "MLP False\n"


def test_all_public_names_are_there_and_few():
    assert set(coverwell.__all__) <= set(dir(coverwell))
    for name in coverwell.__all__:
        assert getattr(coverwell, name) is not None
    assert len(coverwell.__all__) <= 21
    for module in ("baselines", "errors", "metrics", "networks", "plots", "report"):
        assert getattr(coverwell, module).__name__ == f"coverwell.{module}"
    with pytest.raises(AttributeError, match="module 'coverwell' has no attribute 'forest'"):
        coverwell.forest  # noqa: B018


def test_what_predicts_from_a_model_file_loads_no_scikit_learn():
    heavy, _ = heavy_after("import coverwell.model_file")
    assert "torch" in heavy
    assert "sklearn" not in heavy
