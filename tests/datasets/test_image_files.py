"""Pictures come one at a time from files and zip files, as RGB; a broken one is named."""

import copy
import io
import multiprocessing
import os
import pickle
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from coverwell.datasets import ImageFile, ImageFileError, ImageFiles
from numpy.typing import NDArray
from PIL import Image

from coverwell import datasets
from coverwell.inputs.images import ImageError, images_of


def scene() -> Image.Image:
    """A bright box on noise."""
    pixels = np.random.default_rng(0).integers(0, 60, (40, 60, 3), dtype=np.uint8)
    pixels[8:32, 10:30] += 180
    return Image.fromarray(pixels)


def jpeg(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=95)
    return out.getvalue()


def picture_file(folder: Path, picture: Image.Image, name: str = "picture.png", **options: object) -> ImageFiles:
    picture.save(folder / name, **options)  # type: ignore[arg-type]
    return ImageFiles([ImageFile(folder / name)])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_pictures_of_every_mode_become_rgb(tmp_path: Path, mode: str) -> None:
    name = {"CMYK": "picture.tif", "YCbCr": "picture.jpg"}.get(mode, "picture.png")
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


@pytest.mark.parametrize("alpha", [0, 51, 128, 255])
def test_transparency_is_laid_on_white_as_in_all_other_pictures(tmp_path: Path, alpha: int) -> None:
    picture = scene().crop((0, 0, 40, 40))  # a square, so that nothing is squeezed
    picture.putalpha(alpha)
    files = picture_file(tmp_path, picture)
    from_path, from_data_set = images_of([tmp_path / "picture.png"]).read(0, 40), images_of(files).read(0, 40)
    np.testing.assert_allclose(from_data_set, from_path, atol=0.5 / 255 + 1e-6)  # the data set rounds to eight bits


@pytest.mark.parametrize(("mode", "name"), [("I;16", "deep.png"), ("F", "deep.tif")])
def test_more_than_eight_bits_are_refused(tmp_path: Path, mode: str, name: str) -> None:
    with pytest.raises(ImageFileError, match=rf"{name} cannot be read: it must have 8 bits per channel.*mode here is"):
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
    with pytest.raises(
        ImageFileError,
        match=rf"bomb.png cannot be read: it is larger than Pillow takes for safe \(Image size \({side * side} ",
    ):
        files[0]


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "tif"])
@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_broken_picture_is_named(tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"broken.{suffix}"
    scene().save(path)
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "text": b"not a picture"}[damage])
    with pytest.raises(ImageFileError, match=rf"{path} cannot be read: .*; replace it or leave it out"):
        ImageFiles([ImageFile(path)])[0]


def test_a_missing_picture_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageFileError, match=r"nobody.jpg cannot be read: FileNotFoundError"):
        ImageFiles([ImageFile(tmp_path / "nobody.jpg")])[0]
    with pytest.raises(ImageFileError, match=r"nobody.zip/00001.jpg cannot be read: FileNotFoundError.*nobody.zip'"):
        ImageFiles([ImageFile(tmp_path / "nobody.zip", "00001.jpg")])[0]
    with pytest.raises(ImageFileError, match=rf"{tmp_path} cannot be read: IsADirectoryError"):
        ImageFiles([ImageFile(tmp_path)])[0]


def test_a_missing_or_broken_entry_is_named_with_its_shard(tmp_path: Path) -> None:
    shard = tmp_path / "train-0.zip"
    whole = jpeg(scene())
    with zipfile.ZipFile(shard, "w") as out:
        out.writestr("00001.jpg", whole[: len(whole) // 2])
        out.writestr("00002.jpg", whole)
    content = shard.read_bytes()
    at = content.rindex(whole) + len(whole) // 2
    shard.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
    cut, flipped, missing = (ImageFile(shard, f"0000{number}.jpg") for number in (1, 2, 3))
    images = ImageFiles([cut, flipped, missing])
    with pytest.raises(ImageFileError, match=r"train-0.zip/00001.jpg cannot be read: .*replace it or leave it out"):
        images[0]
    with pytest.raises(ImageFileError, match=r"train-0.zip/00002.jpg cannot be read: .*CRC"):
        images[1]
    with pytest.raises(
        ImageFileError, match=r"train-0.zip/00003.jpg cannot be read: .*train-0.zip has no entry 00003.jpg"
    ):
        images[2]


def test_a_file_that_is_no_zip_is_named(tmp_path: Path) -> None:
    (tmp_path / "train-0.zip").write_bytes(b"moved")
    with pytest.raises(ImageFileError, match=r"train-0.zip/00001.jpg cannot be read: .*not a zip file"):
        ImageFiles([ImageFile(tmp_path / "train-0.zip", "00001.jpg")])[0]


def test_a_broken_picture_is_the_same_error_read_as_a_path_or_in_a_data_set(tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(jpeg(scene())[:500])
    told = []
    for images in ([path], ImageFiles([ImageFile(path)])):
        with pytest.raises(ImageError, match=r"broken\.jpg") as caught:
            images_of(images).read(0, 32)
        told.append(str(caught.value).replace(f"image 0 ({path})", str(path)))
    assert told[0] == told[1]
    assert caught.value.__notes__ == ["while reading image 0"]


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
    files = picture_file(tmp_path, scene())
    before = files.key
    assert files.key == before
    os.utime(tmp_path / "picture.png", ns=(1, 1))
    assert files.key != before
    (tmp_path / "picture.png").unlink()
    with pytest.raises(ImageFileError, match=r"picture.png cannot be read: FileNotFoundError"):
        files.key  # noqa: B018


def test_a_used_data_set_can_be_pickled_and_copied(reduced: Path) -> None:
    images = datasets.load_images("cub", clip=None).images
    first = images[0]  # the shard is open now
    for twin in (pickle.loads(pickle.dumps(images)), copy.deepcopy(images)):
        assert np.array_equal(twin[0], first)
        assert twin.key == images.key


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
