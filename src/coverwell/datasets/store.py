"""Where data files come from.

A file is looked for, in order, in the folder named by the environment variable ``COVERWELL_DATA``, in the user's cache,
in installed packages that carry a copy, and at its public address. Whatever is found is checked by sha256 before use.
"""

import gzip
import hashlib
import importlib.util
import os
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from coverwell.files import new_file

TIMEOUT = 60.0  # seconds of silence after which an address counts as unreachable
CHUNK = 1 << 20  # bytes read at a time, so that a large file never lies in memory


class DatasetNotFoundError(FileNotFoundError):
    """A data file is in no folder and no package, and its address did not give it."""


class DatasetChecksumError(ValueError):
    """A data file was found, but its content is not the published one."""


class PackagedDataWarning(UserWarning):
    """An installed package carries other data than expected, so the search went on."""


def known_name(name: str, known: Iterable[str]) -> str:
    """The name as it is known; case does not matter, and underscores or hyphens may stand for spaces."""
    spelled, names = name.strip().lower().replace("_", " ").replace("-", " "), tuple(known)
    if spelled not in names:
        raise ValueError(f"name must be one of {', '.join(names)}; got {name!r}")
    return spelled


def unchanged(content: bytes) -> bytes:
    """The content as it is."""
    return content


@dataclass(frozen=True)
class PackagedCopy:
    """A copy of a data file inside an installed package.

    Parameters
    ----------
    package : str
        Import name of the package. It is looked up, not imported.
    path : str
        Path of the copy inside the package; a name that ends in ``.gz`` is unpacked.
    sha256 : str
        Of the copy's uncompressed content.
    rewrite : callable
        From the copy's content to the layout of the original file, for copies that hold the values but not the bytes.
    """

    package: str
    path: str
    sha256: str
    rewrite: Callable[[bytes], bytes] = unchanged


@dataclass(frozen=True)
class DataFile:
    """One public data file and all the places it may come from.

    Parameters
    ----------
    name : str
        The original file name.
    folder : str
        Sub-folder of ``COVERWELL_DATA`` and of the cache in which the file may also lie.
    sha256 : str
        Of the uncompressed content.
    address : str
        The public address of the uncompressed file.
    copies : tuple of PackagedCopy
        Installed packages that may carry the file.
    """

    name: str
    folder: str
    sha256: str
    address: str
    copies: tuple[PackagedCopy, ...] = ()


def read(file: DataFile) -> bytes:
    """The uncompressed, checked content of a data file, downloaded into the cache if it is nowhere else.

    Raises
    ------
    DatasetNotFoundError
        If no folder, package or address has the file.
    DatasetChecksumError
        If a folder or the address holds different content under the file's name.
    """
    content = _from_folders(file)
    if content is None:
        content = _from_packages(file)
    if content is None:
        content = _from_address(file, "plain or .gz").read_bytes()
    return content


def located(file: DataFile) -> Path:
    """Path of the plain, checked file, downloaded into the cache if it is in no folder; packages are not searched.

    Raises
    ------
    DatasetNotFoundError
        If no folder or address has the file.
    DatasetChecksumError
        If a folder or the address holds different content under the file's name.
    """
    for path in _candidates(file):
        if path.name == file.name and path.is_file():
            check(sha256_of(path), file.sha256, path)
            return path
    return _from_address(file, "as it is")


def folders() -> tuple[Path, ...]:
    """The folders that are searched, in order: ``COVERWELL_DATA`` where it is set, then the cache."""
    asked = os.environ.get("COVERWELL_DATA")
    return (Path(asked).expanduser(), cache_folder()) if asked else (cache_folder(),)


def cache_folder() -> Path:
    """The folder downloads go to: ``$XDG_CACHE_HOME/coverwell``, by default ``~/.cache/coverwell``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coverwell"


def download(file: DataFile, into: Path) -> Path:
    """Path of the file fetched from its address into a folder: complete and checked, or not there at all."""
    with urlopen(file.address, timeout=TIMEOUT) as response, new_file(into / file.name) as out:
        digest = hashlib.sha256()
        while chunk := response.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
        announced = response.headers.get("Content-Length")
        if announced is not None and out.tell() != int(announced):
            raise URLError(f"only {out.tell()} of {announced} bytes arrived")
        check(digest.hexdigest(), file.sha256, file.address, "Nothing was kept; get the file elsewhere")
    return into / file.name


def sha256_of(path: Path) -> str:
    """Sha256 of a file, which is never in memory as a whole."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(found: str, expected: str, where: Path | str, way_out: str = "Delete or replace it") -> None:
    """Raise a `DatasetChecksumError` if a sha256 is not the published one."""
    if found != expected:
        raise DatasetChecksumError(
            f"{where} is not the published file: its sha256 is {found}, expected {expected}. {way_out}."
        )


def _from_folders(file: DataFile) -> bytes | None:
    for path in _candidates(file):
        if path.is_file():
            content = _uncompressed(path)
            check(hashlib.sha256(content).hexdigest(), file.sha256, path)
            return content
    return None


def _candidates(file: DataFile) -> Iterator[Path]:
    for folder in folders():
        for parent in (folder, folder / file.folder):
            yield parent / file.name
            yield parent / f"{file.name}.gz"


def _from_packages(file: DataFile) -> bytes | None:
    for copy in file.copies:
        path = _path_in_package(copy)
        if path is None:
            continue
        try:
            content = _uncompressed(path)
            check(hashlib.sha256(content).hexdigest(), copy.sha256, path, "Another version of the package may have it")
        except DatasetChecksumError as error:
            message = f"the copy of {file.name} in the package {copy.package} is not used: {error}"
            warnings.warn(message, PackagedDataWarning, stacklevel=2)
        else:
            return copy.rewrite(content)
    return None


def _path_in_package(copy: PackagedCopy) -> Path | None:
    spec = importlib.util.find_spec(copy.package)  # finds without importing
    roots = (spec and spec.submodule_search_locations) or ()
    paths = (Path(root) / copy.path for root in roots)
    return next((path for path in paths if path.is_file()), None)


def _from_address(file: DataFile, form: str) -> Path:
    """Path of the downloaded file; `form` says in what form a user may put it into a folder instead."""
    try:
        return download(file, cache_folder() / file.folder)
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the open connection
        raise DatasetNotFoundError(_not_found(file, error, form)) from error


def _not_found(file: DataFile, error: Exception, form: str) -> str:
    looked_in = dict.fromkeys(str(path.parent) for path in _candidates(file))
    packages = ", ".join(copy.package for copy in file.copies) or "none carries it"
    install = "install the extra coverwell[data], or " if file.copies else ""
    return (
        f"{file.name} was not found. Folders: {', '.join(looked_in)}. Packages: {packages}. "
        f"Address: {file.address} ({error!r}). To go on, {install}put the file, {form}, into one of these "
        "folders or into one that the environment variable COVERWELL_DATA names."
    )


def _uncompressed(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetChecksumError(f"{path} is not a whole gzip file ({error}); delete or replace it") from error
