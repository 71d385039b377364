"""Images of every kind come out as RGB squares in [0, 1], in order, a few at a time; bad ones are named."""

import gc
import os
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torch.utils.data import Dataset, TensorDataset

from coverwell.errors import ImageError, LargeImageWarning
from coverwell.inputs.images import Images, images_of


def scene(seed=0, height=60, width=90):
    """A bright rectangle on noise, (height, width, channel)."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 80, (height, width, 3), dtype=np.uint8)
    top, left = rng.integers(0, height // 2), rng.integers(0, width // 2)
    pixels[top : top + height // 3, left : left + width // 3] = (250, 220, 200)
    return pixels


def squeezed_by_pillow(image, size):
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1) / 255


class Deck(Dataset):
    """A data set as users write it, around a list."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, position):
        return self.items[position]


def read_one(item, size=32):
    return images_of(Deck([item])).read(0, size).numpy()


def all_of(images, **options):
    return torch.cat(list(images_of(images).batches(**{"size": 32, "batch_size": 3, **options})))


def test_the_same_image_gives_the_same_numbers_however_it_is_given(tmp_path):
    pixels = scene()
    path = tmp_path / "scene.png"
    Image.fromarray(pixels).save(path)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    in_memory = [tensor[None].numpy(), tensor[None], [Image.open(path)], images_of([pixels])]
    paths = [[path], (str(path),), np.array([str(path)]), pd.Series([path], index=[7]), pl.Series([str(path)])]
    frames = [library.DataFrame({"file": [str(path)]}) for library in (pd, pl)]
    datasets = [TensorDataset(tensor[None]), *(Deck([item]) for item in (pixels, Image.fromarray(pixels), path))]
    first = all_of([pixels])
    assert first.shape == (1, 3, 32, 32)
    assert first.dtype == torch.float32
    for images in (*in_memory, *paths, *frames, *datasets):
        assert torch.equal(all_of(images), first), images


def test_floats_sixteen_and_eight_bits_of_one_image_agree():
    pixels = scene().astype(np.uint16)
    eight = read_one(pixels.astype(np.uint8))
    for other in (pixels * 257, (pixels * 257).astype(">u2"), pixels / 255, (pixels / 255).astype(np.float32)):
        np.testing.assert_allclose(read_one(other), eight, atol=1 / 255 + 1e-6)  # eight bits are rounded twice


def test_memory_that_is_read_only_or_runs_backwards_is_read_all_the_same():
    pixels = scene()
    pixels.flags.writeable = False
    np.testing.assert_array_equal(read_one(pixels[:, ::-1])[:, :, ::-1], read_one(pixels))


@pytest.mark.parametrize("size", [16, 32, 200])
def test_squeezing_is_pillows_bilinear_filter_to_a_step_of_eight_bits(size):
    pixels = scene(height=70, width=110)
    ours = read_one(pixels, size)
    np.testing.assert_allclose(ours, squeezed_by_pillow(Image.fromarray(pixels), size), atol=1.01 / 255)


def test_halving_averages_neighbours_with_the_weights_of_a_triangle():
    # Twice as wide a triangle as without antialiasing: at the edge (3, 3, 1) / 7, inside (1, 3, 3, 1) / 8.
    row = np.array([[0.0, 0.7, 0.7, 0.0, 0.0, 0.0, 0.8, 0.0]])
    halved = images_of(np.repeat(row, 8, axis=0)[None, None]).read(0, 4)[0, 0]
    np.testing.assert_allclose(halved, [2.8 / 7, 2.8 / 8, 0.8 / 8, 2.4 / 7], atol=1e-6)


