"""CUB-200-2011, the photographs with one box each of the paper's third experiment, and their 200 species.

Two sources give the same boxes, sizes, species and split: a reduced copy (zip shards and `annotations.csv`), and the
unpacked original archive.
"""

from __future__ import annotations

import hashlib
import io
import secrets
import shutil
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from coverwell.boxes import clip_boxes
from coverwell.errors import ImageError
from reproduction.data.store import CATALOGUE, cache_folder, check, folders, known_name, sha256_of

Boxes = NDArray[np.float64]  # (image, 4): left, top, width, height
Rows = NDArray[np.int64] | NDArray[np.bool_]

IMAGES = tuple(CATALOGUE["images"])
CUB = CATALOGUE["images"]["cub"]
SHARDS = tuple(name.removesuffix(".zip") for name in CUB["sha256"] if name.endswith(".zip"))
ANNOTATIONS = "annotations.csv"
OFFICIAL = ("images.txt", "bounding_boxes.txt", "train_test_split.txt")
BY_HAND = (
    f"How to get the original by hand: from {CUB['address']}, fetch CUB_200_2011.tgz (1.2 GB) and unpack it into one "
    "of the folders or into one that the environment variable COVERWELL_DATA names."
)


@dataclass(frozen=True, eq=False)
class BoxedImages:
    """Images, as an array of paths or of pixels, with one box and one species each and the official split.

    Boxes are left, top, width and height in pixels of the original image, whose width and height are in `sizes`. The
    images themselves may be reduced copies.
    """

    name: str
    images: NDArray[Any]
    boxes: Boxes = field(repr=False)
    sizes: NDArray[np.int64] = field(repr=False)  # (image, 2)
    image_ids: NDArray[np.int64] = field(repr=False)
    train: NDArray[np.bool_] = field(repr=False)
    species: NDArray[Any] = field(repr=False)
    source: str = ""
    notes: str = ""

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def sides(self) -> Boxes:
        """Side of the original that each number of a box refers to: width, height, width, height."""
        return np.tile(self.sizes.astype(np.float64), 2)

    @property
    def fractions(self) -> Boxes:
        """The boxes in fractions of the sides: the same for the original, a reduced copy, and a squeezed square."""
        return self.boxes / self.sides

    def take(self, rows: Rows) -> BoxedImages:
        """The images at these positions, or where a mask is true: ``cub.take(cub.train)``."""
        arrays = ("images", "boxes", "sizes", "image_ids", "train", "species")
        return replace(self, **{name: getattr(self, name)[rows] for name in arrays})


def load_images(name: str, *, shards: Iterable[str] | None = None, clip: str | None = "warn") -> BoxedImages:
    """The images of that name, with boxes and species; no image is read yet. ``"cub"`` is Caltech-UCSD Birds-200-2011.

    They come from the folder in the environment variable ``COVERWELL_DATA`` or from the user's cache: the reduced copy
    where there is one, otherwise the original archive, as the folder ``CUB_200_2011``. Lists and annotations are
    checked by sha256, and shards before they are unpacked into the cache; single images of the original are not.

    `shards` are those of the reduced copy, by default all. Each is a fair sample of its half of the official split:
    ``("train-0", "test-0")`` is a sixth of the data. `clip` is what happens to boxes past the edge of their image, 30
    in CUB: see `coverwell.boxes.clip_boxes`.
    """
    known = known_name(name, IMAGES)
    if shards is not None:
        asked = (shards,) if isinstance(shards, str) else tuple(shards)
        if not asked or not set(asked) <= set(SHARDS):
            raise ValueError(f"shards must be some of {', '.join(SHARDS)}; got {shards!r}")
        shards = asked
    loaded = replace(_load(known, shards), source=CUB["source"].strip())
    return replace(loaded, boxes=clip_boxes(loaded.boxes, loaded.sizes, clip=clip, image_ids=loaded.image_ids))


