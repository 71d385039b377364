"""The README and the docs: their code runs, their links and targets exist, every departure is listed."""

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
OWN_METHODS = ("coverwell", "Sigma Fit", "IQR Fit")  # what their titles begin with; all others are the competition
# What rows or columns of our tables are called, and the measure's name in the stored tables.
TABLE_TITLES = {
    "coverwell": "coverwell (our default)",
    "coverwell, today's default (parkinsons: 5 splits)": "coverwell (our default)",
    "Sigma Fit, the default of 0.1.0": "Sigma Fit (0.1.0)",
    "Sigma Fit as published, ours": "Sigma Fit, as published",
}
MEASURES = {
    "coverage": "coverage",
    "RMSE": "rmse",
    "CE": "calibration_error",
    "worst 500 steps": "worst_rolling_coverage",
    "interval score": "interval_score",
    "AW": "width",
    "AW, joint boxes": "joint_width",
    "AW over a constant width": "width_ratio",
}
WHOLE_BOX_MEASURES = {"mean IoU": "iou", "joint coverage": "joint_coverage", "all four separately": "together"}
IN_THE_PAPER = ", in the paper"
N_WORDS = 5  # of a `Paper:` line, enough to distinguish it from others in its file
VERBS = {
    README: "fit( predict_interval(",
    DOCS / "tables.md": """
        read_csv( .fit( .predict( .predict_interval( .to_frame( .report() draw_intervals( coverage=[ groups= joint=True
        calibration= network= matching= noise=False rounds_ feature_names baselines coverwell.save( coverwell.load(""",
    DOCS / "forecasting.md": """
        read_csv( .fit( .predict( .predict_interval( .backtest( .rolling_coverage( .update( missing= calendar=
        covariates= past_covariates= horizon= refit_every= at= coverwell.save( coverwell.load( from_residuals(
        .interval( state_dict()""",
    DOCS / "localization.md": """
        read_csv( clip_boxes( .fit( .predict( .predict_interval( joint=True (Dataset) weights= size= mirror="boxes"
        cache= clip="refuse" metrics.iou( draw_box( coverwell.save( coverwell.load( bytes_kept( forget(""",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (ROOT / "examples").glob("*.csv"):
        shutil.copy(path, tmp_path)
    text = page.read_text()
    namespace = {"__name__": page.stem}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), namespace)


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", VERBS, ids=lambda page: page.name)
def test_pages_show_every_verb(page):
    code = "".join(python_blocks(page))
    for name in VERBS[page].split():
        assert name in code, f"{page.name} does not show {name}"


def test_the_readme_shows_the_public_face_and_can_be_read_at_one_sitting():
    text = README.read_text()
    for name in ("fit", "predict", "evaluate", "plot", "report"):
        assert f"coverwell {name} " in text
    own = python_blocks(README)
    assert len(own) >= 3  # the test above has something to run
    assert sum(bool(line) for line in own[0].splitlines()) == 6
    assert 150 <= len(text.splitlines()) <= 210


# Numbers.


def stored(name):
    with (ROOT / "reproduction" / name).open() as file:
        return list(csv.DictReader(file))


def number(rows, column="mean", **wanted):
    """The number of the first of these rows with these fields; None if there is none."""
    found = [row[column] for row in rows if wanted.items() <= row.items()]
    return float(found[0]) if found and found[0] else None


