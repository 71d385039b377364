"""Where data files come from.

A file is looked for, in order, in the folder named by the environment variable ``COVERWELL_DATA``, in the user's cache,
in an installed package that carries a copy, and at its public address. Whatever is found is checked by sha256 first.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import tomllib
import warnings
import zlib
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from coverwell.files import new_file

Entry = Mapping[str, Any]  # of the catalogue

CATALOGUE: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text())
TIMEOUT = 60.0  # seconds of silence after which an address counts as unreachable


class ChecksumError(ValueError):
    """A data file was found, but its content is not the published one."""


class PackagedDataWarning(UserWarning):
    """An installed package carries other data than expected, so the search went on."""


def known_name(name: str, known: Iterable[str]) -> str:
    """The name as it is known; case does not matter, and underscores or hyphens may stand for spaces."""
    spelled, names = name.strip().lower().replace("_", " ").replace("-", " "), tuple(known)
    if spelled not in names:
        raise ValueError(f"name must be one of {', '.join(names)}; got {name!r}")
    return spelled


def cache_folder() -> Path:
    """The folder downloads go to: ``$XDG_CACHE_HOME/coverwell``, by default ``~/.cache/coverwell``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coverwell"


def folders() -> tuple[Path, ...]:
    """The folders that are searched, in order: ``COVERWELL_DATA`` where it is set, then the cache."""
    asked = os.environ.get("COVERWELL_DATA")
    return (Path(asked).expanduser(), cache_folder()) if asked else (cache_folder(),)


def sha256_of(path: Path) -> str:
    """Sha256 of a file, which is never in memory as a whole."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(found: str, expected: str, where: Path | str, way_out: str = "Delete or replace it") -> None:
    """Raise a `ChecksumError` if a sha256 is not the published one."""
    if found != expected:
        raise ChecksumError(
            f"{where} is not the published file: its sha256 is {found}, expected {expected}. {way_out}."
        )


def read(entry: Entry, folder: str) -> tuple[bytes, Mapping[str, str]]:
    """The uncompressed, checked content of a file, downloaded if need be, and the layout of a package's copy.

    `folder` is its place in a data folder, if it does not lie there directly.
    """
    name = entry["file"]
    places = [place for base in folders() for place in (base, base / folder)]
    try:
        for path in [place / file for place in places for file in (name, f"{name}.gz")]:
            if path.is_file():
                return _checked(path, entry["sha256"]), {}
        packaged = _packaged(entry)
        return (_downloaded(entry, folder, places), {}) if packaged is None else packaged
    except (ChecksumError, FileNotFoundError) as error:
        if "by_hand" not in entry:
            raise
        raise type(error)(f"{error} How to get {name}: {entry['by_hand'].strip()}") from error


def _checked(path: Path, sha256: str, way_out: str = "Delete or replace it") -> bytes:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ChecksumError(f"{path} is not a whole gzip file ({error}); delete or replace it") from error
    check(hashlib.sha256(content).hexdigest(), sha256, path, way_out)
    return content


def _packaged(entry: Entry) -> tuple[bytes, Mapping[str, str]] | None:
    copy = entry.get("copy", {})
    spec = importlib.util.find_spec(copy["package"]) if copy else None  # finds without importing
    for root in (spec and spec.submodule_search_locations) or ():
        path = Path(root) / copy["path"]
        if path.is_file():
            try:
                return _checked(path, copy["sha256"], "Another version of the package may have it"), copy
            except ChecksumError as error:
                message = f"the copy of {entry['file']} in the package {copy['package']} is not used: {error}"
                warnings.warn(message, PackagedDataWarning, stacklevel=3)
    return None


def _downloaded(entry: Entry, folder: str, searched: list[Path]) -> bytes:
    """The file from its address, kept in the cache: complete and checked, or not there at all."""
    try:
        with urlopen(entry["address"], timeout=TIMEOUT) as response:
            content: bytes = response.read()  # raises if it is shorter than announced
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the open connection
        install = "install the extra coverwell[data], or " if "copy" in entry else ""
        raise FileNotFoundError(
            f"{entry['file']} was not found. Folders: {', '.join(map(str, searched))}. Packages: "
            f"{entry['copy']['package'] if 'copy' in entry else 'none carries it'}. Address: {entry['address']} "
            f"({error!r}). To go on, {install}put the file, plain or .gz, into one of these folders or into one that "
            "the environment variable COVERWELL_DATA names."
        ) from error
    way_out = "Nothing was kept; get the file elsewhere"
    check(hashlib.sha256(content).hexdigest(), entry["sha256"], entry["address"], way_out)
    with new_file(cache_folder() / folder / entry["file"]) as out:
        out.write(content)
    return content
