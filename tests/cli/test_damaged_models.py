"""Commands refuse a damaged model in one line and write nothing."""

import pytest


@pytest.mark.parametrize("name", ["predict", "evaluate"])
def test_a_command_refuses_a_damaged_model_in_one_line(refused, folder, tmp_path, name):
    whole, out = (folder / "model.safetensors").read_bytes(), tmp_path / "out.csv"
    (tmp_path / "model.safetensors").write_bytes(whole[:-3])
    options = ("--out", out) if name == "predict" else ()
    message = refused(name, tmp_path / "model.safetensors", folder / "test.csv", *options)
    assert "is damaged or not a model file" in message
    assert not out.exists()
