"""Speed on images: what it saves to keep the features of the frozen layers, and images per second at prediction.

Training from images runs the trunk on every batch of every member, as there is no cache; training from features
reads what the trunk computed once. Both train the same tails in batches of one size by the same optimizer. They take
turns in one process, so that both meet the same load, and the fastest turn of each counts. On the CPU networks have one
thread, not counting those that decode, and seconds are CPU seconds of the process; on a GPU they are the clock's. A
run replaces the results of its own device and keeps those of others; `--parts` measures and replaces some tables
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from machine import Work, at_the_end, environment, fastest, in_turns, place, seconds_of, threads, three_digits
from PIL import Image
from stacks import SEED, Stack
from torch import Tensor

from coverwell import MatchedRegressor, Schedule
from coverwell.inputs.features import bytes_kept, features_of
from coverwell.inputs.images import images_of
from coverwell.networks.resnet import ResNet18
from reproduction.data import load_images

HERE = Path(__file__).parent
# The least training: the networks are as large as ever, and speed does not depend on what was learned.
BRIEFLY: dict[str, Any] = {
    "schedule": Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1),
    "repeats": 1,
    "random_state": SEED,
}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    images: int
    predicted: int
    turns: int
    batch_size: int = 128
    members: tuple[int, ...] = (1, 5)
    predicting: int = 5  # members of F, and of I, at prediction
    size: int = 224
    first_fit: int = 40
    epochs: int = (
        1  # from features in one turn; on a GPU as many as a turn of Algorithm 1 has, which captures a step once
    )


FULL = {
    "cpu": Sizes(images=128, predicted=128, turns=2, batch_size=64),
    "cuda": Sizes(images=5_994, predicted=5_794, turns=3, epochs=int(ResNet18.defaults["mean_epochs"])),
}
QUICK = Sizes(images=20, predicted=4, turns=1, batch_size=10, size=32, predicting=2, first_fit=20)


# Images ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Boxed:
    """Images that are read when asked for, and their boxes in fractions of the sides."""

    images: Any
    boxes: np.ndarray

    def __len__(self) -> int:
        return len(self.boxes)

    def first(self, n: int) -> Boxed:
        return Boxed(self.images[:n], self.boxes[:n])


@dataclass(frozen=True)
class InOrder:
    """A dataset of some of the images, in an order that may name one more than once."""

    images: Any
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> Any:
        return self.images[int(self.rows[at])]


def birds(n: int, *, train: bool) -> Boxed:
    """Some images of the training or the test part of CUB-200-2011."""
    cub = load_images("cub", clip=None)
    rows = np.random.default_rng(SEED).permutation(np.flatnonzero(cub.train == train))
    part = cub.take(rows[:n])
    return Boxed(part.images, part.fractions)


def rectangles(folder: Path, n: int, side: int = 48) -> Boxed:
    """Bright rectangles on noise, as files of their own."""
    rng = np.random.default_rng(SEED)
    folder.mkdir(parents=True)
    boxes, paths = np.empty((n, 4)), []
    for number in range(n):
        left, top, width, height = rng.integers(side // 4, side // 2, 4)
        pixels = rng.integers(0, 100, (side, side, 3), dtype=np.uint8)
        pixels[top : top + height, left : left + width] += 150
        boxes[number] = np.array([left, top, width, height]) / side
        paths.append(folder / f"{number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return Boxed(paths, boxes)


@dataclass(frozen=True)
class Setting:
    """The settings of all parts."""

    sizes: Sizes
    device: torch.device
    weights: str | None
    train: Boxed
    test: Boxed
    folder: Path  # for caches, empty at the start

    def recipe(self, cache: Path | None = None) -> ResNet18:
        return ResNet18(weights=self.weights, size=self.sizes.size, cache=cache)

    def features(self, boxed: Boxed, cache: Path) -> np.ndarray:
        trunk = seeded_trunk(self.recipe())
        return features_of(boxed.images, trunk, size=self.sizes.size, device=self.device, cache=cache)


def seeded_trunk(recipe: ResNet18) -> torch.nn.Module:
    torch.manual_seed(SEED)
    return recipe.trunk()


# Features ------------------------------------------------------------------------------------------------------------


def feature_times(setting: Setting) -> dict[str, Any]:
    """Seconds to compute the features once and keep them, and to find them again; bytes on disk."""
    cache = setting.folder / "once"
    if setting.device.type == "cuda":  # kernels are loaded
        setting.features(setting.train.first(256), setting.folder / "unused")
    computed = seconds_of(lambda: setting.features(setting.train, cache), setting.device)
    return {
        "images": len(setting.train),
        "shape": list(setting.features(setting.train, cache).shape[1:]),
        "computed": computed,
        "found again": seconds_of(lambda: setting.features(setting.train, cache), setting.device),
        "bytes": bytes_kept(cache),
    }


# Training ------------------------------------------------------------------------------------------------------------


def stack_on(features: Tensor, setting: Setting, n_members: int) -> Stack:
    """A team whose members all train on all images, each in an order of its own."""
    x, y = features.to(setting.device), torch.from_numpy(setting.train.boxes).float().to(setting.device)
    return Stack.of(setting.recipe(), x, y, n_members, batch_size=setting.sizes.batch_size)


class FromImages:
    """Trains as many tails with the trunk run on every batch; images of coming batches are decoded meanwhile."""

    def __init__(self, like: Stack, setting: Setting) -> None:
        self.setting, self.stack, self.batches = setting, like, like.batches
        self.trunk = seeded_trunk(setting.recipe()).to(setting.device)
        self.team, self.optimizer = like.learner.team, like.learner.optimizer

    def epoch(self) -> None:
        steps = list(self.batches.epoch())  # (member, batch) each
        order = torch.cat([rows.flatten() for rows in steps]).cpu().numpy()
        images = images_of(InOrder(self.setting.train.images, order))
        self.team.train()
        with closing(images.batches(size=self.setting.sizes.size, batch_size=self.batches.batch_size)) as batches:
            for rows in steps:
                features = torch.stack([self.trunk(next(batches).to(self.setting.device)) for _ in rows])
                losses = self.stack.squared_error(self.team(features), rows)
                losses.sum().backward()
                self.optimizer.step()


def epoch_times(setting: Setting) -> list[dict[str, Any]]:
    """Seconds per epoch of all members, in both ways."""
    features = torch.from_numpy(np.array(setting.features(setting.train, setting.folder / "training")))
    found, epochs = [], setting.sizes.epochs
    for n_members in setting.sizes.members:
        stack = stack_on(features, setting, n_members)
        other = FromImages(stack_on(features, setting, n_members), setting)
        works: dict[str, Work] = {
            "images": other.epoch,
            "features": partial(stack.descend, stack.squared_error, epochs),
        }
        ways = in_turns(works, setting.device, setting.sizes.turns)
        ways["features"] = fastest([seconds / epochs for seconds in ways["features"]["all"]])
        found.append({"members": n_members, "batch size": stack.batches.batch_size, "ways": ways})
    return found


# Prediction ----------------------------------------------------------------------------------------------------------


def prediction_times(setting: Setting) -> dict[str, Any]:
    """Seconds of `predict_interval` on images, trunk and decoding included, and of the members alone on features."""
    few = setting.train.first(setting.sizes.first_fit)
    model = MatchedRegressor(
        0.95, network=setting.recipe(), folds=setting.sizes.predicting, device=str(setting.device), **BRIEFLY
    ).fit(few.images, few.boxes)
    features = setting.features(setting.test, setting.folder / "prediction")
    (team,) = model.predictor_.moved(setting.device).fitted_teams
    works: dict[str, Work] = {
        "images": lambda: model.predict_interval(setting.test.images),
        "features": lambda: team.estimate(features),
    }
    return {
        "images": len(setting.test),
        "members": team.n_members,
        "ways": in_turns(works, setting.device, setting.sizes.turns),
    }


# Everything ----------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Setting], Any]] = {
    "features": feature_times,
    "epochs": epoch_times,
    "prediction": prediction_times,
}


def measure(part: str, setting: Setting) -> dict[str, Any]:
    """One table, with where and under what load it was measured."""
    weights = "random" if setting.weights is None else Path(setting.weights).name
    where = environment(setting.device, packages={"pillow": PIL.__version__}, seed=SEED, weights=weights)
    with threads(1):
        found = PARTS[part](setting)
    return {
        "environment": at_the_end(where),
        "sizes": asdict(setting.sizes),
        "found": found,
    }


# The report ----------------------------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> str:
    texts = [
        "# Speed on images",
        "`make bench-localization`. ResNet-18: the trunk through layer 3 is frozen, layer 4 and the head are trained. "
        "Alternatives ran in turns, and the fastest turn of each counts. On the CPU, seconds are CPU seconds with one "
        "thread for the networks; on a GPU, wall-clock seconds. With random weights the trunk is as fast as with "
        "trained ones.",
    ]
    for name, parts in sorted(results.items()):
        texts.append("## GPU" if name == "cuda" else "## CPU")
        for part, lines in LINES.items():
            if part in parts:
                texts += [lines(parts[part]["found"], parts[part]["sizes"]), place(parts[part]["environment"])]
    return "\n\n".join(texts) + "\n"


def feature_lines(found: dict[str, Any], sizes: dict[str, Any]) -> str:
    n, shape = found["images"], " x ".join(map(str, found["shape"]))
    return (
        f"### Computing the features\n\n"
        f"{n:,} images, resized to {sizes['size']} x {sizes['size']}, each {shape} numbers in float16: "
        f"{three_digits(found['computed'])} s with decoding, {three_digits(n / found['computed'])} images per second; "
        f"found in the cache in {three_digits(found['found again'])} s, including their checksum. On disk "
        f"{found['bytes'] / 1e6:,.1f} MB, {found['bytes'] / n / 1e3:,.1f} kB per image; twice that with mirror images."
    )


def epoch_table(cases: list[dict[str, Any]], sizes: dict[str, Any]) -> str:
    lines = [
        "### Training, seconds per epoch",
        "",
        f"{sizes['images']:,} images of {sizes['size']} x {sizes['size']} for each member, batches of "
        f"{cases[0]['batch size']}; forward, backward and Adam. Each member has its own order of images, and in a "
        f"cross-fit its own images, so without cached features the trunk runs for each of them.",
        "",
        "| members | from images | from cached features | times faster |",
        "|---|---|---|---|",
    ]
    for case in cases:
        images, features = (case["ways"][way]["seconds"] for way in ("images", "features"))
        lines.append(
            f"| {case['members']} | {three_digits(images)} | {three_digits(features)} | {images / features:.1f} |"
        )
    return "\n".join(lines)


def prediction_lines(found: dict[str, Any], sizes: dict[str, Any]) -> str:
    n, members = found["images"], found["members"]
    images, features = (found["ways"][way]["seconds"] for way in ("images", "features"))
    return (
        f"### Prediction\n\n"
        f"{n:,} images of {sizes['size']} x {sizes['size']}, {members} + {members} members, without mirror images: "
        f"{three_digits(n / images)} images per second with `predict_interval`, including decoding and the trunk, "
        f"and {three_digits(n / features)} from features, for the members alone."
    )


LINES: dict[str, Callable[[Any, dict[str, Any]], str]] = {
    "features": feature_lines,
    "epochs": epoch_table,
    "prediction": prediction_lines,
}


def kept(path: Path) -> dict[str, Any]:
    """Results of earlier runs, by device and part."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def data_for(sizes: Sizes, folder: Path, *, quick: bool) -> tuple[Boxed, Boxed]:
    """Images to train on, and others to predict."""
    if quick:
        return rectangles(folder / "train", sizes.images), rectangles(folder / "test", sizes.predicted)
    return birds(sizes.images, train=True), birds(sizes.predicted, train=False)


