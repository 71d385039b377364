"""Pictures come one at a time from shards or the original archive, with the same boxes; a broken one is named."""

import copy
import csv
import errno
import hashlib
import io
import multiprocessing
import os
import pickle
import re
import shutil
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from coverwell import datasets
from coverwell.datasets import (
    BoxedImages,
    BoxOutsideImageWarning,
    DatasetChecksumError,
    DatasetNotFoundError,
    ImageFile,
    ImageFileError,
    ImageFiles,
    clip_boxes,
)
from coverwell.datasets.images import ARCHIVES

SHRINK = 2  # originals are so many times larger than their reduced copies


@dataclass(frozen=True)
class Made:
    """One made-up picture: a bright box on dark noise."""

    number: int
    path: str
    shard: str
    size: tuple[int, int]
    box: tuple[int, int, int, int]

    @property
    def split(self) -> str:
        return self.shard.split("-")[0]

    def picture(self) -> Image.Image:
        width, height = self.size
        noise = np.random.default_rng(self.number).integers(0, 60, (height, width, 3), dtype=np.uint8)
        left, top, across, down = self.box
        noise[top : top + down, left : left + across] += 180
        return Image.fromarray(noise)


PICTURES = (
    Made(1, "001.Robin/Robin_0007.jpg", "test-0", (60, 40), (10, 8, 20, 24)),
    Made(2, "001.Robin/Robin_0003.jpg", "train-0", (60, 44), (4, 4, 40, 30)),
    Made(3, "001.Robin/Robin_0001.jpg", "train-1", (50, 80), (0, 0, 50, 80)),
    Made(4, "002.Wren/Wren_0002.jpg", "train-0", (64, 64), (32, 16, 16, 32)),
    Made(5, "002.Wren/Wren_0009.jpg", "test-0", (80, 50), (40, 20, 42, 20)),  # 2 pixels past the right edge
    Made(6, "002.Wren/Wren_0004.jpg", "train-1", (72, 48), (8, 8, 24, 24)),
)
SHARDS = ("train-0", "train-1", "test-0")
PAST_THE_EDGE = 4  # position of that picture


