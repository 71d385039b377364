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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from coverwell.files import new_file

CATALOGUE: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text())
TIMEOUT = 60.0  # seconds of silence after which an address counts as unreachable


class ChecksumError(ValueError):
    """A data file was found, but its content is not the published one."""


class PackagedDataWarning(UserWarning):
    """An installed package carries other data than expected, so the search went on."""


@dataclass(frozen=True)
class DataFile:
    """One public file, and a copy of it in an installed package, whose layout may differ."""

    name: str
    folder: str  # of a data folder
    sha256: str  # of the uncompressed content
    address: str
    copy: Mapping[str, str] | None = None
    by_hand: str = ""  # how to get it where its address does not give it

    @classmethod
    def of(cls, about: Mapping[str, Any], folder: str) -> DataFile:
        """The file of an entry of the catalogue."""
        more = {"copy": about.get("copy"), "by_hand": about.get("by_hand", "").strip()}
        return cls(about["file"], folder, about["sha256"], about["address"], **more)


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


def read(file: DataFile) -> tuple[bytes, Mapping[str, str]]:
    """The uncompressed, checked content of a file, downloaded if need be, and the layout of a package's copy."""
    try:
        for path in _candidates(file):
            if path.is_file():
                return _checked(path, file.sha256), {}
        packaged = _packaged(file)
        return (_downloaded(file), {}) if packaged is None else packaged
    except (ChecksumError, FileNotFoundError) as error:
        if not file.by_hand:
            raise
        raise type(error)(f"{error} How to get {file.name}: {file.by_hand}") from error


def _candidates(file: DataFile) -> Iterator[Path]:
    for folder in folders():
        for parent in (folder, folder / file.folder):
            yield from (parent / file.name, parent / f"{file.name}.gz")


def _checked(path: Path, sha256: str, way_out: str = "Delete or replace it") -> bytes:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ChecksumError(f"{path} is not a whole gzip file ({error}); delete or replace it") from error
    check(hashlib.sha256(content).hexdigest(), sha256, path, way_out)
    return content


def _packaged(file: DataFile) -> tuple[bytes, Mapping[str, str]] | None:
    copy = file.copy or {}
    spec = importlib.util.find_spec(copy["package"]) if copy else None  # finds without importing
    for root in (spec and spec.submodule_search_locations) or ():
        path = Path(root) / copy["path"]
        if path.is_file():
            try:
                return _checked(path, copy["sha256"], "Another version of the package may have it"), copy
            except ChecksumError as error:
                message = f"the copy of {file.name} in the package {copy['package']} is not used: {error}"
                warnings.warn(message, PackagedDataWarning, stacklevel=3)
    return None


def _downloaded(file: DataFile) -> bytes:
    """The file from its address, kept in the cache: complete and checked, or not there at all."""
    try:
        with urlopen(file.address, timeout=TIMEOUT) as response:
            content: bytes = response.read()  # raises if it is shorter than announced
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the open connection
        raise FileNotFoundError(_not_found(file, error)) from error
    check(hashlib.sha256(content).hexdigest(), file.sha256, file.address, "Nothing was kept; get the file elsewhere")
    with new_file(cache_folder() / file.folder / file.name) as out:
        out.write(content)
    return content


def _not_found(file: DataFile, error: Exception) -> str:
    looked_in = dict.fromkeys(str(path.parent) for path in _candidates(file))
    package = file.copy["package"] if file.copy else "none carries it"
    install = "install the extra coverwell[data], or " if file.copy else ""
    return (
        f"{file.name} was not found. Folders: {', '.join(looked_in)}. Packages: {package}. "
        f"Address: {file.address} ({error!r}). To go on, {install}put the file, plain or .gz, into one of these "
        "folders or into one that the environment variable COVERWELL_DATA names."
    )
