"""1,000 damaged model files: each predicts as if nothing had happened or is refused in our own words."""

import json
from contextlib import suppress

import numpy as np
import polars as pl
import pytest

import coverwell
from coverwell import MLP, MatchedRegressor, Schedule
from coverwell.errors import ModelFileError
from coverwell.model_file import load_predictor, read_tensors, write_tensors

N_DAMAGED = 1000


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return pl.DataFrame({"a": rng.normal(size=40), "city": rng.choice(["Rome", "Oslo"], 40), "y": rng.normal(size=40)})


@pytest.fixture(scope="module")
def content(rows, tmp_path_factory):
    """The bytes of a small model that reads a column of text."""
    small = MatchedRegressor(
        0.8,
        network=MLP(hidden=4, layers=2, bins=2),
        folds=2,
        repeats=1,
        schedule=Schedule(max_rounds=1),
        random_state=0,
    )
    path = tmp_path_factory.mktemp("whole") / "model.safetensors"
    coverwell.save(small.fit(rows.select("a", "city"), rows["y"]), path)
    return path.read_bytes()


def damaged(content, rng):
    """Bits flipped, bytes gone, doubled, overwritten or exchanged, or the end missing; half of it in the header."""
    changed = bytearray(content)
    size = len(content) if rng.random() < 0.5 else 8 + int.from_bytes(content[:8], "little")
    start, other = sorted(int(place) for place in rng.integers(size, size=2))
    stop = start + int(rng.integers(1, 100))
    match rng.integers(6):
        case 0:
            for place in rng.integers(size, size=rng.integers(1, 4)):
                changed[place] ^= 1 << int(rng.integers(8))
        case 1:
            del changed[start:stop]
        case 2:
            changed[start:start] = changed[start:stop]
        case 3:
            changed[start:stop] = rng.bytes(len(changed[start:stop]))
        case 4:
            changed[start], changed[other] = changed[other], changed[start]
        case 5:
            del changed[start:]
    return bytes(changed)


def test_each_of_1000_damaged_files_predicts_the_same_or_is_refused(content, rows, tmp_path):
    path, rng, refusals = tmp_path / "model.safetensors", np.random.default_rng(7), []
    path.write_bytes(content)
    expected = coverwell.load(path).predict_interval(rows).upper
    for _ in range(N_DAMAGED):
        path.write_bytes(damaged(content, rng))
        try:
            model = coverwell.load(path)
        except ModelFileError as error:
            refusals.append(str(error))
        else:
            np.testing.assert_array_equal(model.predict_interval(rows).upper, expected)
    assert len(refusals) > 0.95 * N_DAMAGED
    assert all(str(path) in refusal for refusal in refusals)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]  # no code was run that left a trace


def changed_somewhere(entry, rng):
    """JSON with one value anywhere put out of order: another type, another number, gone, or doubled."""
    places = []

    def look(value, path):
        places.append(path)
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            look(value[key], (*path, key))

    look(entry, ())
    *way, last = places[1 + int(rng.integers(len(places) - 1))]
    holder = entry
    for key in way:
        holder = holder[key]
    odd = (
        None,
        -1,
        0,
        2**70,
        1e308,
        float("nan"),
        "",
        "os.system",
        [],
        {},
        True,
        [[]],
        {"class": "MLP"},
        {"array": "x"},
    )
    if rng.random() < 0.2:
        del holder[last]
    else:
        holder[last] = odd[int(rng.integers(len(odd)))]


def test_a_header_that_was_changed_with_its_checksum_is_loaded_or_refused_and_never_a_crash(content, rows, tmp_path):
    """Someone who writes the checksum anew can change a model, but not make `load` fail in another way than its own."""
    whole, path, rng = tmp_path / "whole", tmp_path / "model.safetensors", np.random.default_rng(8)
    whole.write_bytes(content)
    n_refused, x = 0, rows.select("a", "city")
    for _ in range(300):
        header, arrays = read_tensors(whole)
        changed_somewhere(header["model"], rng)
        write_tensors(path, json.loads(json.dumps(header)), arrays)
        try:
            model = coverwell.load(path)
        except ModelFileError:
            n_refused += 1
            with suppress(ModelFileError):  # it needs less of the file
                load_predictor(path)
            continue
        load_predictor(path)
        with suppress(ValueError):  # what the model then says about its parameters or about our columns
            model.predict_interval(x)
    assert 100 < n_refused < 300


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("learned", "predictor_", "correction", "factor"), None),
        (("learned", "predictor_", "correction", "scores"), 1),
        (("learned", "predictor_", "correction"), {"class": "MLP"}),
        (("learned", "predictor_", "teams", 0, "mirroring"), {"class": "MLP"}),
        (("learned", "predictor_", "teams", 0, "mirroring"), "boxes"),
        (("learned", "predictor_", "teams", 0, "inputs", "centre"), None),
        (("learned", "target_names_", "tuple", 0), []),
        (("parameters", "device"), 0),
    ],
)
def test_parts_that_a_prediction_needs_are_checked_when_the_model_is_loaded(content, tmp_path, place, value):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    header, arrays = read_tensors(path)
    holder = header["model"]
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    write_tensors(path, header, arrays)
    with pytest.raises(ModelFileError, match="is whole, but no model can be made of it here"):
        coverwell.load(path)


def test_a_command_refuses_a_damaged_model_in_one_line(refused, content, rows, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(content[:-3])
    rows.write_csv(tmp_path / "rows.csv")
    for command in (("predict", "--out", tmp_path / "out.csv"), ("evaluate",)):
        name, *options = command
        message = refused(name, tmp_path / "model.safetensors", tmp_path / "rows.csv", *options)
        assert "is damaged or not a model file" in message
    assert not (tmp_path / "out.csv").exists()
