"""Photographs with one box each, read one at a time: CUB-200-2011, the data of the paper's third experiment.

Two sources give the same boxes, sizes and split: a reduced copy (zip shards and `annotations.csv`), and the original
archive, unpacked or as the .tgz. Decoding needs Pillow, which comes with the extra ``images``.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import secrets
import shutil
import struct
import tarfile
import threading
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
import torch
from numpy.typing import NDArray

from coverwell.datasets.store import (
    CHUNK,
    DatasetChecksumError,
    DatasetNotFoundError,
    cache_folder,
    folders,
    known_name,
)
from coverwell.pictures import pillow

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]  # (height, width, channel), RGB
Boxes = NDArray[np.float64]  # (image, 4): left, top, width, height
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64] | Mask

ANNOTATIONS = "annotations.csv"
OFFICIAL = ("images.txt", "bounding_boxes.txt", "train_test_split.txt")
WIDE_MODES = ("I", "F")  # Pillow's modes of more than 8 bits a channel begin so
# What decoders and zip files raise about broken content.
UNREADABLE = (
    *(EOFError, LookupError, OSError, RuntimeError, SyntaxError, ValueError),
    *(struct.error, zipfile.BadZipFile, zlib.error),
)


class ImageFileError(OSError):
    """A picture is missing, broken, or of a kind that is not read; the message has its path."""


class BoxOutsideImageWarning(UserWarning):
    """Boxes ran past the edge of their images and were cut there."""


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
        On reading: if a picture is missing, broken, larger than Pillow reads, or has more than 8 bits per channel.
    DatasetChecksumError
        On reading: if a zip file has another sha256.
    """

    def __init__(self, files: Iterable[ImageFile], *, sha256: Mapping[Path, str] | None = None) -> None:
        self.files = tuple(files)
        self.sha256 = dict(sha256 or {})
        self._opened = threading.local()

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
        with _picture(file, self._stream(file)) as picture:
            return np.array(_as_rgb(picture), dtype=np.uint8)

    def __iter__(self) -> Iterator[Pixels]:
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} pictures)"

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "sha256": self.sha256}  # open files stay behind

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _opened=threading.local())

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
                with _named(file):
                    tokens[file.path] = self.sha256.get(file.path) or _token(file.path)
            digest.update(f"{tokens[file.path]} {file.entry}\n".encode())
        return digest.hexdigest()

    def take(self, rows: Rows) -> ImageFiles:
        """The pictures at these positions, or where a mask is true."""
        positions = np.arange(len(self))[rows]
        return ImageFiles([self.files[at] for at in positions], sha256=self.sha256)

    def size(self, at: SupportsIndex) -> tuple[int, int]:
        """Width and height of one picture, from its header."""
        file = self.files[at]
        with _picture(file, self._stream(file)) as picture:
            return picture.size

    def _stream(self, file: ImageFile) -> Path | io.BytesIO:
        """What Pillow opens."""
        if file.entry is None:
            return file.path
        with _named(file):
            opened = self._zip(file.path)
            if file.entry not in opened.NameToInfo:
                raise ImageFileError(f"{file} must be a picture, but {file.path} has no entry {file.entry}")
            return io.BytesIO(opened.read(file.entry))

    def _zip(self, path: Path) -> zipfile.ZipFile:
        opened = self._opened
        if getattr(opened, "process", None) != os.getpid():  # after a fork, parent and child would move one position
            opened.process, opened.zips = os.getpid(), {}
        if path not in opened.zips:
            if path in self.sha256:
                _check_zip(path, self.sha256[path], path.stat().st_mtime_ns)
            opened.zips[path] = zipfile.ZipFile(path)
        found: zipfile.ZipFile = opened.zips[path]
        return found


@contextmanager
def _named(file: ImageFile) -> Iterator[None]:
    """Turn what a broken or missing picture raises into an error with its path."""
    try:
        yield
    except (ImageFileError, DatasetChecksumError):
        raise
    except FileNotFoundError as error:
        raise ImageFileError(f"{file} must be a picture, but there is no file {file.path}") from error
    except UNREADABLE as error:
        raise ImageFileError(
            f"{file} must be a whole picture, but reading it failed ({type(error).__name__}: {error}); "
            "replace it or leave it out"
        ) from error