@given(height=st.integers(1, 50), width=st.integers(1, 50), size=st.integers(1, 40), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_places_in_fractions_of_the_sides_and_the_range_stay_what_they_were(height, width, size, seed):
    pixels = np.random.default_rng(seed).random((height, width)).astype(np.float32)
    squeezed = images_of([pixels]).read(0, size)
    assert squeezed.shape == (3, size, size)
    assert pixels.min() - 1e-6 <= squeezed.min()
    assert squeezed.max() <= pixels.max() + 1e-6
    turned = images_of([pixels[::-1, ::-1]]).read(0, size)
    np.testing.assert_allclose(turned.flip(-1, -2), squeezed, atol=1e-5)


def test_grey_becomes_three_equal_channels(tmp_path):
    grey = scene()[:, :, 0]
    Image.fromarray(grey).save(tmp_path / "grey.png")
    wanted = read_one(np.stack([grey] * 3, axis=-1))
    for item in (tmp_path / "grey.png", grey, grey[:, :, None], torch.from_numpy(grey), torch.from_numpy(grey)[None]):
        np.testing.assert_array_equal(read_one(item), wanted)


def test_transparent_pixels_are_laid_on_white(tmp_path):
    pixels = np.zeros((32, 32, 4), dtype=np.uint8)
    pixels[:, :, 0] = 200  # red, also where nobody sees it
    pixels[:16, :, 3] = 255
    pixels[16:24, :, 3] = 51  # one fifth
    wanted = np.ones((3, 32, 32))
    wanted[:, :16] = np.array([200 / 255, 0, 0])[:, None, None]
    wanted[:, 16:24] = np.array([0.8 + 0.2 * 200 / 255, 0.8, 0.8])[:, None, None]
    Image.fromarray(pixels).save(tmp_path / "alpha.png")
    for item in (pixels, tmp_path / "alpha.png", torch.from_numpy(pixels / 255).permute(2, 0, 1)):
        np.testing.assert_allclose(read_one(item), wanted, atol=1e-6)


def test_sixteen_bit_files_are_scaled_not_clipped(tmp_path):
    deep = np.linspace(0, 65_535, 32 * 32).astype(np.uint16).reshape(32, 32)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    Image.fromarray(deep).save(tmp_path / "deep.tif")
    for item in (tmp_path / "deep.png", tmp_path / "deep.tif", Image.fromarray(deep.astype(np.int32)), deep):
        np.testing.assert_allclose(read_one(item)[1], deep / 65_535, atol=1e-6)


@pytest.mark.parametrize("mode", ["1", "P", "LA", "CMYK", "YCbCr", "F"])
def test_rarer_modes_of_pillow_are_read(mode):
    image = Image.fromarray(np.where(scene()[:, :, 0] > 128, 255, 0).astype(np.uint8))
    image = Image.fromarray(np.asarray(image) / np.float32(255)) if mode == "F" else image.convert(mode)
    bright = scene()[:, :, 0] > 128
    np.testing.assert_allclose(read_one(image, 60)[0].mean(), bright.mean(), atol=0.01)


def test_a_palette_with_a_transparent_colour_is_laid_on_white(tmp_path):
    image = Image.new("P", (2, 2))
    image.putpixel((1, 0), 1)
    image.putpixel((1, 1), 1)
    image.putpalette([10, 20, 30, 100, 110, 120])
    image.save(tmp_path / "palette.png", transparency=0)
    np.testing.assert_allclose(read_one(tmp_path / "palette.png", 2)[0], [[1, 100 / 255]] * 2, atol=1e-6)


def test_pixels_come_as_they_are_stored_whatever_turn_the_camera_noted(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # a viewer would turn it by a quarter
    Image.fromarray(scene()).save(tmp_path / "noted.png", exif=exif)
    np.testing.assert_array_equal(read_one(tmp_path / "noted.png"), read_one(scene()))
    with Image.open(tmp_path / "noted.png") as image:  # the way out
        np.testing.assert_array_equal(read_one(ImageOps.exif_transpose(image)), read_one(np.rot90(scene(), -1)))


def test_an_image_beyond_what_pillow_takes_for_safe_is_read_and_a_warning_names_its_path(tmp_path, monkeypatch):
    for side, name in ((10, "small.png"), (12, "large.png")):
        Image.fromarray(scene(3, side, side)).save(tmp_path / name)
    small, exactly = read_one(tmp_path / "small.png"), read_one(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    said = r"large\.png has 144 pixels, more than the 100 .*MAX_IMAGE_PIXELS"
    with pytest.warns(Image.DecompressionBombWarning), pytest.warns(LargeImageWarning, match=said) as ours:
        both = all_of([tmp_path / "small.png", tmp_path / "large.png"])
    np.testing.assert_array_equal(both, np.stack([small, exactly]))
    assert len([warning for warning in ours if warning.category is LargeImageWarning]) == 1


@pytest.mark.parametrize("name", ["huge.jpg", "huge.png"])
def test_huge_images_are_shrunk_on_the_way_and_look_the_same(tmp_path, name):
    small = scene(3, 40, 60)
    huge = Image.fromarray(np.kron(small, np.ones((50, 50, 1), dtype=np.uint8)))  # 2,000 x 3,000
    huge.save(tmp_path / name, quality=95)
    exactly = squeezed_by_pillow(huge, 32)
    assert np.abs(read_one(tmp_path / name) - exactly).mean() < 0.01


def test_an_image_that_a_user_holds_is_not_changed_by_reading_it(tmp_path):
    Image.fromarray(scene(0, 600, 900)).save(tmp_path / "scene.jpg")
    with Image.open(tmp_path / "scene.jpg") as image:
        images_of([image]).read(0, 32)
        assert image.size == (900, 600)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_batches_keep_the_order_and_a_data_set_is_asked_by_one_thread_at_a_time(n_threads):
    inside = []

    class SlowStart(Deck):
        def __getitem__(self, position):
            inside.append(position)
            assert inside == [position]
            time.sleep(0.02 if position % 4 == 0 else 0.001)
            return self.items[inside.pop()]

    levels = np.linspace(0, 1, 10)
    images = images_of(SlowStart([np.full((5, 5), level) for level in levels]))
    batches = list(images.batches(size=4, batch_size=4, n_threads=n_threads))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    np.testing.assert_allclose(torch.cat(batches)[:, 0, 0, 0], levels, atol=1e-6)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_no_more_than_a_few_batches_are_alive_at_once(n_threads):
    alive, counts = weakref.WeakSet(), []

    class Counting(Images):
        """Counts the squeezed images that somebody still holds."""

        def read(self, position, size):
            image = super().read(position, size)
            alive.add(image)
            counts.append(len(alive))
            return image

    images = Counting([np.full((8, 8), 0.5)] * 200)
    for _ in images.batches(size=8, batch_size=5, n_threads=n_threads):
        time.sleep(0.002)  # readers have all the time to run ahead
    gc.collect()
    assert len(counts) == 200
    assert max(counts) <= 2 * 5  # the batch that is put together, and the next
    assert len(alive) == 0


def test_readers_end_when_the_batches_are_left_early():
    batches = images_of([scene()] * 50).batches(size=8, batch_size=2, n_threads=3)
    next(batches)
    assert any(thread.name.startswith("coverwell-images") for thread in threading.enumerate())
    batches.close()
    assert not any(thread.name.startswith("coverwell-images") for thread in threading.enumerate())


def test_equal_images_have_equal_keys_and_others_have_others(tmp_path):
    for seed in range(2):
        Image.fromarray(scene(seed)).save(tmp_path / f"{seed}.png")
    array = np.stack([scene(0), scene(1)]).transpose(0, 3, 1, 2)
    first, second = tmp_path / "0.png", tmp_path / "1.png"
    arrays = [array, array[::-1], array[:1], array.astype(np.uint16)]
    different = [*arrays, [first, second], [second, first], [first], [Image.open(first)]]
    keys = [images_of(images).key() for images in different]
    assert len(set(keys)) == len(keys)
    assert [images_of(images).key() for images in different] == keys
    assert images_of(torch.from_numpy(array)).key() == keys[0]
    assert images_of(pd.Series([str(first), os.path.relpath(second)])).key() == keys[4]


@pytest.mark.parametrize("change", ["content", "time"])
def test_a_file_that_changes_changes_the_key(tmp_path, change):
    path = tmp_path / "scene.png"
    Image.fromarray(scene()).save(path)
    about = path.stat()
    before = images_of([path]).key()
    if change == "content":
        Image.fromarray(scene(height=61)).save(path)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    else:
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + 1000))
    assert images_of([path]).key() != before


def test_a_data_set_with_a_key_of_its_own_is_not_read():
    class Named(Deck):
        def __init__(self, key, n):
            super().__init__([None] * n)
            self.key = key

        def __getitem__(self, position):
            raise AssertionError("read")

    keys = {images_of(Named(key, n)).key() for key, n in [("a", 3), ("b", 3), ("a", 4)]}
    assert len(keys) == 3


def broken_files(folder):
    Image.fromarray(scene(0, 300, 400)).save(folder / "whole.jpg")
    Image.fromarray(scene(0, 300, 400)).save(folder / "whole.png")
    (folder / "cut.jpg").write_bytes((folder / "whole.jpg").read_bytes()[:2000])
    (folder / "cut.png").write_bytes((folder / "whole.png").read_bytes()[:2000])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("not an image")
    (folder / "folder.jpg").mkdir()
    return {n: folder / n for n in ("cut.jpg", "cut.png", "empty.jpg", "text.jpg", "folder.jpg", "missing.jpg")}


def test_a_broken_empty_or_missing_file_is_named_with_its_position(tmp_path):
    for name, path in broken_files(tmp_path).items():
        with pytest.raises(ImageError, match=rf"image 2 \({tmp_path}/{name}\) cannot be read: .*"):
            all_of([tmp_path / "whole.jpg", tmp_path / "whole.png", path])


@pytest.mark.parametrize("side", [12, 20])  # Pillow warns from 100 pixels on, and refuses from 200 on
def test_a_file_larger_than_pillow_reads_is_named(tmp_path, monkeypatch, side):
    Image.new("RGB", (side, side)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ImageError, match=r"image 0 \(.*bomb\.png\) cannot be read: it is larger .*; shrink it first"):
        read_one(tmp_path / "bomb.png")


@pytest.mark.parametrize("error", [ImportError, MemoryError, KeyboardInterrupt])
def test_what_is_no_fault_of_the_image_comes_through(monkeypatch, error):
    def fail(*_):
        raise error("mine")

    monkeypatch.setattr(Image.Image, "convert", fail)
    with pytest.raises(error, match=r"^mine$"):
        read_one(Image.fromarray(scene()))


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        (np.zeros((0, 5, 3), dtype=np.uint8), "it is empty: 0 pixels high and 5 wide"),
        (np.zeros((5, 0), dtype=np.uint8), "it is empty"),
        (np.full((5, 5), 1.5), r"must lie in \[0, 1\], got 1\.5 to 1\.5"),
        (np.full((5, 5), -0.1), r"must lie in \[0, 1\]"),
        (np.full((5, 5), np.nan), r"must lie in \[0, 1\], got nan"),
        (torch.full((3, 5, 5), torch.inf), r"must lie in \[0, 1\]"),
        (np.zeros((5, 5), dtype=np.int64), "uint8, uint16 or floats"),
        (torch.zeros((3, 5, 5), dtype=torch.int64), "uint8, uint16 or floats"),
        (np.zeros((5, 5), dtype=bool), "uint8, uint16 or floats"),
        (np.zeros((3, 5, 5)), r"an array \(height, width\) .*, got the shape \(3, 5, 5\)"),
        (torch.zeros(5, 5, 3), r"a tensor \(channel, height, width\) .*, got the shape \(5, 5, 3\)"),
        (np.zeros(5), r"got the shape \(5,\)"),
        (torch.tensor(0.5), r"got the shape \(\)"),
        (Image.fromarray(np.full((5, 5), 70_000, dtype=np.int32)), "0 to 65,535, got 70000"),
        (Image.fromarray(np.full((5, 5), 2.0, dtype=np.float32)), r"must lie in \[0, 1\]"),
        ((np.zeros((5, 5)), 1.0), "got tuple of 2; a dataset gives the images alone"),
        (None, "got NoneType"),
        (7, "got int"),
    ],
)
def test_a_bad_item_is_named_by_its_position(item, complaint):
    with pytest.raises(ImageError, match=f"image 1 cannot be read: .*{complaint}"):
        all_of(Deck([scene(), item]))


