"""Shards and the original archive give the same images and boxes; what is missing or changed is named."""

import csv
import errno
import os
import re
import shutil
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coverwell.datasets import (
    BoxedImages,
    BoxOutsideImageWarning,
    DatasetChecksumError,
    DatasetNotFoundError,
    ImageFile,
    ImageFileError,
    clip_boxes,
)
from coverwell.datasets.images import ARCHIVES

from coverwell import datasets

Pictures = tuple[Any, ...]  # the made-up ones

PAST_THE_EDGE = 4  # position of the picture whose box is too wide


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


def same(one: BoxedImages, two: BoxedImages) -> bool:
    arrays = ("boxes", "sizes", "image_ids", "train", "classes")
    return one.class_names == two.class_names and all(
        np.array_equal(getattr(one, name), getattr(two, name)) and getattr(one, name).dtype == getattr(two, name).dtype
        for name in arrays
    )


# Loading


def test_the_annotations_are_those_that_were_written(reduced: Path, pictures: Pictures) -> None:
    loaded = datasets.load_images("CUB", clip=None)
    assert loaded.name == "cub"
    assert len(loaded) == len(loaded.images) == 6
    assert loaded.image_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert loaded.boxes.tolist() == [list(made.box) for made in pictures]
    assert loaded.sizes.tolist() == [list(made.size) for made in pictures]
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
def test_each_picture_shows_its_own_box(source: str, request: pytest.FixtureRequest, pictures: Pictures) -> None:
    request.getfixturevalue(source)
    loaded = datasets.load_images("cub", clip=None)
    for made, picture in zip(pictures, loaded.images, strict=True):
        assert picture.dtype == np.uint8
        shrink = 2 if source == "reduced" else 1
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


# The .tgz


@pytest.mark.parametrize("inner", ["", "localization"])
def test_the_packed_original_is_unpacked_once(
    data: Path, made: Path, tmp_path: Path, inner: str, pictures: Pictures
) -> None:
    packed = data / inner / "CUB_200_2011.tgz"
    write_tgz(packed, Path(shutil.copytree(made / "CUB_200_2011", tmp_path / "CUB_200_2011")))
    loaded = datasets.load_images("cub", clip=None)
    folder = tmp_path / "cache" / "coverwell" / "localization" / "CUB_200_2011"
    assert loaded.images.files[0].path == folder / "images" / pictures[0].path
    assert [picture.shape[1::-1] for picture in loaded.images] == [made.size for made in pictures]
    packed.unlink()
    assert same(datasets.load_images("cub", clip=None), loaded)


def test_only_what_is_needed_is_unpacked(data: Path, made: Path, tmp_path: Path, pictures: Pictures) -> None:
    write_tgz(data / "CUB_200_2011.tgz", Path(shutil.copytree(made / "CUB_200_2011", tmp_path / "CUB_200_2011")))
    datasets.load_images("cub", clip=None)
    cache = tmp_path / "cache" / "coverwell"
    unpacked = {str(path.relative_to(cache)) for path in cache.rglob("*") if not path.is_dir()}
    lists = ("images.txt", "bounding_boxes.txt", "train_test_split.txt")
    inside = [*lists, *(f"images/{made.path}" for made in pictures)]
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


# Bad input


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


def test_a_missing_picture_of_the_original_is_named_on_loading(original: Path, pictures: Pictures) -> None:
    (original / "images" / pictures[3].path).unlink()
    with pytest.raises(ImageFileError, match=r"002.Wren/Wren_0002.jpg cannot be read: FileNotFound"):
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
