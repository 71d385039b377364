"""A new file gets its name when it is complete, and nothing is left of one that fails."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from coverwell.files import new_file

KILLED = """
import sys, time
from pathlib import Path
from coverwell.files import new_file
with new_file(Path(sys.argv[1])) as file:
    file.write(b"half of")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_the_content_is_there_when_the_block_has_ended_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "model.bin"
    with new_file(path) as file:
        file.write(b"content")
        assert not path.exists()
    assert path.read_bytes() == b"content"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("before", [b"the old content", None])
def test_a_block_that_ends_badly_leaves_neither_a_part_nor_a_damaged_file(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "model.bin"
    if before is not None:
        path.write_bytes(before)

    def interrupted() -> None:
        with new_file(path) as file:
            file.write(b"half of")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([] if before is None else [before])


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_the_file_that_it_points_to_is_written(tmp_path: Path, there: bool) -> None:
    target, link = tmp_path / "far" / "model.bin", tmp_path / "link"
    if there:
        target.parent.mkdir()
        target.write_bytes(b"before")
    link.symlink_to(target)
    with new_file(link) as file:
        file.write(b"content")
    assert link.is_symlink()
    assert target.read_bytes() == b"content"
    assert [path.name for path in target.parent.iterdir()] == ["model.bin"]


def test_links_that_point_to_one_another_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "one")
    with pytest.raises(OSError, match="one"), new_file(tmp_path / "one") as file:
        file.write(b"content")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


def test_folders_that_were_made_for_a_file_that_failed_are_gone_and_others_stay(tmp_path: Path) -> None:
    def failing(path: Path) -> None:
        with new_file(path):
            (path.parent / "of somebody else").touch()
            raise KeyboardInterrupt

    (tmp_path / "old").mkdir()
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "old" / "new" / "deep" / "model.bin"):
        raise KeyboardInterrupt
    assert list((tmp_path / "old").iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        failing(tmp_path / "kept" / "model.bin")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["of somebody else"]


def test_a_name_as_long_as_names_may_be_is_no_longer_while_it_is_written(tmp_path: Path) -> None:
    with new_file(tmp_path / ("n" * 255)) as file:
        file.write(b"content")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_in_the_way_is_an_error_that_leaves_no_part(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"), new_file(tmp_path / "taken") as file:
        file.write(b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_the_file_is_as_readable_as_any_other_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    with new_file(tmp_path / "new") as file:
        file.write(b"content")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "new")}
    assert len(modes) == 1


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_the_part_that_a_killed_process_left_goes_with_the_next_file_and_one_in_use_stays(tmp_path: Path) -> None:
    path, environment = tmp_path / "model[1].bin", {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    others = [tmp_path / name for name in ("model[1].bin.mine.part", f"model1.bin.{'0' * 16}.part")]
    for other in others:
        other.touch()
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # it was asked for
        assert process.stdout.readline() == "writing\n"
        with new_file(path) as file:
            file.write(b"first")
        assert len(list(tmp_path.iterdir())) == 4  # the part of the process is still its own
        process.send_signal(signal.SIGKILL)
    with new_file(path) as file:
        file.write(b"second")
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])
    assert path.read_bytes() == b"second"