@contextmanager
def _picture(file: ImageFile, stream: Path | io.BytesIO) -> Iterator[Image.Image]:
    """The opened picture; what goes wrong while it is used names the file."""
    images = pillow()
    bombs = (images.DecompressionBombError, images.DecompressionBombWarning)
    with _named(file):
        try:
            with images.open(stream) as picture:
                yield picture
        except bombs as error:
            raise ImageFileError(f"{file} is larger than Pillow reads ({error}); shrink it first") from error


def _as_rgb(picture: Image.Image) -> Image.Image:
    images = pillow()
    if picture.mode.startswith(WIDE_MODES):
        raise ValueError(f"pictures must have 8 bits per channel, Pillow's mode here is {picture.mode}")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    paper = images.new("RGBA", picture.size, "white")
    on_paper: Image.Image = images.alpha_composite(paper, picture.convert("RGBA"))
    return on_paper.convert("RGB")


def _token(path: Path) -> str:
    about = path.stat()
    return f"{path.resolve()} {about.st_size} {about.st_mtime_ns}"


@cache
def _check_zip(path: Path, expected: str, changed: int) -> None:
    """Raise if the file has another sha256; once per process, and again when it has `changed` (time of its change)."""
    with path.open("rb") as file:
        _check(hashlib.file_digest(file, "sha256").hexdigest(), expected, path)


def _check(found: str, expected: str, path: Path) -> None:
    if found != expected:
        raise DatasetChecksumError(
            f"{path} is not the published file: its sha256 is {found}, expected {expected}. Delete or replace it."
        )


@dataclass(frozen=True, eq=False)
class BoxedImages:
    """Images with one box each.

    Parameters
    ----------
    name : str
        The name it was loaded by.
    images : ImageFiles
        The pictures, read when asked for. They may be reduced copies: boxes and sizes are those of the originals.
    boxes : ndarray of shape (n_images, 4), float64
        Left, top, width and height of the box, in pixels of the original image.
    sizes : ndarray of shape (n_images, 2), int64
        Width and height of the original image.
    image_ids : ndarray of shape (n_images,), int64
        The official number of each image; as loaded, ascending.
    train : ndarray of shape (n_images,), bool
        The official split: true for training, false for testing.
    classes : ndarray of shape (n_images,), int64
        Position in `class_names` of what is seen.
    class_names : tuple of str
        The names of all classes.
    source : str
        What to cite, and the licence.
    notes : str
        What was chosen or changed.
    """

    name: str
    images: ImageFiles
    boxes: Boxes = field(repr=False)
    sizes: NDArray[np.int64] = field(repr=False)
    image_ids: NDArray[np.int64] = field(repr=False)
    train: NDArray[np.bool_] = field(repr=False)
    classes: NDArray[np.int64] = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    source: str
    notes: str

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Rows) -> BoxedImages:
        """The images at these positions, or where a mask is true: ``cub.take(cub.train)``."""
        arrays = {name: getattr(self, name)[rows] for name in ("boxes", "sizes", "image_ids", "train", "classes")}
        return replace(self, images=self.images.take(rows), **arrays)


