"""What lies in reproduction/: tables and figures that the stored lines give again byte by byte, and their settings."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from reproduction.cli import main
from reproduction.domains.boxes import BoxStudy
from reproduction.domains.series import SeriesStudy
from reproduction.domains.tables import ROUND_MEASURES, RoundStudy, TableStudy
from reproduction.tables.typeset import PAPER

ROOT = Path(__file__).parents[2]
STORED = ROOT / "reproduction"
PAPER_TEX = ROOT.parent / "shared" / "paper.tex"
METHODS = ("mc-dropout", "concrete-dropout", "quantiles", "bnn", "hnn", "sigma-fit", "iqr-fit")
TITLES = ("MCDropout", "ConcreteDropout", "QuantileEstimator", "BNN", "HNN", "SigmaFit", "IQRFit")
NAMES = dict(zip(METHODS, TITLES, strict=True))


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("table1 --peers {peers}", "table1.md table1.csv intervals.md intervals.csv"),
        ("figure2", "figure2.png figure2.svg"),
        ("figure3", "figure3.png figure3.svg"),
        ("table2", "table2.md table2.csv"),
        ("figure4", "figure4.png figure4.svg figure4-covariates-refit.png figure4-covariates-refit.svg"),
        ("table3", "table3.md table3.csv"),
        ("figure5", "figure5.png figure5.svg"),
        ("table3 --small", "small/table3.md small/table3.csv"),
    ],
)
def test_stored_lines_give_the_stored_tables_and_figures_byte_by_byte(tmp_path, command, files):
    for path in [*STORED.glob("*.jsonl"), STORED / "small" / "boxes.jsonl"]:
        (tmp_path / path.relative_to(STORED)).parent.mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / path.relative_to(STORED))
    peers = ROOT / "benchmarks" / "results" / "peers.jsonl"
    result = CliRunner().invoke(main, [*command.format(peers=peers).split(), "--draw-only", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.split() == [word for name in files.split() for word in ("wrote", str(tmp_path / name))]
    for name in files.split():
        made, stored = (tmp_path / name).read_bytes(), (STORED / name).read_bytes()
        if name.endswith((".md", ".csv")):
            assert made.decode() == stored.decode()
        assert made == stored or (name.endswith((".png", ".svg")) and _other_matplotlib()), name


def _other_matplotlib():
    """Another version of matplotlib may draw otherwise; the pinned one may not."""
    import matplotlib

    pinned = re.search(r"^matplotlib==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return pinned is None or pinned[1] != matplotlib.__version__


@pytest.mark.parametrize("study", [TableStudy, SeriesStudy, BoxStudy])
def test_the_stored_settings_are_those_of_the_methods(study):
    """A changed default would make the stored results stale."""
    assert json.loads((STORED / study.SETTINGS).read_text()) == study.settings()
    assert {line["method"] for line in study.stored(STORED / study.FILE, version=None)} <= set(study.settings())


def test_rounds_are_as_many_as_the_figure_asks_for():
    for line in RoundStudy.stored(STORED / RoundStudy.FILE, version=None):
        (length,) = {len(line[rows][name]) for rows in ("test", "own") for name in ROUND_MEASURES}
        assert length <= (50 if line["method"].endswith("-published") else 40)


# The paper's numbers.


def rows_after(words):
    if not PAPER_TEX.exists():
        pytest.skip(f"the paper is not in {PAPER_TEX}")
    text = PAPER_TEX.read_text(encoding="utf-8").partition(words)[2]
    return re.sub(r"\\cellcolor\{[^}]*\}|\\rule\{[^}]*\}\{[^}]*\}|\\textbf|[{}\s]", "", text)


def test_the_numbers_of_table_1_are_the_papers():
    text = rows_after("Test RMSE from the regression experiments")
    assert tuple(PAPER["table1"]) == METHODS
    for method, numbers in PAPER["table1"].items():
        row = text[text.index(f"{NAMES[method]}&") :].split(r"\\", 1)[0]
        assert [float(cell) for cell in row.split("&")[1:]] == numbers, method


def test_the_numbers_of_table_2_are_the_papers():
    text = rows_after("time-series forecasting experiments").partition(r"\endtable*")[0]
    for method, measures in PAPER["table2"].items():
        rows = text[text.index(f"*{NAMES[method]}&RMSE") :].split(r"\\")
        for row, (measured, numbers) in zip(rows[:3], measures.items(), strict=True):
            printed = [float(cell) for cell in row.split("&")[2:8]]
            if measured != "calibration_error":
                printed[3] /= 1e8  # traffic
            assert printed == pytest.approx(numbers), (method, measured)
