"""The README and the docs: their code runs, their links and targets exist, every departure is listed."""

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
README = ROOT / "README.md"
GUIDE_TO_TABLES = ROOT / "docs" / "tables.md"
GUIDE = ROOT / "docs" / "forecasting.md"
GUIDE_TO_IMAGES = ROOT / "docs" / "localization.md"
INTERVALS = ROOT / "reproduction" / "intervals.csv"
TABLE2 = ROOT / "reproduction" / "table2.csv"
TABLE3 = ROOT / "reproduction" / "table3.csv"
GAPS = ROOT / "benchmarks" / "results" / "gaps.jsonl"
OWN_METHODS = ("Sigma Fit", "IQR Fit")  # what their titles begin with in INTERVALS; all others are the competition
# What rows of the README's table of tables begin with, and what that is called in INTERVALS.
TABLE_MEASURES = {"coverage": "coverage", "RMSE": "rmse", "interval score": "interval_score"}
TABLE_TITLES = {"Sigma Fit (default)": "Sigma Fit (our default)", "Sigma Fit as published": "Sigma Fit, as published"}
# What rows of our tables of series begin with, and what that is called in TABLE2.
MEASURES = {
    "RMSE": "rmse",
    "CE": "calibration_error",
    "worst 500 steps": "worst_rolling_coverage",
    "interval score": "interval_score",
}
# The same for tables of boxes: what a row begins with, or a column is called, in TABLE3.
BOX_MEASURES = {
    "CE": "calibration_error",
    "AW": "width",
    "AW, joint boxes": "joint_width",
    "AW over a constant width": "width_ratio",
    "interval score": "interval_score",
    "RMSE": "rmse",
}
WHOLE_BOX_MEASURES = {"mean IoU": "iou", "joint coverage": "joint_coverage", "all four separately": "together"}
UNITLESS = ("calibration_error", *WHOLE_BOX_MEASURES.values())
IN_THE_PAPER = ", in the paper"
N_WORDS = 5  # of a `Paper:` line, enough to tell it from others in its file


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


def test_the_readme_shows_the_public_face():
    text = README.read_text()
    for name in ("coverwell fit ", "coverwell predict ", "coverwell evaluate ", "coverwell plot ", "predict_interval("):
        assert name in text
    own = python_blocks(README)
    assert len(own) >= 3  # the test above has something to run
    assert sum(bool(line) for line in own[0].splitlines()) == 6


def test_the_readme_can_be_read_at_one_sitting():
    assert 150 <= len(README.read_text().splitlines()) <= 210


def test_the_guide_to_tables_shows_every_verb():
    code = "".join(python_blocks(GUIDE_TO_TABLES))
    verbs = ("read_csv(", ".fit(", ".predict(", ".predict_interval(", ".to_frame(", ".report()", "draw_intervals(")
    options = ("coverage=[", "groups=", "joint=True", "calibration=", "network=", "matching=", "noise=False")
    others = ("rounds_", "feature_names", "baselines", "coverwell.save(", "coverwell.load(")
    for name in (*verbs, *options, *others):
        assert name in code, f"the guide does not show {name}"


def test_numbers_of_tables_are_those_of_the_stored_intervals():
    stored = rows_of_intervals()
    (table,) = re.findall(r"^\| 90 % intervals \|.*\n(?:\|.*\n)+", README.read_text(), re.MULTILINE)
    (_, *names), _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    for label, *cells in rows:
        measure, title = label.split(", ")
        for data, cell in zip(names, cells, strict=True):
            number = number_of_table(stored, data, TABLE_MEASURES[measure], title)
            last_digit = 10.0 ** -len(cell.partition(".")[2])
            assert abs(float(cell) - number) <= 0.501 * last_digit, f"{label} on {data} is {number}"
    assert len(rows) >= 6
    assert len(names) == 6


