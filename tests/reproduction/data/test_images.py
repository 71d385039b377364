"""Shards and the original archive give the same images and boxes; what is missing or changed is named."""

import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from coverwell import metrics
from coverwell.boxes import clip_boxes
from coverwell.errors import BoxOutsideImageWarning, ImageError
from reproduction.data import images
from reproduction.data.images import load_images
from reproduction.data.store import ChecksumError


def same(one, two):
    return all(
        np.array_equal(getattr(one, name), getattr(two, name)) and getattr(one, name).dtype == getattr(two, name).dtype
        for name in ("boxes", "sizes", "image_ids", "train", "species")
    )


def shape(path):
    with Image.open(path) as image:
        return image.size


# Loading


def test_both_sources_give_the_annotations_that_were_written(reduced, made, made_images, monkeypatch):
    loaded = load_images("CUB", clip=None)
    assert loaded.name == "cub"
    assert len(loaded) == len(loaded.images) == 6
    assert loaded.image_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert loaded.boxes.tolist() == [list(made.box) for made in made_images]
    assert loaded.sizes.tolist() == [list(made.size) for made in made_images]
    assert loaded.train.tolist() == [False, True, True, True, False, True]
    assert loaded.species.tolist() == ["Robin"] * 3 + ["Winter Wren"] * 3
    monkeypatch.setenv("COVERWELL_DATA", str(made))
    from_original = load_images("cub", clip=None)
    assert same(loaded, from_original)
    assert (shape(from_original.images[0]), shape(loaded.images[0])) == ((60, 40), (30, 20))
    assert ("reduced copies" in loaded.notes, "reduced" in from_original.notes) == (True, False)


@pytest.mark.parametrize("source", ["reduced", "original"])
def test_each_image_shows_its_own_box(source, request, made_images):
    request.getfixturevalue(source)
    for made, path in zip(made_images, load_images("cub", clip=None).images, strict=True):
        shrink = 2 if source == "reduced" else 1
        left, top, across, down = (side // shrink for side in made.box)
        bright = np.asarray(Image.open(path)).mean(axis=2) > 130  # the noise ends at 60, the box begins at 180
        expected = np.zeros_like(bright)
        expected[top : top + down, left : left + across] = True
        assert (bright == expected).mean() > 0.97  # JPEG rings at the edge


@pytest.mark.parametrize("inner", ["", "cub_200_2011", "localization/cub_200_2011"])
def test_either_source_may_lie_in_the_data_folder_or_below(data, made, inner):
    shutil.copytree(made / "CUB_200_2011", data / inner.replace("cub", "CUB"), dirs_exist_ok=True)
    first = data / inner.replace("cub", "CUB") / "images" / "001.Robin" / "Robin_0007.jpg"
    assert load_images("cub", clip=None).images[0] == str(first)
    shutil.copytree(made / "reduced", data / inner, dirs_exist_ok=True)  # which comes first
    assert "reduced" in load_images("cub", clip=None).notes


def test_shards_make_a_smaller_data_set(reduced):
    (reduced / "train-1.zip").unlink()  # not asked for, not needed
    small = load_images("cub", shards=("train-0", "test-0"), clip=None)
    assert small.image_ids.tolist() == [1, 2, 4, 5]
    assert [shape(path) for path in small.images] == [(30, 20), (30, 22), (32, 32), (40, 25)]
    assert load_images("cub", shards="train-0").image_ids.tolist() == [2, 4]


def test_shards_are_unpacked_once_and_several_may_do_so_at_the_same_time(reduced, tmp_path):
    start = threading.Barrier(4)

    def load(_):
        start.wait()
        return load_images("cub", clip=None)

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(load, range(4))
    assert all(same(first, other) for other in others)
    folder = tmp_path / "cache" / "coverwell" / "localization" / "cub_200_2011"
    assert sorted(path.name.rpartition("-")[0] for path in folder.iterdir()) == ["test-0", "train-0", "train-1"]
    before = [path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))]
    load_images("cub", clip=None)
    assert [path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))] == before


def test_taken_rows_stay_together_and_fractions_are_of_the_originals_sides(reduced):
    whole = load_images("cub", clip=None)
    train = whole.take(whole.train)
    assert train.image_ids.tolist() == [2, 3, 4, 6]
    assert train.species.tolist() == ["Robin", "Robin", "Winter Wren", "Winter Wren"]
    assert train.images[3] == whole.images[5]
    assert whole.take(np.array([5, 0])).image_ids.tolist() == [6, 1]
    small = np.tile([shape(path) for path in whole.images], 2)  # half as wide and high
    np.testing.assert_allclose(whole.fractions * small, whole.boxes / 2, rtol=1e-15)
    np.testing.assert_array_equal(whole.sides[0], [60, 40, 60, 40])


# Bad input


def test_unknown_names_and_shards_are_refused_with_the_known_ones(reduced):
    with pytest.raises(ValueError, match="one of cub; got 'nabirds'"):
        load_images("nabirds")
    for shards in (("train-0", "train-9"), (), "valid-0", ("train-0.zip",)):
        with pytest.raises(ValueError, match=f"some of train-0, train-1, test-0; got {re.escape(repr(shards))}"):
            load_images("cub", shards=shards)


