"""Table 1 and the table of intervals: the paper's numbers, the marks, and stored lines that give stored tables.

`python tests/experiments/test_table1.py` makes the stored lines and tables again.
"""

import csv
import json
import random
import re
from pathlib import Path

import pytest
from coverwell.experiments import table1
from coverwell.experiments.summary import TABLES

DATA = Path(__file__).parent / "data"
REPOSITORY = Path(__file__).parents[2]
PAPER_TEX = REPOSITORY.parent / "shared" / "paper.tex"
FILES = ["table1.md", "table1.csv", "intervals.md", "intervals.csv"]
LEVELS = [0.5, 0.9, 0.99]
SIZES = {"boston": (404, 102), "auto mpg": (313, 79), "parkinsons by patient": (4700, 1175)}


def made_up_line(chance, method, data, trial, *, error, width, levels=LEVELS):
    """A line whose numbers look like results and are none, rounded as no result is."""
    n_train, n_test = SIZES[data]
    error *= chance.gauss(1, 0.05)
    reach = [width * (0.7, 1.6, 2.6)[LEVELS.index(level)] for level in levels]
    covered = [min(1.0, max(0.0, level + chance.gauss(0, 0.02) + 0.02 * (width - 1))) for level in levels]
    line = {
        "format": 1,
        "method": method,
        "data": data,
        "trial": trial,
        "seed": trial,
        "levels": levels,
        "n_train": n_train,
        "n_test": n_test,
        "rmse": round(error, 3),
        "coverage": [round(round(share * n_test) / n_test, 4) for share in covered],
        "width": [round(2 * error * each, 3) for each in reach],
        "interval_score": [round(3 * error * each, 3) for each in reach],
        "weighted_interval_score": None,
        "rounds": 20,
        "members": 5,
        "seconds": 1.5,
        "stack": 6,
        "device": "made up",
        "versions": {"coverwell": "0.0", "torch": "0.0"},
    }
    if method == "mc-dropout":
        thin = {"coverage": 0.4, "width": 0.3, "interval_score": 2.0}
        line["epistemic"] = {name: [round(by * value, 4) for value in line[name]] for name, by in thin.items()}
    return line


def made_up():
    """Lines of the study and of a peer: two tables and a variant, six trials or fewer."""
    chance = random.Random(3)
    base = {"boston": 3.0, "auto mpg": 2.6, "parkinsons by patient": 8.0}
    looks = {
        "mc-dropout": (1.3, 1.4),
        "bnn": (1.6, 2.5),
        "hnn": (1.2, 0.8),
        "sigma-fit-published": (1.1, 0.5),
        "sigma-fit": (1.0, 1.0),
        "iqr-fit": (1.02, 0.95),
        "deep-ensemble": (1.05, 1.0),
    }
    runs = [(method, data, trial) for data in ("boston", "auto mpg") for method in looks for trial in range(6)]
    runs = [(m, d, t) for m, d, t in runs if (m, d) != ("iqr-fit", "boston") or t < 3]
    runs += [("sigma-fit", "parkinsons by patient", trial) for trial in range(2)]
    lines = [made_up_line(chance, m, d, t, error=base[d] * looks[m][0], width=looks[m][1]) for m, d, t in runs]
    peers = [
        made_up_line(chance, "ngboost", data, trial, error=base[data], width=1.1, levels=[0.9])
        for data in ("boston", "auto mpg")
        for trial in range(5)
    ]
    return lines, peers


def read(path):
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def stored():
    return read(DATA / "results-small.jsonl"), read(DATA / "peers-small.jsonl")


def of(lines, **wanted):
    return [line for line in lines if all(line[name] == value for name, value in wanted.items())]


def cells(path, start):
    """The cells of the first row of a Markdown table that starts like this."""
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in path.read_text().splitlines()]
    return next(row for row in rows if row[: len(start)] == start)


def test_stored_lines_give_the_stored_tables_byte_by_byte(tmp_path):
    paths = table1.write(*_of_folder(stored(), tmp_path))
    assert [path.name for path in paths] == FILES
    for path in paths:
        assert path.read_bytes() == (DATA / path.name).read_bytes(), path.name


def _of_folder(lines_and_peers, folder):
    lines, peers = lines_and_peers
    return lines, folder, peers


def test_the_stored_lines_come_from_the_generator():
    assert stored() == made_up()


def test_the_order_of_the_lines_does_not_matter(tmp_path):
    lines, peers = stored()
    random.Random(0).shuffle(lines)
    for path in table1.write(lines, tmp_path, peers[::-1]):
        assert path.read_bytes() == (DATA / path.name).read_bytes(), path.name


def test_the_committed_tables_come_from_the_committed_results(tmp_path):
    folder = REPOSITORY / "reproduction"
    peers = REPOSITORY / "benchmarks" / "results" / "peers.jsonl"
    for path in table1.write(read(folder / "results.jsonl"), tmp_path, read(peers)):
        assert path.read_text(encoding="utf-8") == (folder / path.name).read_text(encoding="utf-8"), path.name