def test_the_readme_quotes_the_stored_intervals():
    text, stored = " ".join(README.read_text().split()), rows_of_intervals()

    def mean(title, data, metric):
        wanted = (title, "", data, metric)
        names = ("title", "reading", "data", "metric")
        return next(float(row["mean"]) for row in stored if tuple(row[name] for name in names) == wanted)

    ours = TABLE_TITLES["Sigma Fit (default)"]
    ratios = [mean(ours, "6 tables", metric) for metric in ("rmse_ratio", "interval_score_ratio")]
    assert "RMSE {:.3f}, interval score {:.3f} (we aimed".format(*ratios) in text
    by_patient = [mean(title, "parkinsons by patient", "coverage") for title in (ours, "Deep Ensemble")]
    assert "Sigma Fit covers {:.3f} when 0.9 is asked, a deep ensemble {:.3f}".format(*by_patient) in text


def test_the_readme_quotes_the_coverage_of_rows_with_gaps():
    text = " ".join(README.read_text().split())
    lines = [json.loads(line) for line in GAPS.read_text().splitlines()]
    few, some, many = sorted({line["share"] for line in lines})

    def mean(share, name):
        own = [line[name] for line in lines if line["share"] == share]
        return f"{sum(own) / len(own):.2f}"

    assert f"{mean(few, 'with_gap')} where {few:.0%} of the rows had a gap".replace("%", " %") in text
    assert f"{mean(some, 'with_gap')} where {some:.0%} had one".replace("%", " %") in text
    assert f"{mean(many, 'with_gap')} where {many:.0%} had one".replace("%", " %") in text
    averages = [mean(share, "coverage") for share in (few, some, many)]
    assert f"although all rows together were covered {min(averages)} to {max(averages)} of the time" in text


def rows_of_intervals():
    with INTERVALS.open() as file:
        return list(csv.DictReader(file))


def number_of_table(stored, data, measure, title):
    """What INTERVALS has for a method of the README, or the best of all others."""
    own = [row for row in stored if (row["data"], row["metric"], row["reading"]) == (data, measure, "")]
    if title == "best other":
        return min(float(row["mean"]) for row in own if not row["title"].startswith(OWN_METHODS))
    return next(float(row["mean"]) for row in own if row["title"] == TABLE_TITLES[title])


def test_the_guide_to_forecasting_shows_every_verb():
    code = "".join(python_blocks(GUIDE))
    verbs = ("read_csv(", ".fit(", ".predict(", ".predict_interval(", ".backtest(", ".rolling_coverage(", ".update(")
    options = ("missing=", "calendar=", "covariates=", "past_covariates=", "horizon=", "refit_every=", "at=")
    others = ("coverwell.save(", "coverwell.load(", "from_residuals(", ".interval(", "state_dict()")
    for name in (*verbs, *options, *others):
        assert name in code, f"the guide does not show {name}"


def test_the_guide_to_images_shows_every_verb():
    code = "".join(python_blocks(GUIDE_TO_IMAGES))
    verbs = ("read_csv(", "clip_boxes(", ".fit(", ".predict(", ".predict_interval(", "joint=True", "(Dataset)")
    options = ("weights=", "size=", 'mirror="boxes"', "cache=", 'clip="refuse"')
    others = ("metrics.iou(", "draw_box(", "coverwell.save(", "coverwell.load(", "bytes_kept(", "forget(")
    for name in (*verbs, *options, *others):
        assert name in code, f"the guide does not show {name}"


@pytest.mark.parametrize("page", [README, GUIDE, ROOT / "docs" / "reproduction.md"], ids=lambda page: page.name)
def test_numbers_of_series_are_those_of_table2(page):
    with TABLE2.open() as file:
        stored = list(csv.DictReader(file))
    n_cells = 0
    for data, label, cell in cells_of_series(page.read_text()):
        n_cells += 1
        mean = stored_number(stored, data, label)
        assert (cell == "not run") == (mean is None), f"{page.name}: {label} on {data}"
        if mean is not None:
            last_digit = 10.0 ** -len(cell.partition(".")[2])
            assert abs(float(cell) - mean) <= 0.501 * last_digit, f"{page.name}: {label} on {data} is {mean}"
    assert n_cells >= 6 * 6