def jpeg(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=95)
    return out.getvalue()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_reduced(folder: Path) -> None:
    """Shards and annotations in the layout of the reduced copy."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in SHARDS:
        with zipfile.ZipFile(folder / f"{shard}.zip", "w") as out:
            for made in PICTURES:
                if made.shard == shard:
                    small = made.picture().resize((made.size[0] // SHRINK, made.size[1] // SHRINK))
                    out.writestr(f"{made.number:05}.jpg", jpeg(small))
    header = "image_id,name,class_id,split,shard,orig_width,orig_height,orig_x,orig_y,orig_w,orig_h\r\n"
    with (folder / "annotations.csv").open("w", newline="") as file:
        file.write(header)
        lines = csv.writer(file)
        for made in PICTURES:
            box = (float(side) for side in made.box)
            lines.writerow(
                [made.number, made.path, int(made.path[:3]), made.split, f"{made.shard}.zip", *made.size, *box]
            )


def write_original(folder: Path) -> None:
    """Folders of pictures and lists in the layout of the original archive."""
    for made in PICTURES:
        (folder / "images" / made.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / made.path).write_bytes(jpeg(made.picture()))
    lists: dict[str, Callable[[Made], str]] = {
        "images.txt": lambda made: made.path,
        "bounding_boxes.txt": lambda made: " ".join(f"{side:.1f}" for side in made.box),
        "train_test_split.txt": lambda made: str(int(made.split == "train")),
    }
    for name, words in lists.items():
        (folder / name).write_text("".join(f"{made.number} {words(made)}\n" for made in PICTURES))


def write_tgz(path: Path, original: Path, leave_out: str = "nothing") -> None:
    """The folder as the original archive has it, with members beside it that nobody needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (original / "attributes").mkdir(exist_ok=True)
    (original / "attributes" / "attributes.txt").write_text("1 has_bill_shape\n")
    stray = original.parent / "attributes.txt"
    stray.write_text("1 has_bill_shape\n")
    with tarfile.open(path, "w:gz") as out:
        out.add(stray, "attributes.txt")
        out.add(original, "CUB_200_2011", filter=lambda member: None if leave_out in member.name else member)
        out.add(stray, "CUB_200_2011/images/../../escaped.txt")
        link = tarfile.TarInfo("CUB_200_2011/images/link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "../../escaped.txt"
        out.addfile(link)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both layouts, side by side: reduced/ and CUB_200_2011/."""
    folder = tmp_path_factory.mktemp("made")
    write_reduced(folder / "reduced")
    write_original(folder / "CUB_200_2011")
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder and an empty cache; "cub" means the made-up pictures."""
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = [*(made / "reduced").iterdir(), *(made / "CUB_200_2011").glob("*.txt")]
    order = [f"{shard}.zip" for shard in SHARDS]
    sums = {path.name: sha256(path) for path in files}
    sums = {name: sums[name] for name in [*order, *(set(sums) - set(order))]}
    monkeypatch.setitem(ARCHIVES, "cub", replace(ARCHIVES["cub"], sha256=sums))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def reduced(data: Path, made: Path) -> Path:
    """The data folder holds the reduced copy."""
    return Path(shutil.copytree(made / "reduced", data / "localization" / "cub_200_2011"))


@pytest.fixture
def original(data: Path, made: Path) -> Path:
    """The data folder holds the unpacked original."""
    return Path(shutil.copytree(made / "CUB_200_2011", data / "CUB_200_2011"))


@pytest.fixture
def cub(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> BoxedImages:
    """The real images, boxes as published."""
    folder = shared_data / "localization" / "cub_200_2011"
    if not folder.is_dir():
        pytest.skip(f"CUB-200-2011 is not in {folder}")
    monkeypatch.setenv("COVERWELL_DATA", str(shared_data))
    return datasets.load_images("cub", clip=None)


def picture_file(folder: Path, picture: Image.Image, name: str = "picture.png", **options: object) -> ImageFiles:
    picture.save(folder / name, **options)  # type: ignore[arg-type]
    return ImageFiles([ImageFile(folder / name)])


def same(one: BoxedImages, two: BoxedImages) -> bool:
    arrays = ("boxes", "sizes", "image_ids", "train", "classes")
    return one.class_names == two.class_names and all(
        np.array_equal(getattr(one, name), getattr(two, name)) and getattr(one, name).dtype == getattr(two, name).dtype
        for name in arrays
    )


# Loading


def test_the_annotations_are_those_that_were_written(reduced: Path) -> None:
    loaded = datasets.load_images("CUB", clip=None)
    assert loaded.name == "cub"
    assert len(loaded) == len(loaded.images) == 6
    assert loaded.image_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert loaded.boxes.tolist() == [list(made.box) for made in PICTURES]
    assert loaded.sizes.tolist() == [list(made.size) for made in PICTURES]
    assert loaded.train.tolist() == [False, True, True, True, False, True]
    assert loaded.classes.tolist() == [0, 0, 0, 1, 1, 1]
    assert loaded.class_names == ("001.Robin", "002.Wren")
    assert "Wah" in loaded.source
    assert "reduced" in loaded.notes


def test_both_sources_give_the_same_annotations(reduced: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_shards = datasets.load_images("cub", clip=None)
    monkeypatch.setenv("COVERWELL_DATA", str(made))
    from_original = datasets.load_images("cub", clip=None)
    assert same(from_shards, from_original)
    assert from_original.images[0].shape == (40, 60, 3)
    assert from_shards.images[0].shape == (20, 30, 3)
    assert "reduced" not in from_original.notes


@pytest.mark.parametrize("source", ["reduced", "original"])
def test_each_picture_shows_its_own_box(source: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(source)
    loaded = datasets.load_images("cub", clip=None)
    for made, picture in zip(PICTURES, loaded.images, strict=True):
        assert picture.dtype == np.uint8
        shrink = SHRINK if source == "reduced" else 1
        left, top, across, down = (side // shrink for side in made.box)
        bright = picture.mean(axis=2) > 130  # the noise ends at 60, the box begins at 180
        expected = np.zeros_like(bright)
        expected[top : top + down, left : left + across] = True
        assert (bright == expected).mean() > 0.97  # JPEG rings at the edge


@pytest.mark.parametrize("inner", ["", "cub_200_2011", "localization/cub_200_2011"])
def test_shards_may_lie_in_the_data_folder_or_below(data: Path, made: Path, inner: str) -> None:
    shutil.copytree(made / "reduced", data / inner, dirs_exist_ok=True)
    assert datasets.load_images("cub", clip=None).images.files[0].path == data / inner / "test-0.zip"


@pytest.mark.parametrize("inner", ["", "CUB_200_2011", "localization/CUB_200_2011"])
def test_the_original_may_lie_in_the_data_folder_or_below(data: Path, made: Path, inner: str) -> None:
    shutil.copytree(made / "CUB_200_2011", data / inner, dirs_exist_ok=True)
    first = data / inner / "images" / "001.Robin" / "Robin_0007.jpg"
    assert datasets.load_images("cub", clip=None).images.files[0] == ImageFile(first)


def test_the_reduced_copy_comes_before_the_original(reduced: Path, original: Path) -> None:
    assert "reduced" in datasets.load_images("cub", clip=None).notes


def test_annotations_of_something_else_do_not_hide_the_original(original: Path) -> None:
    (original.parent / "annotations.csv").write_text("cat,dog\n")
    assert len(datasets.load_images("cub", clip=None)) == 6


def test_shards_make_a_smaller_data_set(reduced: Path) -> None:
    (reduced / "train-1.zip").unlink()  # not asked for, not needed
    small = datasets.load_images("cub", shards=("train-0", "test-0"), clip=None)
    assert small.image_ids.tolist() == [1, 2, 4, 5]
    assert [picture.shape[:2] for picture in small.images] == [(20, 30), (22, 30), (32, 32), (25, 40)]
    assert datasets.load_images("cub", shards="train-0").image_ids.tolist() == [2, 4]


def test_taken_rows_stay_together(reduced: Path) -> None:
    whole = datasets.load_images("cub", clip=None)
    train = whole.take(whole.train)
    assert train.image_ids.tolist() == [2, 3, 4, 6]
    assert train.train.all()
    assert np.array_equal(train.images[3], whole.images[5])
    assert whole.take(np.array([5, 0])).image_ids.tolist() == [6, 1]


# The .tgz


@pytest.mark.parametrize("inner", ["", "localization"])
def test_the_packed_original_is_unpacked_once(data: Path, made: Path, tmp_path: Path, inner: str) -> None:
    packed = data / inner / "CUB_200_2011.tgz"
    write_tgz(packed, Path(shutil.copytree(made / "CUB_200_2011", tmp_path / "CUB_200_2011")))
    loaded = datasets.load_images("cub", clip=None)
    folder = tmp_path / "cache" / "coverwell" / "localization" / "CUB_200_2011"
    assert loaded.images.files[0].path == folder / "images" / PICTURES[0].path
    assert [picture.shape[1::-1] for picture in loaded.images] == [made.size for made in PICTURES]
    packed.unlink()
    assert same(datasets.load_images("cub", clip=None), loaded)


def test_only_what_is_needed_is_unpacked(data: Path, made: Path, tmp_path: Path) -> None:
    write_tgz(data / "CUB_200_2011.tgz", Path(shutil.copytree(made / "CUB_200_2011", tmp_path / "CUB_200_2011")))
    datasets.load_images("cub", clip=None)
    cache = tmp_path / "cache" / "coverwell"
    unpacked = {str(path.relative_to(cache)) for path in cache.rglob("*") if not path.is_dir()}
    lists = ("images.txt", "bounding_boxes.txt", "train_test_split.txt")
    inside = [*lists, *(f"images/{made.path}" for made in PICTURES)]
    assert unpacked == {f"localization/CUB_200_2011/{name}" for name in inside}


@pytest.mark.parametrize("leave_out", ["Wren_0009", "train_test_split"])
def test_an_archive_that_lacks_a_file_leaves_nothing_behind(
    data: Path, made: Path, tmp_path: Path, leave_out: str
) -> None:
    folder = Path(shutil.copytree(made / "CUB_200_2011", tmp_path / "CUB_200_2011"))
    write_tgz(data / "CUB_200_2011.tgz", folder, leave_out)
    with pytest.raises(DatasetChecksumError, match=rf"CUB_200_2011.tgz lacks 1 files, first .*{leave_out}"):
        datasets.load_images("cub")
    assert list((tmp_path / "cache" / "coverwell" / "localization").iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "flipped", "text"])
def test_a_broken_archive_leaves_nothing_behind(data: Path, made: Path, tmp_path: Path, damage: str) -> None:
    packed = data / "CUB_200_2011.tgz"
    write_tgz(packed, Path(shutil.copytree(made / "CUB_200_2011", tmp_path / "CUB_200_2011")))
    content = bytearray(packed.read_bytes())
    if damage == "flipped":
        content[-6] ^= 1  # in gzip's own checksum, behind all members
    packed.write_bytes({"cut": content[: len(content) // 2], "flipped": content, "text": b"moved"}[damage])
    with pytest.raises(DatasetChecksumError, match=r"CUB_200_2011.tgz is not a whole .tgz archive \(.*delete or repla"):
        datasets.load_images("cub")
    assert list((tmp_path / "cache" / "coverwell" / "localization").iterdir()) == []


def test_a_half_made_folder_in_the_way_is_not_overwritten(data: Path, made: Path, tmp_path: Path) -> None:
    write_tgz(data / "CUB_200_2011.tgz", Path(shutil.copytree(made / "CUB_200_2011", tmp_path / "CUB_200_2011")))
    in_the_way = tmp_path / "cache" / "coverwell" / "localization" / "CUB_200_2011"
    in_the_way.mkdir(parents=True)
    (in_the_way / "mine.txt").write_text("mine")
    with pytest.raises(OSError, match="CUB_200_2011") as caught:
        datasets.load_images("cub")
    assert caught.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    assert [path.name for path in in_the_way.parent.rglob("*")] == ["CUB_200_2011", "mine.txt"]


def test_several_may_unpack_at_once(data: Path, made: Path, tmp_path: Path) -> None:
    write_tgz(data / "CUB_200_2011.tgz", Path(shutil.copytree(made / "CUB_200_2011", tmp_path / "CUB_200_2011")))
    start = threading.Barrier(4)

    def load(_: int) -> BoxedImages:
        start.wait()
        return datasets.load_images("cub", clip=None)

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(load, range(4))
    assert all(same(first, other) for other in others)
    assert [path.name for path in (tmp_path / "cache" / "coverwell" / "localization").iterdir()] == ["CUB_200_2011"]


# Bad input to load_images


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="one of cub; got 'nabirds'"):
        datasets.load_images("nabirds")


@pytest.mark.parametrize("shards", [("train-0", "train-9"), (), "valid-0", ("train-0.zip",)])
def test_unknown_shards_are_refused_with_the_known_ones(reduced: Path, shards: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"some of train-0, train-1, test-0; got {re.escape(repr(shards))}"):
        datasets.load_images("cub", shards=shards)


def test_the_original_has_no_shards(original: Path) -> None:
    with pytest.raises(ValueError, match=r"shards must be None for the original archive in .*CUB_200_2011"):
        datasets.load_images("cub", shards=("train-0",))


def test_files_that_are_nowhere_are_named_with_the_way_to_get_them(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError) as caught:
        datasets.load_images("cub")
    named = [
        "annotations.csv",
        "train-0.zip",
        "images.txt",
        "CUB_200_2011.tgz",
        "https://data.caltech.edu/records/65de6",
    ]
    folders = [data / "localization" / "cub_200_2011", data / "CUB_200_2011", tmp_path / "cache" / "coverwell"]
    for text in [*named, *map(str, folders), "COVERWELL_DATA", "by hand"]:
        assert text in str(caught.value)


def test_missing_shards_are_named(reduced: Path) -> None:
    (reduced / "train-1.zip").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"the shards \S*train-1.zip were not found.*`shards`"):
        datasets.load_images("cub")


@pytest.mark.parametrize(
    ("source", "name"), [("reduced", "annotations.csv"), ("original", "bounding_boxes.txt"), ("original", "images.txt")]
)
def test_changed_annotations_are_refused(source: str, name: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(source)
    (folder / name).write_bytes((folder / name).read_bytes().replace(b"1", b"2"))
    with pytest.raises(DatasetChecksumError, match=rf"{name} is not the published file: its sha256 is .*replace it"):
        datasets.load_images("cub")


def test_a_changed_shard_is_refused_when_it_is_first_read(reduced: Path) -> None:
    with (reduced / "train-1.zip").open("ab") as shard:
        shard.write(b"more")
    loaded = datasets.load_images("cub", clip=None)
    assert loaded.images[0].size > 0
    with pytest.raises(DatasetChecksumError, match=r"train-1.zip is not the published file"):
        loaded.images[2]


def test_a_shard_that_changes_later_is_checked_again(reduced: Path) -> None:
    assert datasets.load_images("cub", clip=None).images[2].size > 0
    shard = reduced / "train-1.zip"
    before = shard.stat()
    shard.write_bytes((reduced / "train-0.zip").read_bytes())
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(DatasetChecksumError, match=r"train-1.zip is not the published file"):
        datasets.load_images("cub", clip=None).images[2]


def test_a_missing_picture_of_the_original_is_named_on_loading(original: Path) -> None:
    (original / "images" / PICTURES[3].path).unlink()
    with pytest.raises(ImageFileError, match=r"002.Wren/Wren_0002.jpg must be a picture, but there is no file"):
        datasets.load_images("cub")


# Boxes past the edge


def test_a_box_past_the_edge_is_cut_with_a_warning(reduced: Path) -> None:
    with pytest.warns(BoxOutsideImageWarning, match=r"cut there for 1 of 6, first image 5: left 40, .* in 80 x 50 pix"):
        loaded = datasets.load_images("cub")
    kept = datasets.load_images("cub", clip=None)
    assert kept.boxes[PAST_THE_EDGE].tolist() == [40, 20, 42, 20]
    assert loaded.boxes[PAST_THE_EDGE].tolist() == [40, 20, 40, 20]
    assert np.array_equal(np.delete(loaded.boxes, PAST_THE_EDGE, 0), np.delete(kept.boxes, PAST_THE_EDGE, 0))


def test_a_box_past_the_edge_is_refused_on_request(reduced: Path) -> None:
    with pytest.raises(ValueError, match="must lie inside their images; not so for 1 of 6, first image 5"):
        datasets.load_images("cub", clip="refuse")
    assert len(datasets.load_images("cub", clip="refuse", shards=["train-0"])) == 2


def test_an_unknown_way_to_clip_is_refused(reduced: Path) -> None:
    with pytest.raises(ValueError, match="clip must be 'warn', 'refuse' or None, got 'yes'"):
        datasets.load_images("cub", clip="yes")


def test_boxes_are_cut_at_all_four_edges() -> None:
    boxes = np.array([[-3.0, -4.0, 10.0, 10.0], [15.0, 5.0, 10.0, 10.0], [1.0, 1.0, 2.0, 2.0]])
    with pytest.warns(BoxOutsideImageWarning, match="for 2 of 3, first image 0"):
        cut = clip_boxes(boxes, np.array([[20, 12]] * 3))
    assert cut.tolist() == [[0, 0, 7, 6], [15, 5, 5, 7], [1, 1, 2, 2]]


@given(st.lists(st.tuples(*[st.floats(0, 50)] * 2, *[st.floats(0.5, 80)] * 2), min_size=1, max_size=9))
def test_cut_boxes_lie_in_their_images_and_in_their_boxes(rows: list[tuple[float, ...]]) -> None:
    boxes, sizes = np.array(rows), np.full((len(rows), 2), 60)
    past = (boxes[:, :2] + boxes[:, 2:] > 60).any()
    if past:
        with pytest.warns(BoxOutsideImageWarning):
            cut = clip_boxes(boxes, sizes)
    else:
        cut = clip_boxes(boxes, sizes)
    assert (cut[:, :2] == boxes[:, :2]).all()
    assert (cut[:, :2] + cut[:, 2:] <= 60 + 1e-12).all()
    assert (cut[:, 2:] <= boxes[:, 2:] + 1e-12).all()
    assert (cut[:, 2:] > 0).all()


@pytest.mark.parametrize("box", [[np.nan, 0, 1, 1], [0, 0, np.inf, 1], [0, 0, 0, 1], [0, 0, 1, -1]])
@pytest.mark.parametrize("clip", ["warn", "refuse", None])
def test_what_is_no_box_is_refused(box: list[float], clip: str | None) -> None:
    with pytest.raises(ValueError, match="finite, wider and higher than 0; not so for 1 of 1, first image 17"):
        clip_boxes(np.array([box], dtype=np.float64), np.array([[9, 9]]), clip=clip, image_ids=np.array([17]))


def test_a_box_outside_its_image_as_a_whole_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="at least reach into their images; not so for 1 of 1"):
        clip_boxes(np.array([[20.0, 0.0, 5.0, 5.0]]), np.array([[20, 20]]))


@pytest.mark.parametrize(("boxes", "sizes"), [((3, 5), (3, 2)), ((3, 4), (2, 2)), ((4,), (1, 2)), ((3, 4), (3, 3))])
def test_boxes_and_sizes_of_other_shapes_are_refused(boxes: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"boxes must be \(image, 4\) and sizes \(image, 2\), got"):
        clip_boxes(np.ones(boxes), np.ones(sizes, dtype=np.int64))


# Reading pictures


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_pictures_of_every_mode_become_rgb(tmp_path: Path, mode: str) -> None:
    name = "picture.tif" if mode in ("CMYK", "YCbCr") else "picture.png"
    grey = Image.new("RGB", (7, 5), (255, 255, 255)).convert(mode)
    picture = picture_file(tmp_path, grey, name)[0]
    assert picture.shape == (5, 7, 3)
    assert picture.dtype == np.uint8
    assert (picture > 250).all()


def test_transparent_parts_become_white(tmp_path: Path) -> None:
    picture = Image.new("RGBA", (2, 1), (200, 0, 0, 255))
    picture.putpixel((1, 0), (200, 0, 0, 0))
    assert picture_file(tmp_path, picture)[0].tolist() == [[[200, 0, 0], [255, 255, 255]]]


def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path: Path) -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([10, 20, 30, 40, 50, 60])
    picture.putpixel((1, 0), 1)
    files = picture_file(tmp_path, picture, transparency=bytes([255, 0]))
    assert files[0].tolist() == [[[10, 20, 30], [255, 255, 255]]]


@pytest.mark.parametrize(("mode", "name"), [("I;16", "deep.png"), ("F", "deep.tif")])
def test_more_than_eight_bits_are_refused(tmp_path: Path, mode: str, name: str) -> None:
    with pytest.raises(ImageFileError, match=rf"{name} must be a whole picture.*8 bits per channel.*mode here is"):
        picture_file(tmp_path, Image.new(mode, (4, 4)), name)[0]


def test_pixels_come_as_they_are_stored(tmp_path: Path) -> None:
    turn = Image.Exif()
    turn[0x0112] = 6  # a viewer would turn it by a quarter
    assert picture_file(tmp_path, Image.new("RGB", (8, 4)), "turned.jpg", exif=turn)[0].shape == (4, 8, 3)


def test_a_large_picture_is_read(tmp_path: Path) -> None:
    assert picture_file(tmp_path, Image.new("L", (5000, 3000), 9))[0].shape == (3000, 5000, 3)


@pytest.mark.parametrize("side", [12, 20])  # Pillow warns from 100 pixels on, and refuses from 200 on
def test_a_decompression_bomb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int) -> None:
    files = picture_file(tmp_path, Image.new("RGB", (side, side)), "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ImageFileError, match=rf"bomb.png is larger than Pillow reads \(Image size \({side * side} "):
        files[0]


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "tif"])
@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_broken_picture_is_named(tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"broken.{suffix}"
    PICTURES[0].picture().save(path)
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "text": b"not a picture"}[damage])
    with pytest.raises(ImageFileError, match=rf"{path} must be a whole picture, but reading it failed"):
        ImageFiles([ImageFile(path)])[0]


def test_a_missing_picture_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageFileError, match=r"nobody.jpg must be a picture, but there is no file"):
        ImageFiles([ImageFile(tmp_path / "nobody.jpg")])[0]
    with pytest.raises(
        ImageFileError, match=r"nobody.zip/00001.jpg must be a picture, but there is no file .*nobody.zip"
    ):
        ImageFiles([ImageFile(tmp_path / "nobody.zip", "00001.jpg")])[0]
    with pytest.raises(ImageFileError, match="failed"):
        ImageFiles([ImageFile(tmp_path)])[0]


def test_a_missing_or_broken_entry_is_named_with_its_shard(tmp_path: Path) -> None:
    shard = tmp_path / "train-0.zip"
    whole = jpeg(PICTURES[0].picture())
    with zipfile.ZipFile(shard, "w") as out:
        out.writestr("00001.jpg", whole[: len(whole) // 2])
        out.writestr("00002.jpg", whole)
    content = shard.read_bytes()
    at = content.rindex(whole) + len(whole) // 2
    shard.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
    cut, flipped, missing = (ImageFile(shard, f"0000{number}.jpg") for number in (1, 2, 3))
    images = ImageFiles([cut, flipped, missing])
    with pytest.raises(
        ImageFileError, match=r"train-0.zip/00001.jpg must be a whole picture.*replace it or leave it out"
    ):
        images[0]
    with pytest.raises(ImageFileError, match=r"train-0.zip/00002.jpg must be a whole picture.*CRC"):
        images[1]
    with pytest.raises(ImageFileError, match=r"train-0.zip has no entry 00003.jpg"):
        images[2]


def test_a_file_that_is_no_zip_is_named(tmp_path: Path) -> None:
    (tmp_path / "train-0.zip").write_bytes(b"moved")
    with pytest.raises(ImageFileError, match=r"train-0.zip/00001.jpg must be .*not a zip file"):
        ImageFiles([ImageFile(tmp_path / "train-0.zip", "00001.jpg")])[0]


def test_an_error_survives_the_way_between_processes(tmp_path: Path) -> None:
    with pytest.raises(ImageFileError) as caught:
        ImageFiles([ImageFile(tmp_path / "nobody.jpg")])[0]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_without_pillow_the_extra_is_named(reduced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = datasets.load_images("cub", clip=None).images
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"install coverwell\[images\]"):
        images[0]


def test_positions_count_as_in_a_list(reduced: Path) -> None:
    images = datasets.load_images("cub", clip=None).images
    assert np.array_equal(images[-1], images[np.int64(5)])
    assert len(images[1:3]) == 2
    assert np.array_equal(images[1:3][0], images[1])
    assert repr(images[::2]) == "ImageFiles(3 pictures)"
    assert [images.size(at) for at in (0, 2)] == [(30, 20), (25, 40)]
    with pytest.raises(IndexError):
        images[6]


def test_the_key_tells_pictures_apart_without_reading_them(reduced: Path, original: Path, tmp_path: Path) -> None:
    images = datasets.load_images("cub", clip=None).images
    moved = ImageFiles(
        [ImageFile(tmp_path / file.path.name, file.entry) for file in images.files],
        sha256={tmp_path / path.name: digest for path, digest in images.sha256.items()},
    )
    assert images.key == images[:].key == moved.key  # the content decides, not the place
    assert len({images.key, images[::-1].key, images[:5].key}) == 3


def test_the_key_of_files_without_checksum_changes_with_the_file(tmp_path: Path) -> None:
    files = picture_file(tmp_path, PICTURES[0].picture())
    before = files.key
    assert files.key == before
    os.utime(tmp_path / "picture.png", ns=(1, 1))
    assert files.key != before
    (tmp_path / "picture.png").unlink()
    with pytest.raises(ImageFileError, match=r"picture.png must be a picture, but there is no file"):
        files.key  # noqa: B018


# Threads and processes


def test_a_used_data_set_can_be_pickled_and_copied(reduced: Path) -> None:
    loaded = datasets.load_images("cub", clip=None)
    first = loaded.images[0]  # the shard is open now
    for twin in (pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded)):
        assert same(twin, loaded)
        assert np.array_equal(twin.images[0], first)
        assert twin.images.key == loaded.images.key


def test_threads_read_the_same_pictures_as_one(reduced: Path) -> None:
    images = datasets.load_images("cub", clip=None).images
    alone = list(images)
    positions = np.random.default_rng(0).integers(0, len(images), 600).tolist()
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(images.__getitem__, positions))
    assert all(np.array_equal(picture, alone[at]) for at, picture in zip(positions, read, strict=True))


def exit_by_reading(images: ImageFiles, expected: list[NDArray[np.uint8]]) -> None:
    sys.exit(0 if all(np.array_equal(*pair) for pair in zip(images, expected, strict=True)) else 1)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 and later, where there are threads
def test_a_forked_process_does_not_move_its_parents_place_in_a_shard(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (5, 120, 160, 3), dtype=np.uint8)
    with zipfile.ZipFile(tmp_path / "large.zip", "w") as out:  # entries longer than what Python reads ahead
        for at, pixels in enumerate(noise):
            out.writestr(f"{at}.jpg", jpeg(Image.fromarray(pixels)))
    images = ImageFiles(ImageFile(tmp_path / "large.zip", f"{at}.jpg") for at in range(len(noise)))
    expected = list(images[:])
    for at in range(len(noise)):  # parent and child take turns
        assert np.array_equal(images[at], expected[at])
        child = multiprocessing.get_context("fork").Process(target=exit_by_reading, args=(images, expected))
        child.start()
        child.join()
        assert child.exitcode == 0


# CUB-200-2011 itself


def test_cub_has_the_official_split(cub: BoxedImages) -> None:
    assert cub.train.sum() == 5994
    assert (~cub.train).sum() == 5794
    assert cub.image_ids.tolist() == list(range(1, 11789))
    assert len(cub.class_names) == 200
    assert (np.bincount(cub.classes[cub.train], minlength=200) >= 29).all()


def test_cub_agrees_with_the_official_lists(cub: BoxedImages, shared_data: Path) -> None:
    folder = shared_data / "localization" / "cub_200_2011"
    assert np.array_equal(np.loadtxt(folder / "bounding_boxes.txt")[:, 1:], cub.boxes)
    assert np.array_equal(np.loadtxt(folder / "train_test_split.txt")[:, 1], cub.train)
    assert np.array_equal(np.loadtxt(folder / "image_class_labels.txt")[:, 1], cub.classes + 1)
    names = [line.split()[1] for line in (folder / "classes.txt").read_text().splitlines()]
    assert cub.class_names == tuple(names)


def test_the_published_checksums_are_ours(cub: BoxedImages, shared_data: Path) -> None:
    lines = (shared_data / "localization" / "cub_200_2011" / "SHA256SUMS").read_text().splitlines()
    published = {name: digest for digest, name in (line.split() for line in lines)}
    ours = ARCHIVES["cub"].sha256
    assert ours == {name: published[name] for name in ours}
    assert set(published) - set(ours) == {"classes.txt", "image_class_labels.txt"}


def test_the_boxes_of_cub_are_as_described(cub: BoxedImages) -> None:
    share = cub.boxes[:, 2:].prod(axis=1) / cub.sizes.prod(axis=1)
    assert np.quantile(share, [0.25, 0.5, 0.75]) == pytest.approx([0.21, 0.32, 0.45], abs=0.005)
    with pytest.warns(BoxOutsideImageWarning, match="for 30 of 11788"):
        cut = clip_boxes(cub.boxes, cub.sizes)
    moved = (cut != cub.boxes).any(axis=1)
    assert moved.sum() == 30
    by = (cub.boxes - cut)[moved].max(axis=1)
    assert ((by == 1).sum(), by.max()) == (22, 32)
    assert cub.image_ids[moved][by > 5].tolist() == [1218, 5007]


def test_the_mean_box_of_cub_reaches_the_published_iou(cub: BoxedImages) -> None:
    sides = np.tile(cub.sizes, 2)
    middle_and_size = np.hstack([cub.boxes[:, :2] + cub.boxes[:, 2:] / 2, cub.boxes[:, 2:]]) / sides
    x, y, width, height = middle_and_size[cub.train].mean(axis=0)
    guess = np.array([x - width / 2, y - height / 2, width, height]) * sides
    start = np.maximum(guess[:, :2], cub.boxes[:, :2])
    end = np.minimum(guess[:, :2] + guess[:, 2:], cub.boxes[:, :2] + cub.boxes[:, 2:])
    shared = np.clip(end - start, 0, None).prod(axis=1)
    iou = shared / (guess[:, 2:].prod(axis=1) + cub.boxes[:, 2:].prod(axis=1) - shared)
    assert iou[~cub.train].mean() == pytest.approx(0.52, abs=0.005)


def test_a_picture_of_each_shard_has_the_size_in_the_annotations(cub: BoxedImages, shared_data: Path) -> None:
    with (shared_data / "localization" / "cub_200_2011" / "annotations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    first_of = {row["shard"]: at for at, row in reversed(list(enumerate(rows)))}
    assert len(first_of) == 12
    for at in first_of.values():
        assert cub.images[at].shape == (int(rows[at]["height"]), int(rows[at]["width"]), 3)
        assert int(rows[at]["orig_width"]) == cub.sizes[at, 0]


def test_small_pictures_of_cub_kept_their_size(cub: BoxedImages) -> None:
    small = np.flatnonzero(cub.sizes.min(axis=1) <= 160)
    assert small.size == 44
    assert [cub.images.size(at) for at in small] == [tuple(cub.sizes[at]) for at in small]


def test_two_shards_of_cub_are_a_fair_sample(cub: BoxedImages) -> None:
    small = datasets.load_images("cub", shards=("train-0", "test-0"), clip=None)
    assert (small.train.sum(), (~small.train).sum()) == (999, 966)
    assert set(small.classes[small.train]) == set(small.classes[~small.train]) == set(range(200))
