"""Pictures in folders and zip files, read one at a time by Pillow, which comes with the extra ``images``."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.datasets.store import DatasetChecksumError, check, sha256_of
from coverwell.errors import ImageError, LargeImageWarning
from coverwell.inputs.images import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]  # (height, width, channel), RGB
Rows = NDArray[np.int64] | NDArray[np.bool_]

# Pictures fail alike wherever they are read; this is the error's name among the data.
ImageFileError = ImageError


@contextmanager
def naming(image: str, through: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn what is raised about a missing or broken image into an `ImageError` that begins with its name.

    What is no fault of the image comes through as it is: Pillow that is not installed, memory that does not suffice,
    and the errors in `through`.
    """
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except through:
        raise
    except ImageError as error:
        raise ImageError(f"{image} cannot be read: {error}") from error
    except Exception as error:  # decoders raise nearly anything about a broken file
        reason = f"{type(error).__name__}: {error}"
        raise ImageError(f"{image} cannot be read: {reason}; replace it or leave it out") from error


@contextmanager
def opened(source: str | os.PathLike[str] | io.BytesIO, name: str) -> Iterator[Image]:
    """The image in a file, opened by Pillow and not yet decoded; `name` is what a warning calls it."""
    images = pillow()
    try:
        with images.open(source) as image:
            _warn_if_large(image, images.MAX_IMAGE_PIXELS, name)
            yield image
    except (images.DecompressionBombError, images.DecompressionBombWarning) as error:
        raise ImageError(
            f"it is larger than Pillow takes for safe ({error}); shrink it first, or if you trust it, set "
            "PIL.Image.MAX_IMAGE_PIXELS higher"
        ) from error


def _warn_if_large(image: Image, limit: int | None, name: str) -> None:
    # Pillow warns too, but names no file. Its warning stays: filters of warnings are not to be changed in a thread.
    n_pixels = image.width * image.height
    if limit is not None and n_pixels > limit:
        warnings.warn(
            f"{name} has {n_pixels:,} pixels, more than the {limit:,} that Pillow takes for safe; it is read all the "
            "same. If you trust it, set PIL.Image.MAX_IMAGE_PIXELS higher",
            LargeImageWarning,
            stacklevel=2,
        )


def rgb_pixels(image: Image) -> Pixels:
    """All pixels of an image of eight bits per channel, (height, width, channel): RGB, opaque."""
    if image.mode.startswith("I") or image.mode == "F":
        raise ImageError(f"it must have 8 bits per channel, Pillow's mode here is {image.mode}; convert it first")
    if image.has_transparency_data:
        pixels = np.asarray(image.convert("RGBA")) / np.float32(255)
        on_white = pixels[..., :3] * pixels[..., 3:] + (1 - pixels[..., 3:])
        return (255 * on_white).round().astype(np.uint8)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


@dataclass(frozen=True)
class ImageFile:
    """Where one picture lies: a file, or an entry of a zip file."""

    path: Path
    entry: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.entry is None else f"{self.path}/{self.entry}"


class ImageFiles(torch.utils.data.Dataset[Pixels]):
    """Pictures that are read when asked for, and never held.

    ``images[i]`` is one picture as an RGB array; ``images[2:5]`` and ``images.take(rows)`` are fewer pictures, still
    unread. Grey, palette and CMYK pictures become RGB, transparent parts become white, of a moving picture the first
    frame is read. Pixels come as they are stored: a turn noted in the EXIF data is not carried out, as a box refers to
    the stored pixels. Threads and processes may share it: each thread of each process opens zip files of its own, and
    what is pickled are the paths.

    Parameters
    ----------
    files : iterable of ImageFile
        Where the pictures lie.
    sha256 : mapping from Path to str
        Of zip files. A zip file named here is checked before its first picture is read, once per process (less than
        a second for the 91 MB of the reduced CUB).

    Raises
    ------
    ImageFileError
        On reading: if a picture is missing, broken, larger than twice what Pillow takes for safe, or has more than 8
        bits per channel.
    DatasetChecksumError
        On reading: if a zip file has another sha256.
    """

    def __init__(self, files: Iterable[ImageFile], *, sha256: Mapping[Path, str] | None = None) -> None:
        self.files = tuple(files)
        self.sha256 = dict(sha256 or {})
        self._of_thread = threading.local()

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, at: SupportsIndex) -> Pixels: ...
    @overload
    def __getitem__(self, at: slice) -> ImageFiles: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Pixels | ImageFiles:
        if isinstance(at, slice):
            return ImageFiles(self.files[at], sha256=self.sha256)
        file = self.files[at]
        with self._opened(file) as image:
            return rgb_pixels(image)

    def __iter__(self) -> Iterator[Pixels]:
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} pictures)"

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "sha256": self.sha256}  # open files stay behind

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _of_thread=threading.local())

    @property
    def key(self) -> str:
        """A text that tells which pictures these are; no picture is read for it.

        Entries of a zip file with a known sha256 count by that and their names, wherever the file lies; all others by
        path, length and time of change.
        """
        tokens: dict[Path, str] = {}
        digest = hashlib.sha256()
        for file in self.files:
            if file.path not in tokens:
                with naming(str(file)):
                    tokens[file.path] = self.sha256.get(file.path) or _token(file.path)
            digest.update(f"{tokens[file.path]} {file.entry}\n".encode())
        return digest.hexdigest()

    def take(self, rows: Rows) -> ImageFiles:
        """The pictures at these positions, or where a mask is true."""
        positions = np.arange(len(self))[rows]
        return ImageFiles([self.files[at] for at in positions], sha256=self.sha256)

    def size(self, at: SupportsIndex) -> tuple[int, int]:
        """Width and height of one picture, from its header."""
        with self._opened(self.files[at]) as image:
            return image.size

    @contextmanager
    def _opened(self, file: ImageFile) -> Iterator[Image]:
        """The picture, not yet decoded; what goes wrong while it is used names the file."""
        with naming(str(file), through=(DatasetChecksumError,)), opened(self._source(file), str(file)) as image:
            yield image

    def _source(self, file: ImageFile) -> Path | io.BytesIO:
        """What Pillow opens."""
        if file.entry is None:
            return file.path
        archive = self._zip(file.path)
        if file.entry not in archive.NameToInfo:
            raise ImageError(f"{file.path} has no entry {file.entry}")
        return io.BytesIO(archive.read(file.entry))

    def _zip(self, path: Path) -> zipfile.ZipFile:
        mine = self._of_thread
        if getattr(mine, "process", None) != os.getpid():  # after a fork, parent and child would move one position
            mine.process, mine.zips = os.getpid(), {}
        if path not in mine.zips:
            if path in self.sha256:
                _check_zip(path, self.sha256[path], path.stat().st_mtime_ns)
            mine.zips[path] = zipfile.ZipFile(path)
        found: zipfile.ZipFile = mine.zips[path]
        return found


def _token(path: Path) -> str:
    about = path.stat()
    return f"{path.resolve()} {about.st_size} {about.st_mtime_ns}"


@cache
def _check_zip(path: Path, expected: str, changed: int) -> None:
    """Raise if the file has another sha256; once per process, and again when it has `changed` (time of its change)."""
    check(sha256_of(path), expected, path)
