"""Torchvision's public ResNet-18: a file of weights, found or downloaded."""

from __future__ import annotations

import hashlib
import os
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from coverwell.files import new_file

NAME = "resnet18-f37072fd.pth"
SHA256 = "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec"
ADDRESS = f"https://download.pytorch.org/models/{NAME}"
TIMEOUT = 60.0  # seconds of silence after which the address counts as unreachable
CHUNK = 1 << 20  # bytes


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
