"""What commands say when something is wrong: one line, an exit code, no traceback."""

import errno
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from coverwell.commands.messages import BadInput, check_output, clear_messages
from coverwell.datasets import DatasetNotFoundError
from coverwell.scaling import ExtrapolationWarning


def told(action):
    """The result of a command that does this."""

    @click.command()
    def command():
        with clear_messages():
            action()

    return CliRunner().invoke(command)


def raising(error):
    def action():
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("two\n\nlines  of text"), 2, "Error: two lines of text"),
        (BadInput("no such thing"), 2, "Error: no such thing"),
        (ImportError("install it"), 1, "Error: install it"),
        (DatasetNotFoundError("nowhere"), 1, "Error: nowhere"),
        (MemoryError(), 1, "Error: there is not enough memory for this; take fewer rows, or a larger machine"),
        (
            OSError(errno.ENOSPC, "No space left on device", "out.csv"),
            1,
            "Error: No space left on device (out.csv); nothing was written: make room, or choose another place",
        ),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(error, code, line):
    result = told(raising(error))
    assert (result.exit_code, result.stderr, result.stdout) == (code, f"{line}\n", "")


def test_ctrl_c_ends_without_a_traceback():
    result = told(raising(KeyboardInterrupt()))
    assert (result.exit_code, result.stderr) == (130, "\nStopped. Nothing was written.\n")


def test_an_error_that_nobody_thought_of_keeps_its_traceback():
    assert isinstance(told(raising(ZeroDivisionError())).exception, ZeroDivisionError)


def test_warnings_are_lines_each_text_once_and_the_last_of_many_are_counted():
    def action():
        for number in range(7):
            warnings.warn(f"{number} rows\nlie outside", ExtrapolationWarning, stacklevel=1)
        warnings.warn("0 rows\nlie outside", ExtrapolationWarning, stacklevel=1)
        warnings.warn("for programmers", DeprecationWarning, stacklevel=1)

    lines = told(action).stderr.splitlines()
    assert lines[:4] == [f"Warning: {number} rows lie outside" for number in range(4)]
    assert lines[4:] == ["Warning: 3 more of the kind ExtrapolationWarning, for other rows."]


def test_an_output_is_checked_before_any_work(tmp_path):
    check_output(tmp_path / "new" / "deep" / "out.csv", force=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").write_text("kept")
    check_output(tmp_path / "there", force=True)
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "there", "exists; give another --out, or --force"),
        (tmp_path / "there" / "below", "is not a folder"),
    ):
        with pytest.raises(BadInput, match=message):
            check_output(path, force=False)
    with pytest.raises(BadInput, match="is the file that is read"):
        check_output(tmp_path / "there", force=True, inputs=(tmp_path / "there",))


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no folder in which nobody can write")
def test_a_folder_in_which_nothing_can_be_written_is_told_before_any_work():
    with pytest.raises(BadInput, match=r"--out /proc/new/model cannot be written \(.*: /proc\); give another --out"):
        check_output(Path("/proc/new/model"), force=False)