def test_the_original_has_no_shards_and_a_missing_image_of_it_is_named(original, made_images):
    (original.parent / "annotations.csv").write_text("cat,dog\n")  # of something else: it does not hide the original
    with pytest.raises(ValueError, match=r"shards must be None for the original archive in .*CUB_200_2011"):
        load_images("cub", shards=("train-0",))
    (original / "images" / made_images[3].path).unlink()
    with pytest.raises(ImageError, match=r"002.Winter_Wren/Wren_0002.jpg cannot be read: FileNotFound"):
        load_images("cub")


def test_files_that_are_nowhere_are_named_with_the_way_to_get_them(data, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load_images("cub")
    named = "annotations.csv train-0.zip images.txt CUB_200_2011.tgz https://data.caltech.edu/records/65de6"
    folders = [data / "localization" / "cub_200_2011", data / "CUB_200_2011", tmp_path / "cache" / "coverwell"]
    for text in [*named.split(), *map(str, folders), "COVERWELL_DATA", "by hand"]:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("source", "name"), [("reduced", "annotations.csv"), ("original", "bounding_boxes.txt"), ("original", "images.txt")]
)
def test_changed_annotations_are_refused(source, name, request):
    folder = request.getfixturevalue(source)
    (folder / name).write_bytes((folder / name).read_bytes().replace(b"1", b"2"))
    with pytest.raises(ChecksumError, match=rf"{name} is not the published file: its sha256 is .*replace it"):
        load_images("cub")


def test_a_changed_shard_is_refused_and_nothing_of_it_is_unpacked(reduced, tmp_path):
    with (reduced / "train-1.zip").open("ab") as shard:
        shard.write(b"more")
    with pytest.raises(ChecksumError, match=r"train-1.zip is not the published file"):
        load_images("cub", clip=None)
    assert not list((tmp_path / "cache").rglob("train-1*"))
    (reduced / "train-1.zip").unlink()
    with pytest.raises(FileNotFoundError, match=r"the shards \S*train-1.zip were not found.*`shards`"):
        load_images("cub")


def test_a_box_past_the_edge_is_cut_with_a_warning_or_refused(reduced):
    with pytest.warns(BoxOutsideImageWarning, match=r"cut there for 1 of 6, first image 5: left 40, .* in 80 x 50 pix"):
        loaded = load_images("cub")
    assert loaded.boxes[4].tolist() == [40, 20, 40, 20]
    assert load_images("cub", clip=None).boxes[4].tolist() == [40, 20, 42, 20]
    with pytest.raises(ValueError, match="must lie inside their images; not so for 1 of 6, first image 5"):
        load_images("cub", clip="refuse")


# CUB-200-2011 itself


def test_cub_has_the_official_split_lists_and_checksums(cub, shared_data):
    assert (cub.train.sum(), (~cub.train).sum()) == (5994, 5794)
    assert cub.image_ids.tolist() == list(range(1, 11789))
    folder = shared_data / "localization" / "cub_200_2011"
    assert np.array_equal(np.loadtxt(folder / "bounding_boxes.txt")[:, 1:], cub.boxes)
    assert np.array_equal(np.loadtxt(folder / "train_test_split.txt")[:, 1], cub.train)

    lines = (folder / "SHA256SUMS").read_text().splitlines()
    published = {name: digest for digest, name in (line.split() for line in lines)}
    ours = images.CUB["sha256"]
    assert ours == {name: published[name] for name in ours}


def test_the_boxes_of_cub_are_as_described(cub):
    share = cub.boxes[:, 2:].prod(axis=1) / cub.sizes.prod(axis=1)
    assert np.quantile(share, [0.25, 0.5, 0.75]) == pytest.approx([0.21, 0.32, 0.45], abs=0.005)
    with pytest.warns(BoxOutsideImageWarning, match="for 30 of 11788"):
        cut = clip_boxes(cub.boxes, cub.sizes)
    moved = (cut != cub.boxes).any(axis=1)
    by = (cub.boxes - cut)[moved].max(axis=1)
    assert (moved.sum(), (by == 1).sum(), by.max()) == (30, 22, 32)
    assert cub.image_ids[moved][by > 5].tolist() == [1218, 5007]


def test_the_mean_box_of_cub_reaches_the_published_iou(cub):
    sides = np.tile(cub.sizes, 2)
    middle_and_size = np.hstack([cub.boxes[:, :2] + cub.boxes[:, 2:] / 2, cub.boxes[:, 2:]]) / sides
    x, y, width, height = middle_and_size[cub.train].mean(axis=0)
    guess = np.array([x - width / 2, y - height / 2, width, height]) * sides
    assert metrics.iou(cub.boxes[~cub.train], guess[~cub.train]) == pytest.approx(0.52, abs=0.005)


def test_an_image_of_each_shard_has_the_size_in_the_annotations(cub, shared_data):
    rows = pd.read_csv(shared_data / "localization" / "cub_200_2011" / "annotations.csv")
    first = rows.drop_duplicates("shard")
    assert len(first) == 12
    assert [shape(cub.images[at]) for at in first.index] == list(zip(first["width"], first["height"], strict=True))
    assert (first["orig_width"] == cub.sizes[first.index, 0]).all()
