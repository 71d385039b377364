"""A new file gets its name when it is whole, and a tensor file knows its own content."""

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save as safetensors_bytes

from coverwell.files import ModelFileError, new_file, read_tensors, write_tensors


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


ARRAYS = {
    "weights": np.arange(6.0).reshape(2, 3).T,  # not contiguous
    "short": np.array([1.5, np.nan], dtype=np.float32),
    "empty": np.zeros((0, 2)),
    "count": np.array(3),
    "flags": np.array([True, False]),
}


def test_header_and_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", {"name": "é", "numbers": [0.1, 1, None]}, ARRAYS)
    header, arrays = read_tensors(tmp_path / "file")
    assert (header["name"], header["numbers"]) == ("é", [0.1, 1, None])
    assert set(header["versions"]) == {"coverwell", "torch", "numpy", "scikit-learn"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_the_order_of_entries_does_not_change_a_byte(tmp_path: Path) -> None:
    write_tensors(tmp_path / "one", {"a": 1, "b": {"c": 2, "d": 3}}, ARRAYS)
    write_tensors(tmp_path / "other", {"b": {"d": 3, "c": 2}, "a": 1}, dict(reversed(ARRAYS.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_any_safetensors_reader_can_read_the_file(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", {"a": 1}, ARRAYS)
    with safe_open(tmp_path / "file", framework="numpy") as file:
        assert json.loads(file.metadata()["coverwell"])["a"] == 1
        np.testing.assert_array_equal(file.get_tensor("weights"), ARRAYS["weights"])


def test_a_safetensors_file_of_others_is_told_apart(tmp_path: Path) -> None:
    for metadata in (None, {"format": "pt"}):
        (tmp_path / "other").write_bytes(safetensors_bytes({"a": np.zeros(3)}, metadata))
        with pytest.raises(
            ModelFileError, match=r"other is a safetensors file, but not one that coverwell\.save wrote"
        ):
            read_tensors(tmp_path / "other")


def test_a_file_of_a_newer_format_names_the_versions_to_install(tmp_path: Path) -> None:
    header = {"format": 2, "versions": {"coverwell": "9.1"}, "sha256": "by other rules"}
    (tmp_path / "new").write_bytes(safetensors_bytes({}, {"coverwell": json.dumps(header)}))
    with pytest.raises(ModelFileError, match=r"new has format 2, .* reads up to 1; install .*'coverwell': '9\.1'"):
        read_tensors(tmp_path / "new")


@pytest.mark.parametrize("text", ["", "[]", "null", "1", "{}", '{"format": "1"}', "[" * 100_000, '{"format": 1}'])
def test_a_header_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd").write_bytes(safetensors_bytes({}, {"coverwell": text}))
    with pytest.raises(ModelFileError, match="odd is damaged or not a model file"):
        read_tensors(tmp_path / "odd")


@pytest.mark.parametrize("change", ["value", "name", "shape", "type", "header"])
def test_the_checksum_covers_values_names_shapes_types_and_header(tmp_path: Path, change: str) -> None:
    write_tensors(tmp_path / "file", {"a": 1}, {"x": np.arange(4.0)})
    with safe_open(tmp_path / "file", framework="numpy") as file:
        text = file.metadata()["coverwell"]
    arrays = {
        "value": {"x": np.array([0.0, 1.0, 2.0, np.nextafter(3.0, 4.0)])},
        "name": {"z": np.arange(4.0)},
        "shape": {"x": np.arange(4.0).reshape(2, 2)},
        "type": {"x": np.arange(4.0).view(np.int64)},
    }
    text = text.replace('"a":1', '"a":2') if change == "header" else text
    content = safetensors_bytes(arrays.get(change, {"x": np.arange(4.0)}), {"coverwell": text})
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ModelFileError, match="does not have the stored sha256"):
        read_tensors(tmp_path / "file")


def test_a_type_that_is_never_written_is_refused(tmp_path: Path) -> None:
    content = safetensors_bytes(
        {"x": np.zeros(2, dtype=np.float16)}, {"coverwell": '{"format":1,"sha256":"","versions":{}}'}
    )
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ModelFileError, match="'F16'"):
        read_tensors(tmp_path / "file")
