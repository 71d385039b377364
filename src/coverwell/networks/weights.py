"""Files of weights: torchvision's public ResNet-18, found or downloaded, and any file, checked name by name."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Collection
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import torch
from torch import Tensor

from coverwell.files import new_file

State = dict[str, Tensor]

NAME = "resnet18-f37072fd.pth"
SHA256 = "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec"
ADDRESS = f"https://download.pytorch.org/models/{NAME}"
TIMEOUT = 60.0  # seconds of silence after which the address counts as unreachable
CHUNK = 1 << 20  # bytes
NAMED = 12  # tensors that an error names before it only counts


def imagenet_weights() -> Path:
    """Path of torchvision's ResNet-18 trained on ImageNet (IMAGENET1K_V1), a file of 45 MB.

    It is looked for in the folder that the environment variable ``COVERWELL_DATA`` names and in the user's cache
    (``~/.cache/coverwell``), each also in the sub-folder ``weights``; otherwise it is downloaded into the cache, whole
    or not at all. Its sha256 is checked every time. torchvision's code has the licence BSD-3-Clause; the images of
    ImageNet are for non-commercial research.

    Raises
    ------
    FileNotFoundError
        If it is in no folder and cannot be downloaded; the message says where to put it by hand.
    ValueError
        If a file of that name, or the address, holds something else.

    Examples
    --------
    >>> from coverwell.networks import imagenet_weights
    >>> imagenet_weights().name  # doctest: +SKIP
    'resnet18-f37072fd.pth'
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coverwell"
    asked = os.environ.get("COVERWELL_DATA")
    bases = (Path(asked).expanduser(), cache) if asked else (cache,)
    folders = [folder for base in bases for folder in (base, base / "weights")]
    for path in (folder / NAME for folder in folders):
        if path.is_file():
            with path.open("rb") as file:
                _check(hashlib.file_digest(file, "sha256").hexdigest(), path, "Delete or replace it")
            return path
    path = cache / "weights" / NAME
    try:
        with urlopen(ADDRESS, timeout=TIMEOUT) as response, new_file(path) as out:
            digest = hashlib.sha256()
            while chunk := response.read(CHUNK):
                digest.update(chunk)
                out.write(chunk)
            announced = response.headers.get("Content-Length")
            if announced is not None and out.tell() != int(announced):
                raise URLError(f"only {out.tell()} of {announced} bytes arrived")
            _check(digest.hexdigest(), ADDRESS, "Nothing was kept; get the file elsewhere")
        return path
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the open connection
        raise FileNotFoundError(
            f"{NAME} was not found. Folders: {', '.join(map(str, folders))}. Address: {ADDRESS} ({error!r}). Put the "
            "file into one of these folders, or into one that the environment variable COVERWELL_DATA names."
        ) from error


def _check(found: str, where: Path | str, way_out: str) -> None:
    if found != SHA256:
        raise ValueError(f"{where} is not the published file: its sha256 is {found}, expected {SHA256}. {way_out}.")


def state_in(path: str | os.PathLike[str], whole: State, *, needed: Collection[str]) -> State:
    """The state dict in a file that `torch.save` wrote, with the names and shapes of a `whole` network.

    Parts that are not `needed` may be absent as a whole, and so may counts of batches. A head `fc` may have any number
    of classes. Anything else is a ValueError.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:  # torch's errors for broken files
        raise ValueError(
            f"{os.fspath(path)} must be a state dict that torch.save wrote, but it cannot be read "
            f"({type(error).__name__}); get the file again"
        ) from error
    entries = state.items() if isinstance(state, dict) else [(None, None)]
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in entries):
        raise ValueError(
            f"{os.fspath(path)} must be a state dict of names and tensors, got something else; save it with "
            "torch.save(model.state_dict(), path)"
        )
    held, known = {*needed, *map(_part_of, state)}, [name for name in state if name in whole]
    due = [name for name in whole if _part_of(name) in held and not name.endswith("num_batches_tracked")]

    def shape(values: State, name: str) -> tuple[int, ...]:
        return tuple(values[name].shape)[1 if _part_of(name) == "fc" else 0 :]

    others = [name for name in known if shape(state, name) != shape(whole, name)]
    problems = {
        "missing": [name for name in due if name not in state],
        "unknown": [name for name in state if name not in whole],
        "of another shape": [f"{n} {tuple(state[n].shape)} instead of {tuple(whole[n].shape)}" for n in others],
        "not finite": [name for name in known if not state[name].isfinite().all()],
    }
    if found := [
        f"{len(names)} {problem} ({', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''})"
        for problem, names in problems.items()
        if names
    ]:
        raise ValueError(
            f"{os.fspath(path)} must hold the weights of a ResNet-18 with torchvision's names, whole or up to layer 3, "
            f"got tensors that are {'; '.join(found)}; take the file from torchvision's resnet18, unchanged"
        )
    return dict(state)


def parts_of(state: State, parts: Collection[str]) -> State:
    """The tensors of some parts, which are the first words of their names."""
    return {name: value for name, value in state.items() if _part_of(name) in parts}


def _part_of(name: str) -> str:
    return name.split(".")[0]