def run(name: str, arguments: argparse.Namespace, results: dict[str, Any], file: Path) -> None:
    """All parts on one device, each written as soon as it is there."""
    sizes = QUICK if arguments.quick else FULL[name]
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        train, test = data_for(sizes, Path(folder), quick=arguments.quick)
        setting = Setting(sizes, torch.device(name), arguments.weights, train, test, Path(folder))
        for part in arguments.parts:
            results.setdefault(name, {})[part] = measure(part, setting)
            file.write_text(json.dumps(results, indent=1) + "\n")
            file.with_suffix(".md").write_text(report(results))


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="generated images, seconds: whether everything runs")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="one device alone; else the CPU, and a GPU if there")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="some of the tables")
    parser.add_argument("--data", type=Path, help="folder of the data; else as reproduction.data finds it")
    parser.add_argument("--weights", help="file of the trunk's weights; else they are random, which is as fast")
    parser.add_argument("--scratch", type=Path, help="folder in which features lie meanwhile; else the system's own")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args(words)
    if arguments.data:
        os.environ["COVERWELL_DATA"] = str(arguments.data)
    there = ["cpu", "cuda"] if torch.cuda.is_available() and not arguments.quick else ["cpu"]
    file = arguments.out / ("localization-quick.json" if arguments.quick else "localization.json")
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = kept(file)
    for name in [arguments.device] if arguments.device else there:
        run(name, arguments, results, file)
    print(report(results))


if __name__ == "__main__":
    main()
