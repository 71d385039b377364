"""CUB-200-2011, the photographs with one box each of the paper's third experiment.

Two sources give the same boxes, sizes and split: a reduced copy (zip shards and `annotations.csv`), and the original
archive, unpacked or as the .tgz.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import secrets
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from coverwell.datasets.boxes import BoxedImages, clip_boxes
from coverwell.datasets.image_files import ImageFile, ImageFiles
from coverwell.datasets.store import (
    CHUNK,
    DatasetChecksumError,
    DatasetNotFoundError,
    cache_folder,
    check,
    folders,
    known_name,
)

ANNOTATIONS = "annotations.csv"
OFFICIAL = ("images.txt", "bounding_boxes.txt", "train_test_split.txt")


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


def image_names() -> tuple[str, ...]:
    """The names that `load_images` knows.

    Examples
    --------
    >>> from coverwell import datasets
    >>> datasets.image_names()
    ('cub',)
    """
    return tuple(ARCHIVES)


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
        One of `image_names`; case does not matter. ``"cub"`` is Caltech-UCSD Birds-200-2011.
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
    check(hashlib.sha256(content).hexdigest(), archive.sha256[path.name], path)
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
