"""Made-up images in the layouts of CUB-200-2011, and the real ones where they are."""

import hashlib
import shutil
import zipfile
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from reproduction.data import images

SHRINK = 2  # originals are so many times larger than their reduced copies
SHARDS = ("train-0", "train-1", "test-0")


@dataclass(frozen=True)
class Made:
    """One made-up image: a bright box on dark noise."""

    number: int
    path: str
    shard: str
    size: tuple
    box: tuple

    @property
    def split(self):
        return self.shard.split("-")[0]

    def image(self):
        width, height = self.size
        noise = np.random.default_rng(self.number).integers(0, 60, (height, width, 3), dtype=np.uint8)
        left, top, across, down = self.box
        noise[top : top + down, left : left + across] += 180
        return Image.fromarray(noise)


MADE = (
    Made(1, "001.Robin/Robin_0007.jpg", "test-0", (60, 40), (10, 8, 20, 24)),
    Made(2, "001.Robin/Robin_0003.jpg", "train-0", (60, 44), (4, 4, 40, 30)),
    Made(3, "001.Robin/Robin_0001.jpg", "train-1", (50, 80), (0, 0, 50, 80)),
    Made(4, "002.Winter_Wren/Wren_0002.jpg", "train-0", (64, 64), (32, 16, 16, 32)),
    Made(5, "002.Winter_Wren/Wren_0009.jpg", "test-0", (80, 50), (40, 20, 42, 20)),  # 2 pixels past the right edge
    Made(6, "002.Winter_Wren/Wren_0004.jpg", "train-1", (72, 48), (8, 8, 24, 24)),
)


def write_reduced(folder):
    """Shards and annotations in the layout of the reduced copy."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in SHARDS:
        with zipfile.ZipFile(folder / f"{shard}.zip", "w") as out:
            for made in (made for made in MADE if made.shard == shard):
                small = made.image().resize((made.size[0] // SHRINK, made.size[1] // SHRINK))
                with out.open(f"{made.number:05}.jpg", "w") as file:
                    small.save(file, "JPEG", quality=95)
    names = ["image_id", "name", "split", "shard", *[f"orig_{name}" for name in ("width", "height", *"xywh")]]
    rows = [(made.number, made.path, made.split, f"{made.shard}.zip", *made.size, *made.box) for made in MADE]
    pd.DataFrame(rows, columns=names).to_csv(folder / "annotations.csv", index=False)


def write_original(folder):
    """Folders of images and lists in the layout of the original archive."""
    for made in MADE:
        (folder / "images" / made.path).parent.mkdir(parents=True, exist_ok=True)
        made.image().save(folder / "images" / made.path, "JPEG", quality=95)
    lists = {
        "images.txt": lambda made: made.path,
        "bounding_boxes.txt": lambda made: " ".join(f"{side:.1f}" for side in made.box),
        "train_test_split.txt": lambda made: str(int(made.split == "train")),
    }
    for name, words in lists.items():
        (folder / name).write_text("".join(f"{made.number} {words(made)}\n" for made in MADE))


@pytest.fixture(scope="session")
def made_images():
    return MADE


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Both layouts, side by side: reduced/ and CUB_200_2011/."""
    folder = tmp_path_factory.mktemp("made")
    write_reduced(folder / "reduced")
    write_original(folder / "CUB_200_2011")
    return folder


@pytest.fixture
def data(made, tmp_path, monkeypatch):
    """An empty data folder and an empty cache; "cub" means the made-up images."""
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = [*(made / "reduced").iterdir(), *(made / "CUB_200_2011").glob("*.txt")]
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    monkeypatch.setitem(images.CUB, "sha256", sums)
    monkeypatch.setattr(images, "SHARDS", SHARDS)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def reduced(data, made):
    return shutil.copytree(made / "reduced", data / "localization" / "cub_200_2011")


@pytest.fixture
def original(data, made):
    return shutil.copytree(made / "CUB_200_2011", data / "CUB_200_2011")


@pytest.fixture(scope="module")
def cub(shared_data, tmp_path_factory):
    """The real images, boxes as published."""
    folder = shared_data / "localization" / "cub_200_2011"
    if not folder.is_dir():
        pytest.skip(f"CUB-200-2011 is not in {folder}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVERWELL_DATA", str(shared_data))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return images.load_images("cub", clip=None)