def cells_of(page, head):
    """Cells of all tables whose first line begins like this: that word, the label of the row, the column, the cell."""
    for table in re.findall(rf"^\| {head} \|.*\n(?:\|.*\n)+", page.read_text(), re.MULTILINE):
        (first, *columns), _, *rows = [
            [cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()
        ]
        for label, *cells in rows:
            yield from ((first, label, column, cell) for column, cell in zip(columns, cells, strict=True))


def assert_quoted(cell, number, where):
    """A cell is its number rounded to as many digits as it has."""
    last_digit = 10.0 ** -len(cell.partition(".")[2])
    assert abs(float(cell) - number) <= 0.501 * last_digit, f"{where} is {number}"


def test_numbers_of_tables_are_those_of_the_stored_intervals():
    rows, cells = stored("intervals.csv"), list(cells_of(DOCS / "reproduction.md", r"90 % intervals, 20 random.*"))
    for _, label, data, cell in cells:
        measure, title = label.split(": ", 1)
        own = [row for row in rows if (row["data"], row["metric"], row["reading"]) == (data, MEASURES[measure], "")]
        if title == "best baseline or peer":
            expected = min(float(row["mean"]) for row in own if not row["title"].startswith(OWN_METHODS))
        elif title.startswith("paper"):
            continue
        else:
            expected = number(own, title=TABLE_TITLES[title])
        assert_quoted(cell, expected, f"{label} on {data}")
    assert len(cells) >= 6 * 6


def test_the_readme_quotes_the_stored_series_and_boxes():
    text, series = " ".join(README.read_text().split()), stored("table2.csv")
    live = {"title": "Sigma Fit", "metric": "calibration_error", "reading": "observed", "intervals": "live"}
    names = {row["data"] for row in series if live.items() <= row.items()}
    worst = max(number(series, data=name, **live) for name in names)
    assert f"live 95 % intervals is within {worst:.4f} of that" in text
    boxes = [row for row in stored("table3.csv") if row["title"] == "Sigma Fit"]
    assert f"mean IoU {number(boxes, metric='iou'):.3f}" in text
    assert f"CE of at most {max(number(boxes, metric='calibration_error', part=part) for part in 'xywh'):.4f}" in text
    assert f"joint boxes hold {number(boxes, metric='joint_coverage'):.3f}" in text


def table_with(page, head):
    """The rows of the first table with this head, by their labels."""
    table, *_ = re.findall(rf"^\| ?{head} *\|.*\n(?:\|.*\n)+", page.read_text(), re.MULTILINE)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    return {label: cells for label, *cells in rows[2:]}


def test_the_readme_quotes_each_competitor_over_the_default():
    quoted = table_with(README, "90 % intervals, over coverwell's")
    known = table_with(ROOT / "benchmarks/results/accuracy.md", "method over ours")
    for label, cells in quoted.items():
        *numbers, (fit_time, *_) = *known[label][:-1], known[label][-1].split(" ")
        assert cells == [*numbers, fit_time], label
    assert len(quoted) == 5


def test_the_readme_quotes_the_default_over_its_best_competitors():
    text, report = " ".join(README.read_text().split()), (ROOT / "benchmarks/results/accuracy.md").read_text()
    six, all_, worst = (
        re.search(rf"^\| {name} +\| ([\d.]+) ", report, re.MULTILINE)[1]
        for name in ("geometric mean, the paper's 6", "geometric mean, all 18", "worst table")
    )
    assert f"{six} on the paper's six tables and {all_} on eighteen" in text
    assert f"on the worst {worst}" in text
    seconds = {row: cells[1] for row, cells in table_with(ROOT / "benchmarks/results/speed.md", "").items()}
    assert "flats.csv takes {} s".format(seconds["flats.csv"]) in text
    assert "100,000 rows of 20 columns {:.0f} s".format(float(seconds["100,000 x 20"])) in text


def test_the_readme_quotes_the_coverage_of_rows_with_gaps():
    text = " ".join(README.read_text().split())
    lines = [json.loads(line) for line in (ROOT / "benchmarks/results/gaps.jsonl").read_text().splitlines()]
    of_law = [line for line in lines if line["data"] == "made up"]
    of_tables = [line for line in lines if line["data"] != "made up"]

    def means(name, lines, of=lambda line: line):
        own = [[of(line)[name] for line in lines if line["share"] == share] for share in (0.02, 0.05, 0.2)]
        return [f"{sum(values) / len(values):.2f}" for values in own]

    with_gap, alike = means("with_gap", of_law), means("with_gap", of_law, of=lambda line: line["alike"])
    quoted = "a gap {} of the time where 2 % of the rows had one, {} where 5 % had one and {} where 20 % had one "
    assert quoted.format(*with_gap) + "({}, {} and {} without)".format(*alike) in text
    assert "on eight tables, {}, {} and {}".format(*means("with_gap", of_tables)) in text
    averages = means("coverage", of_law)
    assert f"All rows together were covered {min(averages)} to {max(averages)} of the time" in text


@pytest.mark.parametrize("page", [DOCS / "forecasting.md", DOCS / "reproduction.md"], ids=lambda page: page.name)
def test_numbers_of_series_are_those_of_table2(page):
    """A label is like "CE, gaps interpolated: Sigma Fit, static"."""
    rows, cells = stored("table2.csv"), list(cells_of(page, r"95 % intervals"))
    for _, label, data, cell in cells:
        head, title = label.split(": ")
        measure, _, reading = head.partition(", gaps ")
        kind = next((kind for kind in ("static", "live") if title.endswith(f", {kind}")), "")
        own = [row for row in rows if (row["data"], row["metric"]) == (data, MEASURES[measure])]
        if title == "best in the paper":
            expected = min(float(row["paper"]) for row in own if row["title"] in OWN_METHODS and row["paper"])
        else:
            title = title.removesuffix(f", {kind}")
            expected = number(own, title=title, reading=reading or "observed", intervals=kind)
        assert (cell == "not run") == (expected is None), f"{page.name}: {label} on {data}"
        if expected is not None:
            assert_quoted(cell, expected, f"{page.name}: {label} on {data}")
    assert len(cells) >= 6 * 6


@pytest.mark.parametrize("page", [DOCS / "localization.md", DOCS / "reproduction.md"], ids=lambda page: page.name)
def test_numbers_of_boxes_are_those_of_table3(page):
    rows = [row for row in stored("table3.csv") if not row["target"]]  # verdicts repeat numbers of other rows
    cells = list(cells_of(page, r"(?:boxes|whole box), 95 % intervals"))
    for head, label, column, cell in cells:
        if head.startswith("whole"):
            title, where = label, {"metric": WHOLE_BOX_MEASURES[column], "unit": "", "part": "box"}
        else:
            words, title = label.split(": ")
            measure = MEASURES[words.removesuffix(", pixels")]
            unit = "pixels" if words.endswith(", pixels") else "percent"
            where = {"metric": measure, "unit": "" if measure == "calibration_error" else unit, "part": column}
        kind = "paper" if title.endswith(IN_THE_PAPER) else "mean"
        expected = number(rows, kind, title=title.removesuffix(IN_THE_PAPER), **where)
        assert (cell == "-") == (expected is None), f"{page.name}: {label}, {column}"
        if expected is not None:
            assert_quoted(cell, expected, f"{page.name}: {label}, {column}")
    assert len(cells) >= 9 * 3 + 16 * 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_targets_exist(page):
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE):
        assert target in known, f"{page.name} names the target {target}"


def test_every_departure_from_the_paper_is_listed_in_the_docs():
    package = ROOT / "src" / "coverwell"
    marked = Counter(
        (str(path.relative_to(package)), first_words(match[1]))
        for path in package.rglob("*.py")
        for match in re.finditer(r"^[\s#]*Paper: (.*)$", path.read_text(), re.MULTILINE)
    )
    rows = re.findall(r"^\| `([\w/]+\.py)`[^|]*\| ([^|]*)\|", (ROOT / "docs" / "paper.md").read_text(), re.MULTILINE)
    listed = Counter((file, first_words(words)) for file, words in rows)
    assert marked, "no line that starts with `Paper:` was found"
    assert listed == marked


def first_words(text: str) -> str:
    return " ".join(text.split()[:N_WORDS])