def test_a_data_sets_own_error_comes_through_with_the_position():
    class Failing(Deck):
        def __getitem__(self, position):
            if position == 3:
                raise ConnectionError("the server is away")
            return self.items[position]

    with pytest.raises(ConnectionError, match="the server is away") as raised:
        all_of(Failing([scene()] * 5))
    assert raised.value.__notes__ == ["while reading image 3"]


@pytest.mark.parametrize(
    ("images", "error", "complaint"),
    [
        (np.zeros((2, 8, 9, 3)), ValueError, r"got \(2, 8, 9, 3\); move the channels with .transpose\(0, 3, 1, 2\)"),
        (np.zeros((2, 8, 9)), ValueError, r"got \(2, 8, 9\); grey images .* become \[:, None\]"),
        (np.zeros((3, 8, 9)), ValueError, r"got \(3, 8, 9\); a single image .* becomes \[None\]"),
        (torch.zeros(4, 8, 9), ValueError, r"got \(4, 8, 9\); a single image .* becomes \[None\]"),
        (np.zeros((8, 9, 3)), ValueError, r"got \(8, 9, 3\); .* becomes \.transpose\(2, 0, 1\)\[None\]"),
        (np.zeros((2, 8)), ValueError, r"\(image, channel, height, width\)"),
        (torch.zeros(2, 5, 8, 8), ValueError, "1, 3 or 4 channels"),
        ("one.jpg", TypeError, "put a single image into a list"),
        (Path("one.jpg"), TypeError, "put a single image into a list"),
        ({"a": 1}, TypeError, "got dict"),
        (iter([]), TypeError, "got list_iterator"),
        (7, TypeError, "got int"),
        ([], ValueError, "at least one image"),
        (np.zeros((0, 3, 8, 8)), ValueError, "at least one image"),
        (["a.jpg", None], TypeError, "image 1 is None"),
        (["a.jpg", ""], TypeError, "image 1 is ''"),
        (pd.DataFrame({"file": ["a.jpg", np.nan]}), TypeError, "image 1 is nan"),
        (pd.DataFrame({"file": ["a.jpg"], "size": [1]}), ValueError, r"got 2: \['file', 'size'\]; give that column"),
        (pd.DataFrame(), ValueError, "must have one column"),
        (pd.DataFrame({"x": [1.5]}), TypeError, "image 0 is 1.5"),
        (pl.DataFrame({"file": ["a.jpg", None]}), TypeError, "image 1 is None"),
        (pl.LazyFrame({"file": ["a.jpg"]}), TypeError, r"use \.collect\(\)"),
    ],
)
def test_what_holds_no_images_is_refused_with_the_way_out(images, error, complaint):
    with pytest.raises(error, match=complaint):
        images_of(images)


def test_without_pillow_files_name_the_extra_and_arrays_are_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert all_of(scene().transpose(2, 0, 1)[None]).shape == (1, 3, 32, 32)
    with pytest.raises(ImportError, match=r"extra `images`: pip install 'coverwell\[images\]'"):
        images_of(["a.jpg"])
    with pytest.raises(ImportError, match="extra `images`"):
        all_of(Deck(["a.jpg"]))