def clip_boxes(
    boxes: Boxes, sizes: NDArray[np.int64], *, clip: str | None = "warn", image_ids: NDArray[np.int64] | None = None
) -> Boxes:
    """The boxes, cut at the edges of their images.

    Parameters
    ----------
    boxes : ndarray of shape (n_images, 4)
        Left, top, width and height.
    sizes : ndarray of shape (n_images, 2)
        Width and height of the images.
    clip : {"warn", "refuse"} or None
        What happens to boxes past an edge: cut with a `BoxOutsideImageWarning`, refused with a ValueError, or kept.
    image_ids : ndarray of shape (n_images,), optional
        How messages call the images; by default their positions.

    Raises
    ------
    ValueError
        If a box is not finite or has no area, if a box to be cut lies outside its image as a whole, and with
        ``"refuse"`` if one is past an edge.

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell import datasets
    >>> boxes, sizes = np.array([[10.0, 20.0, 30.0, 40.0]]), np.array([[60, 60]])
    >>> datasets.clip_boxes(boxes, sizes, clip="refuse")
    array([[10., 20., 30., 40.]])
    >>> datasets.clip_boxes(boxes, sizes - 5, clip="refuse")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: boxes must lie inside their images; not so for 1 of 1, first image 0: left 10, top 20, width 30, ...
    """
    if clip not in ("warn", "refuse", None):
        raise ValueError(f"clip must be 'warn', 'refuse' or None, got {clip!r}")
    if boxes.ndim != 2 or boxes.shape[1] != 4 or sizes.shape != (len(boxes), 2):
        raise ValueError(f"boxes must be (image, 4) and sizes (image, 2), got {boxes.shape} and {sizes.shape}")
    ids = np.arange(len(boxes)) if image_ids is None else image_ids
    no_box: Mask = ~np.isfinite(boxes).all(axis=1) | np.any(boxes[:, 2:] <= 0, axis=1)
    if no_box.any():
        raise ValueError(f"boxes must be finite, wider and higher than 0; not so {_told(no_box, boxes, sizes, ids)}")
    past: Mask = np.any(boxes[:, :2] < 0, axis=1) | np.any(boxes[:, :2] + boxes[:, 2:] > sizes, axis=1)
    if clip is None or not past.any():
        return boxes
    if clip == "refuse":
        way_out = "mend them, cut them by clip='warn', or keep them by clip=None"
        raise ValueError(f"boxes must lie inside their images; not so {_told(past, boxes, sizes, ids)}; {way_out}")
    cut = _cut(boxes, sizes)
    beyond: Mask = np.any(cut[:, 2:] <= 0, axis=1)
    if beyond.any():
        raise ValueError(f"boxes must at least reach into their images; not so {_told(beyond, boxes, sizes, ids)}")
    message = f"boxes past the edge of their images were cut there {_told(past, boxes, sizes, ids)}"
    warnings.warn(message, BoxOutsideImageWarning, stacklevel=2)
    return np.where(past[:, None], cut, boxes)  # the others keep their bits


def _cut(boxes: Boxes, sizes: NDArray[np.int64]) -> Boxes:
    start, end = np.maximum(boxes[:, :2], 0.0), np.minimum(boxes[:, :2] + boxes[:, 2:], sizes)
    return np.concatenate([start, end - start], axis=1)


def _told(bad: Mask, boxes: Boxes, sizes: NDArray[np.int64], ids: NDArray[np.int64]) -> str:
    """How many boxes are bad, and the first of them."""
    first = int(np.flatnonzero(bad)[0])
    left, top, width, height = (f"{value:g}" for value in boxes[first])
    return (
        f"for {bad.sum()} of {bad.size}, first image {ids[first]}: left {left}, top {top}, width {width}, height "
        f"{height} in {sizes[first, 0]} x {sizes[first, 1]} pixels"
    )


@dataclass(frozen=True)
class ImageArchive:
    """One public archive of images, and the files it consists of.

    `folder` and `original` are the sub-folders of a data folder in which the reduced copy and the unpacked original may
    lie. `sha256` is that of the shards, of the annotations of the reduced copy and of the official lists.
    """

    folder: str
    original: str
    sha256: Mapping[str, str]
    address: str
    source: str
    notes: str

    @property
    def shards(self) -> tuple[str, ...]:
        """Names of the shards, without .zip."""
        return tuple(name.removesuffix(".zip") for name in self.sha256 if name.endswith(".zip"))

    @property
    def packed(self) -> str:
        """Name of the original archive's file."""
        return f"{PurePosixPath(self.original).name}.tgz"


