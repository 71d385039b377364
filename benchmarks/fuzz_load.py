"""Files of models that were damaged, or changed and signed again, are loaded and used."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_models import Step, files_in, loaded_and_used

from coverwell.model_file import TYPES, read_tensors, write_tensors

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]
Place = tuple[Any, ...]

ODD = (
    None, -1, 0, 1, 2, 3.5, 1000, 2**31, 2**70, 1e308, 1e-300, float("nan"), float("inf"), True, False,
    "", "y", "os.system", "auto", "hour", "0", [], [[]], [0], ["a"], {}, {"tuple": []}, {"tuple": [0.5]},
    {"tuple": ["a", "b"]}, {"strings": ["a"]}, {"texts": ["a"]}, {"array": "x"}, {"class": "MLP"},
    {"class": "MLP", "layers": 10**7}, {"class": "LSTM", "steps": 10**8, "channels": 1}, {"own": "network"},
    {"class": "Exponential"}, {"class": "Scaling", "shape": [3]}, {"class": "Unmatched"}, {"class": "IQRFit"},
)  # fmt: skip
SHARE_DAMAGED = 0.05  # of the files: bytes, not signed again


def prepared(folder: Path) -> Callable[[np.random.Generator], Iterator[Step]]:
    paths = files_in(folder)
    small = [name for name in paths if name != "photographs"]  # which is large: one file in a hundred
    contents = {name: read_tensors(path) for name, path in paths.items()}

    def case(rng: np.random.Generator) -> Iterator[Step]:
        name = "photographs" if rng.random() < 0.01 else small[rng.integers(len(small))]
        forged = folder / "forged.safetensors"
        if rng.random() < SHARE_DAMAGED:
            forged.write_bytes(damaged(paths[name].read_bytes(), rng))
        else:
            header, arrays = contents[name]
            write_tensors(forged, *changed(header, arrays, rng))
        for step, call in loaded_and_used(name, forged, folder):
            yield f"{name}: {step}", call

    return case


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """A bit flipped, bytes gone, doubled or overwritten, or the end missing; half of it in the header."""
    size = len(content) if rng.random() < 0.5 else 8 + int.from_bytes(content[:8], "little")
    start = int(rng.integers(size))
    stop = min(len(content), start + int(rng.integers(1, 100)))
    flipped = bytes([content[start] ^ 1 << int(rng.integers(8))]) + content[start + 1 : stop]
    changes = [flipped, b"", 2 * content[start:stop], rng.bytes(stop - start)]
    kind = rng.integers(5)
    return content[:start] if kind == 4 else content[:start] + changes[kind] + content[stop:]


def changed(header: Header, arrays: Arrays, rng: np.random.Generator) -> tuple[Header, Arrays]:
    """A place of the header, or the shape, type or values of a tensor, put out of order; sometimes two."""
    model, arrays = copy.deepcopy(header["model"]), dict(arrays)
    for _ in range(1 + int(rng.random() < 0.2)):
        if rng.random() < 0.75:
            change_header(model, list(arrays), rng)
        else:
            change_array(arrays, rng)
    return {**header, "model": model}, arrays


def change_header(model: Header, names: list[str], rng: np.random.Generator) -> None:
    places = list(places_of(model))[1:]
    if not places:
        return
    kind = rng.integers(10)
    if kind > 6:  # numbers, which more often leave a file that can be used
        kind, places = 5, [place for place in places if isinstance(value_at(model, place), int | float)] or places
    # One level of nesting after the other, or lists of rounds would have most of the changes.
    depth = rng.choice(sorted({len(place) for place in places}))
    chosen = [place for place in places if len(place) == depth]
    *way, last = chosen[rng.integers(len(chosen))]
    holder = value_at(model, tuple(way))
    if kind == 0:
        del holder[last]
    elif kind == 1:  # what stands elsewhere in the same file
        holder[last] = copy.deepcopy(value_at(model, places[rng.integers(len(places))]))
    elif kind == 2:
        holder[last] = {"array": names[rng.integers(len(names))]}
    elif kind == 3 and isinstance(holder, dict):
        holder[str(rng.choice(["more", "class", "array", "tuple", "shape", "groups"]))] = holder.pop(last)
    elif kind == 4 and isinstance(holder[last], list):
        holder[last] = holder[last][:-1] if rng.random() < 0.5 else 2 * holder[last]
    elif kind == 5 and isinstance(holder[last], int | float):
        number = holder[last]
        holder[last] = [number + 1, -number, 1000 * number, str(number), number / 2, bool(number)][rng.integers(6)]
    else:
        holder[last] = copy.deepcopy(ODD[rng.integers(len(ODD))])


def places_of(entry: Any, place: Place = ()) -> Iterator[Place]:
    yield place
    for key in list(entry) if isinstance(entry, dict) else range(len(entry)) if isinstance(entry, list) else ():
        yield from places_of(entry[key], (*place, key))


def value_at(entry: Any, place: Place) -> Any:
    for key in place:
        entry = entry[key]
    return entry


def change_array(arrays: Arrays, rng: np.random.Generator) -> None:
    """What the header of the tensors says of one of them, its values, or whether it is there."""
    if not arrays:
        return
    name = sorted(arrays)[rng.integers(len(arrays))]
    array = arrays[name]
    match rng.integers(7):
        case 0:
            del arrays[name]
        case 1:
            arrays[name] = array.reshape(-1)
        case 2:
            arrays[name] = array[..., :-1] if array.ndim else array[None]
        case 3:
            arrays[name] = array[None]
        case 4:
            arrays[name] = array.astype(TYPES[rng.integers(len(TYPES))])
        case 5:
            arrays[name] = array[:0] if array.ndim else array
        case _:
            odd = np.array([0, 1, -1, 1e6, np.nan, np.inf, -np.inf, 1e300])
            with np.errstate(all="ignore"):
                arrays[name] = rng.choice(odd, array.shape).astype(array.dtype)