def _load(name: str, shards: tuple[str, ...] | None) -> BoxedImages:
    for folder in _places(CUB["folder"]):
        if (folder / ANNOTATIONS).is_file() and any((folder / f"{shard}.zip").is_file() for shard in SHARDS):
            return _reduced(name, folder, shards or SHARDS)
    for folder in _places(CUB["original"]):
        if (folder / "images").is_dir() and all((folder / file).is_file() for file in OFFICIAL):
            if shards is not None:
                raise ValueError(
                    f"shards must be None for the original archive in {folder}, which has none; got {shards!r}"
                )
            return _original(name, folder)
    looked_in = dict.fromkeys(str(place) for inner in ("folder", "original") for place in _places(CUB[inner]))
    raise FileNotFoundError(
        f"the images were not found: neither {ANNOTATIONS} with {SHARDS[0]}.zip and the other shards, nor images/ with "
        f"{', '.join(OFFICIAL)}. Folders: {', '.join(looked_in)}. {BY_HAND}"
    )


def _places(folder: str) -> list[Path]:
    """Where a sub-folder may lie: at its place in a data folder, right in it, or as the data folder itself."""
    return [place for base in folders() for place in (base / folder, base / PurePosixPath(folder).name, base)]


def _reduced(name: str, folder: Path, shards: tuple[str, ...]) -> BoxedImages:
    paths = {f"{shard}.zip": folder / f"{shard}.zip" for shard in shards}
    missing = [str(path) for path in paths.values() if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"the shards {', '.join(missing)} were not found. Put them there, or ask for the others only by `shards`."
        )
    every_row = pd.read_csv(io.BytesIO(_checked(folder / ANNOTATIONS)))
    rows = every_row[every_row["shard"].isin(list(paths))]
    ids = rows["image_id"].to_numpy(dtype=np.int64)
    unpacked = {shard: _unpacked(path, CUB["sha256"][shard]) for shard, path in paths.items()}
    files = [str(unpacked[shard] / f"{number:05}.jpg") for shard, number in zip(rows["shard"], ids, strict=True)]
    return BoxedImages(
        name=name,
        images=np.array(files),
        boxes=rows[[f"orig_{side}" for side in "xywh"]].to_numpy(dtype=np.float64),
        sizes=rows[["orig_width", "orig_height"]].to_numpy(dtype=np.int64),
        image_ids=ids,
        train=(rows["split"] == "train").to_numpy(),
        species=_species(rows["name"]),
        notes=f"{CUB['notes'].strip()} The images are reduced copies; boxes and sizes are those of the originals.",
    )


def _unpacked(shard: Path, sha256: str) -> Path:
    """The folder in the cache with the images of a shard: whole, or not there at all."""
    folder: Path = cache_folder() / CUB["folder"] / f"{shard.stem}-{sha256[:8]}"
    if not folder.is_dir():
        check(sha256_of(shard), sha256, shard)
        part = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.part")
        try:
            with zipfile.ZipFile(shard) as archive:
                archive.extractall(part)
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, with the same content
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder


def _original(name: str, folder: Path) -> BoxedImages:
    paths, boxes, split = (
        pd.read_csv(io.BytesIO(_checked(folder / file)), sep=" ", header=None, index_col=0).sort_index()
        for file in OFFICIAL
    )
    files = [folder / "images" / path for path in paths[1]]
    return BoxedImages(
        name=name,
        images=np.array([str(path) for path in files]),
        boxes=boxes.to_numpy(dtype=np.float64),
        sizes=np.array([_size(path) for path in files], dtype=np.int64),
        image_ids=paths.index.to_numpy(dtype=np.int64),
        train=(split[1] == 1).to_numpy(),
        species=_species(paths[1]),
        notes=CUB["notes"].strip(),
    )


def _species(paths: Iterable[str]) -> NDArray[Any]:
    """The species of images at official paths such as ``001.Black_footed_Albatross/...``: Black footed Albatross."""
    return np.array([PurePosixPath(path).parts[0].partition(".")[2].replace("_", " ") for path in paths])


def _size(path: Path) -> tuple[int, int]:
    """Width and height of an image, from its header."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.size
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {type(error).__name__}: {error}; replace it") from error


def _checked(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"{path} was not found. {BY_HAND}")
    content = path.read_bytes()
    check(hashlib.sha256(content).hexdigest(), CUB["sha256"][path.name], path)
    return content