def load_images(name: str, *, shards: Iterable[str] | None = None, clip: str | None = "warn") -> BoxedImages:
    """The images of that name, with their boxes; no picture is read yet.

    They come from the folder in the environment variable ``COVERWELL_DATA`` or from the user's cache: the reduced copy
    where there is one, otherwise the original archive, as the folder ``CUB_200_2011`` or as ``CUB_200_2011.tgz``. The
    .tgz is unpacked into the cache first, once (1.2 GB). With the original, the header of every picture is read for its
    size, which takes seconds. Lists and annotations are checked by sha256 here, a shard when it is first read, single
    pictures of the original not at all.

    Parameters
    ----------
    name : str
        ``"cub"``: Caltech-UCSD Birds-200-2011. Case does not matter.
    shards : iterable of str, optional
        Shards of the reduced copy, by default all. Each is a fair sample of its half of the official split:
        ``("train-0", "test-0")`` is a sixth of the data. The original has no shards.
    clip : {"warn", "refuse"} or None
        What happens to boxes past the edge of their image (30 in CUB, 28 of them by at most 5 pixels): cut with a
        `BoxOutsideImageWarning`, refused, or kept.

    Returns
    -------
    BoxedImages
        Pictures, boxes, sizes, split, classes, and what to cite.

    Raises
    ------
    ValueError
        If the name, a shard or `clip` is unknown, or a box is past an edge with ``clip="refuse"``.
    DatasetNotFoundError
        If the files are nowhere; the message says where they were looked for and how to get them.
    DatasetChecksumError
        If a file holds something else than the published content.

    Examples
    --------
    >>> from coverwell import datasets
    >>> cub = datasets.load_images("cub", shards=("train-0", "test-0"), clip=None)  # doctest: +SKIP
    >>> cub.images[0].shape, cub.boxes[0], cub.sizes[0]  # doctest: +SKIP
    ((160, 239, 3), array([ 60.,  27., 325., 304.]), array([500, 335]))
    >>> datasets.load_images("birds")
    Traceback (most recent call last):
    ...
    ValueError: name must be one of cub; got 'birds'
    """
    known = known_name(name, ARCHIVES)
    archive = ARCHIVES[known]
    asked = None if shards is None else _known_shards(shards, archive)
    loaded = _load(known, archive, asked)
    return replace(loaded, boxes=clip_boxes(loaded.boxes, loaded.sizes, clip=clip, image_ids=loaded.image_ids))


def _known_shards(shards: Iterable[str], archive: ImageArchive) -> tuple[str, ...]:
    asked = (shards,) if isinstance(shards, str) else tuple(shards)
    unknown = [shard for shard in asked if shard not in archive.shards]
    if unknown or not asked:
        raise ValueError(f"shards must be some of {', '.join(archive.shards)}; got {shards!r}")
    return asked


def _load(name: str, archive: ImageArchive, shards: tuple[str, ...] | None) -> BoxedImages:
    for folder in _places(archive.folder):
        if (folder / ANNOTATIONS).is_file() and any((folder / f"{shard}.zip").is_file() for shard in archive.shards):
            return _reduced(name, archive, folder, shards or archive.shards)
    original = _original_folder(archive)
    if shards is not None:
        raise ValueError(f"shards must be None for the original archive in {original}, which has none; got {shards!r}")
    return _original(name, archive, original)


def _places(folder: str) -> list[Path]:
    """Where a sub-folder may lie: at its place in a data folder, right in it, or as the data folder itself."""
    return [place for base in folders() for place in (base / folder, base / PurePosixPath(folder).name, base)]


# The reduced copy


def _reduced(name: str, archive: ImageArchive, folder: Path, shards: tuple[str, ...]) -> BoxedImages:
    text = _checked_text(folder / ANNOTATIONS, archive)
    every_row = list(csv.DictReader(text.splitlines()))
    rows = [row for row in every_row if row["shard"].removesuffix(".zip") in shards]
    paths = {f"{shard}.zip": folder / f"{shard}.zip" for shard in shards}
    missing = [str(path) for path in paths.values() if not path.is_file()]
    if missing:
        raise DatasetNotFoundError(
            f"the shards {', '.join(missing)} were not found. Put them there, or ask for the others only by `shards`."
        )
    files = [ImageFile(paths[row["shard"]], f"{int(row['image_id']):05}.jpg") for row in rows]
    class_names = _class_names(row["name"] for row in every_row)
    return BoxedImages(
        name=name,
        images=ImageFiles(files, sha256={path: archive.sha256[shard] for shard, path in paths.items()}),
        boxes=np.array([[row[f"orig_{side}"] for side in "xywh"] for row in rows], dtype=np.float64),
        sizes=np.array([[int(row["orig_width"]), int(row["orig_height"])] for row in rows], dtype=np.int64),
        image_ids=np.array([int(row["image_id"]) for row in rows], dtype=np.int64),
        train=np.array([row["split"] == "train" for row in rows], dtype=np.bool_),
        classes=_positions((row["name"] for row in rows), class_names),
        class_names=class_names,
        source=archive.source,
        notes=f"{archive.notes} The pictures are reduced copies; boxes and sizes are those of the originals.",
    )