def cells_of_series(text):
    """What a table with a column for each series says: the series, the label of the row, the cell."""
    for table in re.findall(r"^\| 95 % intervals \|.*\n(?:\|.*\n)+", text, re.MULTILINE):
        (_, *series), _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        for label, *cells in rows:
            yield from ((data, label, cell) for data, cell in zip(series, cells, strict=True))


def stored_number(stored, data, label):
    """The number of a label such as "CE, gaps interpolated: Sigma Fit, static"; None if it is not stored."""
    head, title = label.split(": ")
    measure, _, reading = head.partition(", gaps ")
    kind = next((kind for kind in ("static", "live") if title.endswith(f", {kind}")), "")
    if title == "best in the paper":
        own = [row for row in stored if row["title"] in ("Sigma Fit", "IQR Fit") and row["paper"]]
        return min(float(row["paper"]) for row in own if (row["data"], row["metric"]) == (data, "rmse"))
    wanted = (title.removesuffix(f", {kind}"), data, reading or "observed", MEASURES[measure], kind)
    names = ("title", "data", "reading", "metric", "intervals")
    found = [float(row["mean"]) for row in stored if tuple(row[name] for name in names) == wanted]
    return found[0] if found else None


@pytest.mark.parametrize("page", [GUIDE_TO_IMAGES, ROOT / "docs" / "reproduction.md"], ids=lambda page: page.name)
def test_numbers_of_boxes_are_those_of_table3(page):
    text, stored = page.read_text(), rows_of_table3()
    n_cells = 0
    for title, measure, unit, part, cell in cells_of_boxes(text):
        n_cells += 1
        number = number_of_boxes(stored, title, measure, unit, part)
        place = f"{page.name}: {measure} ({unit}) of {title}, {part}"
        assert (cell == "-") == (number is None), place
        if number is not None:
            last_digit = 10.0 ** -len(cell.partition(".")[2])
            assert abs(float(cell) - number) <= 0.501 * last_digit, f"{place} is {number}"
    assert n_cells >= 9 * 3 + 16 * 4


def test_the_readme_quotes_table3():
    text, stored = " ".join((README).read_text().split()), rows_of_table3()

    def of_sigma_fit(measure, parts, unit=""):
        return [number_of_boxes(stored, "Sigma Fit", measure, unit, part) for part in parts]

    assert f"mean IoU of {of_sigma_fit('iou', ['box'])[0]:.3f}" in text
    assert f"CE of at most {max(of_sigma_fit('calibration_error', 'xywh')):.4f}" in text
    assert f"joint boxes hold {of_sigma_fit('joint_coverage', ['box'])[0]:.3f}" in text
    assert f"({of_sigma_fit('width_ratio', 'w', 'percent')[0]:.3f} of a constant width" in text


def rows_of_table3():
    with TABLE3.open() as file:
        return [row for row in csv.DictReader(file) if not row["target"]]  # verdicts repeat numbers of other rows


def cells_of_boxes(text):
    """What the tables of boxes say: title of the method, measure, unit and part as in TABLE3, the cell."""
    for table in re.findall(r"^\| (?:boxes|whole box), 95 % intervals \|.*\n(?:\|.*\n)+", text, re.MULTILINE):
        (head, *columns), _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        ]
        for label, *cells in rows:
            for column, cell in zip(columns, cells, strict=True):
                if head.startswith("whole"):
                    yield label, WHOLE_BOX_MEASURES[column], "", "box", cell
                else:
                    words, title = label.split(": ")
                    measure = BOX_MEASURES[words.removesuffix(", pixels")]
                    unit = "pixels" if words.endswith(", pixels") else "percent"
                    yield title, measure, "" if measure in UNITLESS else unit, column, cell


def number_of_boxes(stored, title, measure, unit, part):
    """What TABLE3 has for a method, or the paper for it; None if there is nothing."""
    wanted = (title.removesuffix(IN_THE_PAPER), measure, unit, part)
    column = "paper" if title.endswith(IN_THE_PAPER) else "mean"
    found = [
        row[column] for row in stored if tuple(row[name] for name in ("title", "metric", "unit", "part")) == wanted
    ]
    return float(found[0]) if found and found[0] else None


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