def test_the_papers_numbers_are_those_of_its_table():
    if not PAPER_TEX.exists():
        pytest.skip(f"the paper is not in {PAPER_TEX}")
    text = PAPER_TEX.read_text(encoding="utf-8")
    table = text[text.index("Test RMSE from the regression experiments") :]
    names = ["MC Dropout", "Concrete Dropout", "Quantile Estimator", "BNN", "HNN", "Sigma Fit", "IQR Fit"]
    for name, numbers in zip(names, table1.PAPER.values(), strict=True):
        row = table[table.index(f"{name} &") :].split(r"\\", 1)[0]
        found = [
            re.sub(r"\\cellcolor\{[^}]*\}|\\rule\{[^}]*\}\{[^}]*\}|\\textbf|[{}\s]", "", c) for c in row.split("&")
        ]
        assert [float(cell) for cell in found[1:]] == list(numbers), name


def test_the_columns_of_the_paper_are_our_six_tables():
    assert TABLES == ("crime", "red wine", "white wine", "parkinsons", "boston", "auto mpg")
    assert {len(numbers) for numbers in table1.PAPER.values()} == {6}


def with_errors(*values, method="hnn", data="boston"):
    (line, *_) = of(stored()[0], method="hnn", data="boston")
    return [{**line, "method": method, "data": data, "trial": trial, "rmse": v} for trial, v in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "cell"),
    [
        ((4.7, 4.9), "4.80 (0.12) [2]"),  # above the paper's 4.762, but by less than the error
        ((4.9, 5.1), "5.00 (0.12) [2] worse"),
        ((4.0, 4.2), "4.10 (0.12) [2]"),
        ((9.9,), "9.900 [1]"),  # one trial is not judged
    ],
)
def test_worse_means_above_the_papers_number_by_more_than_the_error(values, cell, tmp_path):
    path, *_ = table1.write(with_errors(*values), tmp_path)
    rows = path.read_text().splitlines()
    ours = rows[next(k for k, row in enumerate(rows) if row.startswith("| HNN")) + 1]
    assert [part.strip() for part in ours.strip("|").split("|")][6] == cell


def test_the_fairness_line_counts_what_could_be_judged(tmp_path):
    lines = [*with_errors(4.9, 5.1), *with_errors(0.1, 0.2, data="crime"), *with_errors(9.9, method="bnn")]
    path, *_ = table1.write(lines, tmp_path)
    assert "in 1 of 2 comparisons: HNN on boston." in path.read_text()


def test_ours_as_published_and_by_default_stand_below_the_papers_number(tmp_path):
    path, *_ = table1.write(*_of_folder(stored(), tmp_path))
    rows = path.read_text().splitlines()
    start = next(k for k, row in enumerate(rows) if row.startswith("| Sigma Fit"))
    whose = [row.split("|")[2].strip() for row in rows[start : start + 3]]
    assert whose == ["paper", "ours, as published", "ours, by default"]


def test_extras_and_peers_have_rows_of_their_own(tmp_path):
    path, *_ = table1.write(*_of_folder(stored(), tmp_path))
    assert cells(path, ["Deep Ensemble", "extra"])
    assert cells(path, ["NGBoost", "peer"])


def test_without_more_than_five_trials_there_is_one_table(tmp_path):
    lines = [line for line in stored()[0] if line["trial"] < 5]
    path, *_ = table1.write(lines, tmp_path)
    heads = [row for row in path.read_text().splitlines() if row.startswith("## ")]
    assert heads == ["## First 5 trials"]


def test_the_csv_has_the_mean_of_the_first_trials_and_the_papers_number(tmp_path):
    lines, _ = stored()
    _, path, *_ = table1.write(lines, tmp_path)
    with path.open(newline="") as file:
        rows = {(r["method"], r["data"], r["of_trials"]): r for r in csv.DictReader(file)}
    row = rows["mc-dropout", "boston", "5"]
    first = [line["rmse"] for line in of(lines, method="mc-dropout", data="boston") if line["trial"] < 5]
    assert float(row["mean"]) == pytest.approx(sum(first) / 5, rel=1e-6)
    assert (row["trials"], row["paper"], row["level"]) == ("5", "5.51", "0.9")
    assert rows["mc-dropout", "boston", "20"]["trials"] == "6"


def test_the_head_says_where_it_ran_how_many_trials_and_what_was_not_used(tmp_path):
    lines, peers = stored()
    late = {**lines[0], "trial": 20, "device": "another device"}
    for path in table1.write([*lines, late], tmp_path, peers):
        if path.suffix == ".md":
            text = path.read_text()
            assert "`coverwell reproduce table1`" in text
            assert "3 to 6 trials" in text
            assert "another device (coverwell 0.0, torch 0.0); made up (coverwell 0.0, torch 0.0)." in text
            assert "Lines not used: 1," in text
            assert "development data" in text


def test_results_without_the_level_are_refused_and_nothing_is_written(tmp_path):
    lines = [{**line, "levels": [0.5, 0.8, 0.99]} for line in stored()[0]]
    with pytest.raises(ValueError, match=r"results at 0\.9 are needed"):
        table1.write(lines, tmp_path)
    assert list(tmp_path.iterdir()) == []


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for name, made in zip(("results-small.jsonl", "peers-small.jsonl"), made_up(), strict=True):
        (DATA / name).write_text("".join(json.dumps(line) + "\n" for line in made), encoding="utf-8")
    table1.write(*_of_folder(stored(), DATA))