# The original archive


def _original(name: str, archive: ImageArchive, folder: Path) -> BoxedImages:
    paths, boxes, split = (_official(folder / file, archive) for file in OFFICIAL)
    ids = sorted(paths)
    names = [paths[at][0] for at in ids]
    images = ImageFiles(ImageFile(folder / "images" / path) for path in names)
    class_names = _class_names(names)
    return BoxedImages(
        name=name,
        images=images,
        boxes=np.array([boxes[at] for at in ids], dtype=np.float64),
        sizes=np.array([images.size(at) for at in range(len(images))], dtype=np.int64),
        image_ids=np.array(ids, dtype=np.int64),
        train=np.array([split[at] == ["1"] for at in ids], dtype=np.bool_),
        classes=_positions(names, class_names),
        class_names=class_names,
        source=archive.source,
        notes=archive.notes,
    )


def _official(path: Path, archive: ImageArchive) -> dict[int, list[str]]:
    """The words behind each image's number in an official list."""
    lines = (line.split() for line in _checked_text(path, archive).splitlines())
    return {int(number): words for number, *words in lines}


def _original_folder(archive: ImageArchive) -> Path:
    for folder in _places(archive.original):
        if _is_original(folder):
            return folder
    for base in folders():
        for packed in (base / PurePosixPath(archive.original).parent / archive.packed, base / archive.packed):
            if packed.is_file():
                return _unpacked(packed, cache_folder() / archive.original, archive)
    raise DatasetNotFoundError(_not_found(archive))


def _is_original(folder: Path) -> bool:
    return (folder / "images").is_dir() and all((folder / file).is_file() for file in OFFICIAL)


