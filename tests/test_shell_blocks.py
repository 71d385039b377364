"""The shell blocks of the README and of guides to the command line: they run, and print what the pages show."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "command-line.md"
SERVING = ROOT / "docs" / "serving.md"
SHARED_DATA = ROOT.parent / "shared" / "data"
BRIEF = "--max-rounds 1 --folds 2"  # in place of the default settings, which take most of a minute
BLOCK = re.compile(r"^```sh\n(?P<commands>.*?)^```\n(?:```text\n(?P<shown>.*?)^```)?", re.MULTILINE | re.DOTALL)
ANY_LINES = "..."
# What the machine, or the settings of a shorter fit, may change: numbers with a decimal point, rounds, sizes, and which
# slices are the worst.
CHANGEABLE = {
    r"of [\d,]+ slices of out-of-fold rows, .*": "(the worst slice of the fit)",
    r"^  \S.*: coverage [\d.]+ .* rows inside; .*": "  (a slice)",
    r"^(\w+) +0\.\d+ .* to .*": r"\1 (its measures)",
    r"\bmean width [\d.,]+": "mean width #",  # 366.0 is printed as 366
    r"\d[\d,]*\.\d[\w.+]*": "#",
    r"\b\d+ rounds?\b": "# rounds",
    r"\(\d[\d,]* bytes\)": "(# bytes)",
    r"^looks at: .*": "looks at: (columns)",
    r"\b\d+ networks, [\d,]+ weights": "# networks, # weights",
    r"\s+": " ",
}


@pytest.fixture
def folder(tmp_path):
    """A folder with the example files, and a command `coverwell` of this interpreter beside it."""
    for path in (ROOT / "examples").glob("*.csv"):
        shutil.copy(path, tmp_path)
    (tmp_path / "bin").mkdir()
    yield tmp_path
    for left in tmp_path.glob("*.pid"):  # of a page that did not come to its end
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(left.read_text()), signal.SIGTERM)


def command(folder, brief):
    """Put `coverwell` on the path: this interpreter's, with fits of the default settings made short if asked."""
    shorter = f'if [ "$1" = fit ] && [[ "$*" != *--max-rounds* ]]; then set -- "$@" {BRIEF}; fi\n' if brief else ""
    script = folder / "bin" / "coverwell"
    script.write_text(f'#!/bin/bash\n{shorter}exec "{sys.executable}" -m coverwell "$@"\n')
    script.chmod(0o755)
    (folder / "bin" / "python").symlink_to(sys.executable)


def run(commands, folder):
    """What a block prints, errors and warnings among it."""
    data = {"COVERWELL_DATA": str(SHARED_DATA)} if SHARED_DATA.is_dir() else {}
    environment = {
        **os.environ,
        **data,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}"
    return done.stdout


def lasting(line):
    """What must be the same on every machine."""
    for pattern, stands_for in CHANGEABLE.items():
        line = re.sub(pattern, stands_for, line)
    return line.strip()


def assert_shown(shown, printed):
    """Lines in their order; a line of three dots stands for any number of lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == ANY_LINES else re.escape(lasting(line)) + r"\n" for line in shown.splitlines()
    )
    got = "".join(lasting(line) + "\n" for line in printed.splitlines())
    assert re.fullmatch(pattern, got), f"the page shows\n{shown}\nbut this was printed:\n{printed}"


def run_page(page, folder, *, brief):
    command(folder, brief)
    outputs = []
    for block in BLOCK.finditer(page.read_text()):
        outputs.append((block["shown"], run(block["commands"], folder)))
        if block["shown"] is not None:
            assert_shown(*outputs[-1])
    return outputs


@pytest.mark.parametrize("page", [README, GUIDE, SERVING], ids=lambda page: page.name)
def test_shell_blocks_run_and_print_what_the_page_shows(page, folder):
    outputs = run_page(page, folder, brief=True)
    assert any(shown for shown, _ in outputs)  # there was something to compare
    assert not list(folder.glob("*.tmp*"))


@pytest.mark.slow
def test_the_numbers_of_the_readme_are_those_of_the_default_settings(folder):
    outputs = run_page(README, folder, brief=False)
    shown, printed = next((shown, printed) for shown, printed in outputs if "interval score" in printed)
    row = re.compile(r"^rent\s+0\.9\s+(?P<rmse>[\d.]+)\s+(?P<coverage>[\d.]+)", re.MULTILINE)
    there, here = row.search(shown), row.search(printed)
    assert float(here["rmse"]) == pytest.approx(float(there["rmse"]), rel=0.1)  # other machines round differently
    assert float(here["coverage"]) == pytest.approx(float(there["coverage"]), abs=0.05)


def test_the_guide_shows_every_command():
    commands = [line for block in BLOCK.finditer(GUIDE.read_text()) for line in block["commands"].splitlines()]
    for name in ("fit", "predict", "evaluate", "watch", "info", "plot intervals", "plot slices"):
        assert any(line.startswith(f"coverwell {name} ") or line == f"coverwell {name}" for line in commands), name


def test_a_line_that_differs_in_more_than_its_numbers_is_noticed():
    shown = "fitted on 500 rows: 10 rounds in 54.0 s\n...\nwrote model.safetensors\n"
    assert_shown(shown, "fitted on 500 rows: 1 rounds in 3.9 s\ncolumns:\n  a: numbers\nwrote model.safetensors\n")
    with pytest.raises(AssertionError, match="the page shows"):
        assert_shown(shown, "fitted on 501 rows: 1 rounds in 3.9 s\nwrote model.safetensors\n")
    with pytest.raises(AssertionError, match="the page shows"):
        assert_shown(shown, "fitted on 500 rows: 1 rounds in 3.9 s\nwrote other.safetensors\n")


def test_the_example_files_are_what_their_script_makes(folder):
    stored = {path.name: path.read_bytes() for path in folder.glob("*.csv")}
    shutil.copy(ROOT / "examples" / "make_flats.py", folder)
    subprocess.run([sys.executable, "make_flats.py"], cwd=folder, check=True)
    assert {path.name: path.read_bytes() for path in folder.glob("*.csv")} == stored
    assert sorted(stored) == ["flats.csv", "flats_new.csv"]
    assert sum(map(len, stored.values())) < 100_000
