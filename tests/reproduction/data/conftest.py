"""Made-up images in the layouts of CUB-200-2011, and the real ones where they are."""

import csv
import hashlib
import io
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reproduction.data import images
from reproduction.data.images import BoxedImages, load_images

SHRINK = 2  # originals are so many times larger than their reduced copies


@dataclass(frozen=True)
class Made:
    """One made-up image: a bright box on dark noise."""

    number: int
    path: str
    shard: str
    size: tuple[int, int]
    box: tuple[int, int, int, int]

    @property
    def split(self) -> str:
        return self.shard.split("-")[0]

    def image(self) -> Image.Image:
        width, height = self.size
        noise = np.random.default_rng(self.number).integers(0, 60, (height, width, 3), dtype=np.uint8)
        left, top, across, down = self.box
        noise[top : top + down, left : left + across] += 180
        return Image.fromarray(noise)


MADE = (
    Made(1, "001.Robin/Robin_0007.jpg", "test-0", (60, 40), (10, 8, 20, 24)),
    Made(2, "001.Robin/Robin_0003.jpg", "train-0", (60, 44), (4, 4, 40, 30)),
    Made(3, "001.Robin/Robin_0001.jpg", "train-1", (50, 80), (0, 0, 50, 80)),
    Made(4, "002.Wren/Wren_0002.jpg", "train-0", (64, 64), (32, 16, 16, 32)),
    Made(5, "002.Wren/Wren_0009.jpg", "test-0", (80, 50), (40, 20, 42, 20)),  # 2 pixels past the right edge
    Made(6, "002.Wren/Wren_0004.jpg", "train-1", (72, 48), (8, 8, 24, 24)),
)
SHARDS = ("train-0", "train-1", "test-0")


def jpeg(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95)
    return out.getvalue()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_reduced(folder: Path) -> None:
    """Shards and annotations in the layout of the reduced copy."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in SHARDS:
        with zipfile.ZipFile(folder / f"{shard}.zip", "w") as out:
            for made in MADE:
                if made.shard == shard:
                    small = made.image().resize((made.size[0] // SHRINK, made.size[1] // SHRINK))
                    out.writestr(f"{made.number:05}.jpg", jpeg(small))
    header = "image_id,name,class_id,split,shard,orig_width,orig_height,orig_x,orig_y,orig_w,orig_h\r\n"
    with (folder / "annotations.csv").open("w", newline="") as file:
        file.write(header)
        lines = csv.writer(file)
        for made in MADE:
            box = (float(side) for side in made.box)
            lines.writerow(
                [made.number, made.path, int(made.path[:3]), made.split, f"{made.shard}.zip", *made.size, *box]
            )


def write_original(folder: Path) -> None:
    """Folders of images and lists in the layout of the original archive."""
    for made in MADE:
        (folder / "images" / made.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / made.path).write_bytes(jpeg(made.image()))
    lists: dict[str, Callable[[Made], str]] = {
        "images.txt": lambda made: made.path,
        "bounding_boxes.txt": lambda made: " ".join(f"{side:.1f}" for side in made.box),
        "train_test_split.txt": lambda made: str(int(made.split == "train")),
    }
    for name, words in lists.items():
        (folder / name).write_text("".join(f"{made.number} {words(made)}\n" for made in MADE))


@pytest.fixture(scope="session")
def made_images() -> tuple[Made, ...]:
    """The made-up images, in the order of their numbers."""
    return MADE


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both layouts, side by side: reduced/ and CUB_200_2011/."""
    folder = tmp_path_factory.mktemp("made")
    write_reduced(folder / "reduced")
    write_original(folder / "CUB_200_2011")
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder and an empty cache; "cub" means the made-up images."""
    monkeypatch.setenv("COVERWELL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = [*(made / "reduced").iterdir(), *(made / "CUB_200_2011").glob("*.txt")]
    monkeypatch.setitem(images.CUB, "sha256", {path.name: sha256(path) for path in files})
    monkeypatch.setattr(images, "SHARDS", SHARDS)
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


@pytest.fixture(scope="module")
def cub(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> BoxedImages:
    """The real images, boxes as published."""
    folder = shared_data / "localization" / "cub_200_2011"
    if not folder.is_dir():
        pytest.skip(f"CUB-200-2011 is not in {folder}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVERWELL_DATA", str(shared_data))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return load_images("cub", clip=None)