def _unpacked(packed: Path, folder: Path, archive: ImageArchive) -> Path:
    """The folder, unpacked whole and checked, or not there at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.part")
    try:
        _unpack(packed, part, archive)
        _check_unpacked(part, packed, archive)
        try:
            part.rename(folder)
        except OSError:
            if not _is_original(folder):  # otherwise another process was faster, with the same content
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _check_unpacked(folder: Path, packed: Path, archive: ImageArchive) -> None:
    absent = [file for file in OFFICIAL if not (folder / file).is_file()]
    if not absent:
        paths, *_ = (_official(folder / file, archive) for file in OFFICIAL)
        absent = [path for (path,) in paths.values() if not (folder / "images" / path).is_file()]
    if absent:
        raise DatasetChecksumError(f"{packed} lacks {len(absent)} files, first {absent[0]}; delete or replace it")


def _unpack(packed: Path, folder: Path, archive: ImageArchive) -> None:
    """Write the pictures and the official lists of a .tgz; all else in it stays there."""
    try:
        with gzip.open(packed) as stream, tarfile.open(fileobj=stream, mode="r|") as members:
            for member in members:
                path = _path_inside(member, archive)
                content = None if path is None else members.extractfile(member)
                if path is not None and content is not None:
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    with (folder / path).open("wb") as out:
                        shutil.copyfileobj(content, out, CHUNK)
            while stream.read(CHUNK):  # to the end, where gzip compares its own checksum
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DatasetChecksumError(f"{packed} is not a whole .tgz archive ({error}); delete or replace it") from error


def _path_inside(member: tarfile.TarInfo, archive: ImageArchive) -> Path | None:
    """Where in the unpacked folder a member belongs; None for what is not needed, and for paths that lead out of it."""
    top = PurePosixPath(archive.original).name
    path = PurePosixPath(member.name)
    if not member.isfile() or path.parts[:1] != (top,) or ".." in path.parts:
        return None
    inside = path.relative_to(top)
    return Path(inside) if inside.parts[:1] == ("images",) or str(inside) in OFFICIAL else None


# What both share


def _checked_text(path: Path, archive: ImageArchive) -> str:
    if not path.is_file():
        raise DatasetNotFoundError(f"{path} was not found. {_by_hand(archive)}")
    content = path.read_bytes()
    _check(hashlib.sha256(content).hexdigest(), archive.sha256[path.name], path)
    return content.decode("ascii")


def _class_names(names: Iterable[str]) -> tuple[str, ...]:
    """The folders of official paths: 001.Black_footed_Albatross of 001.Black_footed_Albatross/some.jpg."""
    return tuple(sorted({name.split("/")[0] for name in names}))


def _positions(names: Iterable[str], class_names: tuple[str, ...]) -> NDArray[np.int64]:
    position = {class_name: at for at, class_name in enumerate(class_names)}
    return np.array([position[name.split("/")[0]] for name in names], dtype=np.int64)


def _not_found(archive: ImageArchive) -> str:
    looked_in = dict.fromkeys(str(place) for inner in (archive.folder, archive.original) for place in _places(inner))
    return (
        f"the images were not found: neither {ANNOTATIONS} with {archive.shards[0]}.zip and the other shards, nor "
        f"images/ with {', '.join(OFFICIAL)}, nor {archive.packed}. Folders: {', '.join(looked_in)}. "
        f"{_by_hand(archive)}"
    )


def _by_hand(archive: ImageArchive) -> str:
    return (
        f"How to get the original by hand: from {archive.address}, fetch {archive.packed} (1.2 GB) and put it, as it "
        "is or unpacked, into one of the folders or into one that the environment variable COVERWELL_DATA names."
    )


ARCHIVES = {
    "cub": ImageArchive(
        folder="localization/cub_200_2011",
        original="localization/CUB_200_2011",
        sha256={
            "train-0.zip": "5858bac68e7c0bfb67c59aa80df03ac3ab5383ee6e3d2838acb5b2abec5f4e96",
            "train-1.zip": "ae85593737b61eb88764077a3c0d568f8803ead4992c0c408e92c89ddf7a9253",
            "train-2.zip": "33cc4761c23401920b8d53e00c6335a4fb99d9ca5a7ee8a6fd435a30aaa6c023",
            "train-3.zip": "ca4a2528124039a6b1e0394d34410a6de0fc9c5b670be9a9ad4427e42d89eeb5",
            "train-4.zip": "f3c731706e7e195c83f535924ffbf4716aff47a5adf23a0a84165fe71e0f8761",
            "train-5.zip": "b0fadc203691cb90d66af8a8ae2f3bebbcc2e459c23cd0ae1165e3787aa7dc01",
            "test-0.zip": "88ebfcff53fe26a21c7ec485c4636578138c62849fe99cd2a2f56aeac9a29bd6",
            "test-1.zip": "4c99f0712c11c37d37b94bb2a4c0e403d8a64d12584de406fb9be7919b3ae08c",
            "test-2.zip": "ae1c5557fd0ea7c4970774a06c4fbf1cd6baa4b2962b1a7efcdfd540edd4dabe",
            "test-3.zip": "4c61e24da728181e14b99f05cf4e93ada62161418e8111eb3f08b0620b5381f7",
            "test-4.zip": "3142ec0d4f1dca223f5f7808919fb4e2efc06842a5d3fd5925fadfca7b9c77ca",
            "test-5.zip": "bf0d2dd5e78417d90dd9ea5b2bf39c31b58a0ee98d1af133a33734d3789e4533",
            ANNOTATIONS: "a0fc5d4f5099869ba1dcb9844b2bf05a25b9ac782c47a0ea6e74c18c67d6eef4",
            "images.txt": "e1cfc5ed1f4bd1b838040784b6f75c44f7a25d9b31707a3adab49ec694618c1f",
            "bounding_boxes.txt": "c19d9f096c15564793408e5ba054b8d715a6805819d98f037c977f369ef4abd3",
            "train_test_split.txt": "8bbbfcc09b4d3c9c6e3e40c9874bd863eb6658f4f456e472df1b33d3403d2600",
        },
        address="https://data.caltech.edu/records/65de6-vp158",
        source=(
            "C. Wah, S. Branson, P. Welinder, P. Perona, S. Belongie, The Caltech-UCSD Birds-200-2011 Dataset, "
            "Technical Report CNS-TR-2011-001, California Institute of Technology, 2011; no licence stated, used for "
            "non-commercial research and education: the photographs remain their photographers'"
        ),
        notes=(
            "One bird and one box in each photograph, 200 species, the official split of 5994 and 5794. The official "
            "box of 30 images runs past the right or bottom edge. Some test images are also in ImageNet's training set."
        ),
    ),
}
