"""What commands say when something is wrong: one line, an exit code, no traceback."""

import errno
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from coverwell.cli.messages import BadInput, OneLineGroup, check_output
from coverwell.errors import ExtrapolationWarning, NonFiniteLossError
from coverwell.files import new_file


def result_of(action):
    """The result of a command that does this."""
    return CliRunner().invoke(OneLineGroup(commands={"do": click.Command("do", callback=action)}), ["do"])


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
        (KeyboardInterrupt(), 130, "\nStopped. Nothing was written."),
        (NonFiniteLossError("the loss is NaN"), 1, "Error: the loss is NaN"),
        (MemoryError(), 1, "Error: not enough memory for this; take fewer rows, or a larger machine"),
        (
            OSError(errno.ENOSPC, "No space left on device", "out.csv"),
            1,
            "Error: No space left on device (out.csv); nothing was written: make room, or choose another place",
        ),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(error, code, line):
    result = result_of(raising(error))
    assert (result.exit_code, result.stderr, result.stdout) == (code, f"{line}\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="there, the signal ends a process at once")
def test_the_signal_by_which_systems_end_a_process_leaves_nothing_half_written(tmp_path):
    def action():
        with new_file(tmp_path / "new" / "out"):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)

    before = signal.getsignal(signal.SIGTERM)
    result = result_of(action)
    assert (result.exit_code, result.stderr) == (143, "\nStopped. Nothing was written.\n")
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_that_nobody_thought_of_keeps_its_traceback():
    assert isinstance(result_of(raising(ZeroDivisionError())).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), None),
        (("xyz",), "Error: No such command 'xyz' (see coverwell --help)"),
        (("--fast",), "Error: No such option '--fast' (see coverwell --help)"),
        (("fit",), "Error: Missing argument 'DATA...' (see coverwell fit --help)"),
        (("info", "none"), "Error: Invalid value for 'MODEL': File 'none' does not exist (see coverwell info --help)"),
        (("plot", "pie"), "Error: No such command 'pie' (see coverwell plot --help)"),
        (("plot", "rounds"), "Error: Missing argument 'MODEL' (see coverwell plot rounds --help)"),
    ],
)
def test_wrong_arguments_are_one_line_and_no_arguments_bring_the_help(tried, arguments, line):
    result = tried(*arguments)
    assert result.exit_code == 2
    if line is None:
        assert "Usage: coverwell" in result.output
    else:
        assert result.stdout == ""
        (found,) = result.stderr.splitlines()
        assert found.replace('"', "'").replace(": --fast", " '--fast'") == line  # versions of click differ in quotes


class OldNameWarning(UserWarning, DeprecationWarning):
    """As some packages have them."""


def test_warnings_are_lines_each_text_once_and_the_last_of_many_are_counted():
    def action():
        for number in range(7):
            warnings.warn(f"{number} rows\nlie outside", ExtrapolationWarning, stacklevel=1)
        warnings.warn("0 rows\nlie outside", ExtrapolationWarning, stacklevel=1)
        warnings.warn("for programmers", DeprecationWarning, stacklevel=1)
        warnings.warn("for programmers, of a kind that is both", OldNameWarning, stacklevel=1)

    lines = result_of(action).stderr.splitlines()
    assert lines[:4] == [f"Warning: {number} rows lie outside" for number in range(4)]
    assert lines[4:] == ["Warning: 3 more of the kind ExtrapolationWarning, for other rows."]


def test_an_output_is_checked_before_any_work_and_called_what_users_call_it(tmp_path):
    check_output(tmp_path / "new" / "deep" / "out.csv", force=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").write_text("kept")
    check_output(tmp_path / "there", force=True)
    for path, message in (
        (tmp_path, "OUT must be a file, but .* is a folder"),
        (tmp_path / "there", "exists; give another OUT, or --force"),
        (tmp_path / "there" / "below", r"OUT .* is not a folder; give another OUT"),
        (tmp_path / ("n" * 300), r"OUT .* cannot be written \(File name too long.*\); give another OUT"),
    ):
        for name in ("OUT", "--out"):
            with pytest.raises(BadInput, match=message.replace("OUT", name)):
                check_output(path, force=False, name=name)
    with pytest.raises(BadInput, match=r"--out .* is the file that is read"):
        check_output(tmp_path / "there", force=True, inputs=(tmp_path / "there",))


@pytest.mark.skipif(not Path("/dev/null").is_char_device(), reason="there is no device to write to")
def test_a_device_is_no_file_to_write_to():
    with pytest.raises(BadInput, match="--out must be a file, but /dev/null is no plain file"):
        check_output(Path("/dev/null"), force=True)


def test_a_link_counts_as_what_it_points_to(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new" / "model")
    check_output(tmp_path / "link", force=False)
    (tmp_path / "file").touch()
    (tmp_path / "wrong").symlink_to(tmp_path / "file" / "model")
    with pytest.raises(BadInput, match="is not a folder"):
        check_output(tmp_path / "wrong", force=False)
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(BadInput, match=r"--out .*round cannot be written \(Too many levels of symbolic links"):
        check_output(tmp_path / "round", force=False)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no folder in which nobody can write")
def test_a_folder_in_which_nothing_can_be_written_is_refused_before_any_work():
    with pytest.raises(BadInput, match=r"--out /proc/new/model cannot be written \(.*: /proc.*\); give another --out"):
        check_output(Path("/proc/new/model"), force=False)


WRITING = {
    "fit": ("houses.csv", "--target", "price", "--folds", 2, "--max-rounds", 1, "--out", "out"),
    "predict": ("model.safetensors", "test.csv", "--out", "out.csv"),
    "report": ("model.safetensors", "test.csv", "--out", "out.html"),
    "plot intervals": ("model.safetensors", "test.csv", "--out", "out.png"),
    "plot rounds": ("model.safetensors", "--out", "out.png"),
    "export": ("model.safetensors", "out"),
}


@pytest.mark.parametrize("command", [command for command in WRITING if command != "export"])  # has a test of its own
def test_a_file_that_exists_is_replaced_by_force_alone_and_one_that_is_read_never(
    run, refused, folder, tmp_path, command
):
    *given, out = (folder / word if str(word).endswith((".csv", ".safetensors")) else word for word in WRITING[command])
    out = tmp_path / Path(out).name
    out.write_text("mine")
    message = refused(*command.split(), *given, out)
    assert message == f"{out} exists; give another --out, or --force to replace it"
    assert out.read_text() == "mine"
    run(*command.split(), *given, out, "--force")
    assert out.read_bytes() != b"mine"
    (tmp_path / "read").mkdir()
    read = tmp_path / "read" / out.name
    read.symlink_to(given[0])
    assert f"--out {read} is the file that is read" in refused(*command.split(), *given, read, "--force")


@pytest.mark.parametrize("command", [*WRITING, "info", "evaluate"])
def test_a_damaged_model_and_a_file_that_is_none_are_refused_in_one_line(refused, folder, tmp_path, command):
    if command == "fit":
        return
    data, out = folder / "test.csv", tmp_path / f"out{Path(WRITING.get(command, [''])[-1]).suffix}"
    more = [data] if command in ("predict", "report", "plot intervals", "evaluate") else []
    more += [*(["--out"] if command != "export" else []), out] if command in WRITING else []
    (tmp_path / "cut").write_bytes((folder / "model.safetensors").read_bytes()[:-3])
    for no_model in (tmp_path / "cut", data):
        assert "damaged or not a model file" in refused(*command.split(), no_model, *more)
    assert not out.exists()
