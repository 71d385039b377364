"""A tensor file knows its own content."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save as safetensors_bytes

from coverwell.errors import ModelFileError
from coverwell.tensor_files import read_tensors, write_tensors

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
