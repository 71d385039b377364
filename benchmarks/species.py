"""Bird species of CUB-200-2011: `MatchedClassifier` with a ResNet-18, matched and not, beside a plain fine-tuned head.

All learn from the official training photographs of some species and are measured once on their test photographs. With
fewer than all 200 species, fits are shorter than the defaults. `--selection` compares learning rates within the
training photographs. One JSON line per method goes to results/species.jsonl; what is there is not run again. Pictures
with the photographs go into a folder that git ignores.
"""

from __future__ import annotations

import argparse
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from class_report import FEWEST, of_size
from classification import of_sets, quality
from machine import seconds_of
from numpy.typing import NDArray
from result_lines import append, environment, read_lines
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from coverwell import MatchedClassifier, Schedule
from coverwell.inputs.features import features_of
from coverwell.inputs.scaling import Mirroring
from coverwell.networks.resnet import ResNet18
from coverwell.paper.losses import confidence_loss
from coverwell.paper.scores import Adaptive
from coverwell.plots.chart import COLOURS
from coverwell.training.device import Settings, device_from, seeded
from coverwell.training.learner import Learner, outputs_of
from coverwell.training.rows import Rows, as_tensor
from reproduction import figures
from reproduction.domains.boxes import CUB, GENERATED, BoxProblem, TrunkWeights, box_problem, trunk_weights
from reproduction.tables.typeset import markdown

SEED = 0
LEVELS = (0.9, 0.95)
ALL = 200  # species
CLASSES, SIZE = 20, 96  # what a CPU does in minutes
TWICE = "matched, 2 repeats"  # the default, with fewer than all species
MODELS: dict[str, dict[str, Any]] = {"matched": {}, "unmatched": {"matching": None}, TWICE: {"repeats": 2}}
HEAD = "plain head"
# With fewer than all species; otherwise the defaults.
SHORT: dict[str, Any] = {
    "folds": 3,
    "repeats": 1,
    "schedule": Schedule(max_rounds=3, mean_epochs=4, interval_epochs=2),
}
QUICK_SIZE, QUICK = 32, {**SHORT, "schedule": Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1)}
RATES, EPOCHS, HELD_OUT = (3e-4, 1e-3, 3e-3), (6, 12), 3  # tried within the training photographs, without a third
MIRRORING = Mirroring("same")
OF_EACH = 4  # birds with small, middle and large sets
MOST_NAMES, SMALL = 7, 6.0  # points

Array = NDArray[np.float64]
Line = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Birds:
    """Training and test photographs of some species, and how all methods see them."""

    problem: BoxProblem
    recipe: ResNet18
    weights: str
    device: str
    settings: dict[str, Any]

    @property
    def classes(self) -> NDArray[Any]:
        return np.unique(self.problem.train.species)

    def places(self, species: NDArray[Any]) -> NDArray[np.intp]:
        return np.searchsorted(self.classes, species)

    @cached_property
    def trunk(self) -> torch.nn.Module:
        with seeded(SEED, torch.device("cpu")):  # without weights it is random
            return self.recipe.trunk()

    def features(self, images: Any) -> NDArray[Any]:
        how: dict[str, Any] = {"size": self.recipe.size, "mirrored": True, "device": self.device}
        return features_of(images, self.trunk, cache=self.recipe.cache, **how)

    @property
    def model(self) -> MatchedClassifier:
        own = {"device": self.device, "random_state": SEED}
        return MatchedClassifier(LEVELS, network=self.recipe, **self.settings, **own)

    def about(self, method: str) -> Line:
        known = {"data": self.problem.data, "n_classes": len(self.classes), "size": self.recipe.size}
        rows = {"n_train": len(self.problem.train), "n_test": len(self.problem.test)}
        return {"method": method, **known, "seed": SEED, "levels": list(LEVELS), **rows, "weights": self.weights}


def birds_of(n_classes: int, recipe: ResNet18, weights: str, *, device: str, quick: bool) -> Birds:
    """The first species in a random order, which the seed decides."""
    problem = box_problem(GENERATED if quick else CUB)
    chosen = np.random.default_rng(SEED).permutation(np.unique(problem.train.species))[:n_classes]
    halves = {"train": problem.train, "test": problem.test}
    halves = {name: half.take(np.isin(half.species, chosen)) for name, half in halves.items()}
    settings = QUICK if quick else SHORT if n_classes < ALL else {}
    return Birds(replace(problem, **halves), recipe, weights, device, settings)


# The plain head ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Head:
    """One network on the cross-entropy, whose learning rate falls to zero along a cosine."""

    epochs: int
    learning_rate: float
    batch_size: int

    @staticmethod
    def like(model: MatchedClassifier) -> Head:
        """As long as the mean network of a model may train, with its rate and its batches."""
        schedule = model.resolved_params()["schedule"]
        epochs = int(schedule.max_rounds * schedule.mean_epochs)
        return Head(epochs, float(schedule.learning_rate), int(schedule.batch_size))

    def fitted(self, birds: Birds, left_out: NDArray[np.bool_] | None = None) -> Learner:
        """A trained network; it learns from all training photographs but those left out."""
        device, y = device_from(birds.device), np.eye(len(birds.classes))[birds.places(birds.problem.train.species)]
        trains = torch.ones(1, 1, 2 * len(y), dtype=torch.bool)
        if left_out is not None:
            trains[0, 0] = torch.from_numpy(~left_out.repeat(2))
        rows = Rows(
            x=as_tensor(MIRRORING.flat(birds.features(birds.problem.train.images)))[None].to(device),
            y=torch.from_numpy(MIRRORING.rows(y)).float()[None].to(device),
            trains=trains.to(device),
            leaves_out=~trains.to(device),
            coverage=torch.tensor([LEVELS], device=device),
        )

        def loss(outputs: Tensor, batch: Tensor) -> Tensor:
            y = rows.at(rows.y, batch)
            return confidence_loss(y, outputs, doubt=y.new_zeros(y.shape[:2]))

        with seeded(SEED, device):
            settings = Settings(1, self.batch_size, self.learning_rate, 0.0, device)
            learner = Learner(birds.recipe, rows, len(birds.classes), settings)
            learner.descend(rows, self.epochs, loss, annealed=True)
        return learner


def probabilities(learner: Learner, birds: Birds, images: Any) -> Array:
    """Probabilities (image, class), averaged over the image and its mirror image."""
    x = as_tensor(MIRRORING.flat(birds.features(images)))[None].to(device_from(birds.device))
    outputs = outputs_of(learner.average, x, torch.float32)[0]
    p: Array = MIRRORING.merged(outputs.softmax(dim=-1).double().cpu()).numpy()
    return p


def softmax_sets(p: Array, levels: Sequence[float] = LEVELS) -> NDArray[np.bool_]:
    """The likeliest classes, until their probabilities sum to the level: (row, class, level), as if p were right."""
    likelier = Adaptive().of(torch.from_numpy(p)).numpy() - p
    return np.asarray(likelier[..., None] < np.array(levels))


# Measuring -----------------------------------------------------------------------------------------------------------


def measured(p: Array, sets: NDArray[np.bool_], y: NDArray[np.intp]) -> Line:
    return quality(p, y) | {"sets": of_sets(sets, y)}


def measure(method: str, birds: Birds) -> Line:
    """One line: a fit on the training photographs, and what it says of the test photographs."""
    train, test = birds.problem.train, birds.problem.test
    y, device = birds.places(test.species), device_from(birds.device)
    extra: Line = {}
    if method == HEAD:
        head, found = Head.like(birds.model), []
        seconds = seconds_of(lambda: found.append(head.fitted(birds)), device)
        p = probabilities(found[0], birds, test.images)
        sets, settings = softmax_sets(p), asdict(head)
    else:
        model = birds.model.set_params(**MODELS[method])
        seconds = seconds_of(lambda: model.fit(train.images, train.species), device)
        p, sets = model.classified(test.images)
        known, of_train = model.out_of_fold_, birds.places(train.species)
        params = model.resolved_params()
        settings = {name: params[name] for name in ("folds", "repeats")} | asdict(params["schedule"])
        extra = {"rounds": len(model.rounds_), "out_of_fold": measured(known.probability, known.members, of_train)}
    line = {**birds.about(method), "settings": settings, **measured(p, sets, y), "seconds": round(seconds, 1)}
    examples = {"examples": examples_of(p, sets[..., 0], birds)} if method == "matched" else {}
    return {**line, **extra, **examples, **environment(birds.device)}


def examples_of(p: Array, sets: NDArray[np.bool_], birds: Birds) -> list[list[Line]]:
    """Test photographs with small, middle and large sets: the first, middle and last ones by size, ties at random."""
    test, classes = birds.problem.test, birds.classes
    shuffled = np.random.default_rng(SEED).permutation(len(test))
    order = shuffled[np.argsort(sets[shuffled].sum(axis=1), kind="stable")]
    middle = (len(order) - OF_EACH) // 2

    def shown(row: int) -> Line:
        inside = [place for place in np.argsort(-p[row]) if sets[row, place]]
        found = [[str(classes[place]), round(float(p[row, place]), 3)] for place in inside]
        return {"image_id": int(test.image_ids[row]), "species": str(test.species[row]), "set": found}

    parts = order[:OF_EACH], order[middle : middle + OF_EACH], order[-OF_EACH:]
    return [[shown(int(row)) for row in part] for part in parts]


def select(birds: Birds, path: Path) -> None:
    """Add a line for each learning rate and length that is not there: a plain head's scores on a third left out."""
    train = birds.problem.train
    y = birds.places(train.species)
    _, rows = next(StratifiedKFold(HELD_OUT, shuffle=True, random_state=SEED).split(y, y))
    left_out, batch_size = np.isin(np.arange(len(y)), rows), Head.like(birds.model).batch_size
    done = [line["settings"] for line in read_lines(path)]
    for head in (Head(epochs, rate, batch_size) for epochs in EPOCHS for rate in RATES):
        if asdict(head) not in done:
            p = probabilities(head.fitted(birds, left_out), birds, train.images[left_out])
            line = {**birds.about(HEAD), "settings": asdict(head), **quality(p, y[left_out])}
            append(path, {**line, **environment(birds.device)})


# The report ----------------------------------------------------------------------------------------------------------


def report(lines: Sequence[Line]) -> str:
    """A table for each run: so many species, at one size of images."""
    text = ["# Bird species, with sets", ""]
    runs = sorted({(line["n_classes"], line["size"], line["data"]) for line in lines})
    for n_classes, size, data in runs:
        own = [line for line in lines if (line["n_classes"], line["size"], line["data"]) == (n_classes, size, data)]
        text += [f"## {n_classes} species of {data}, {size} x {size} pixels", "", *of_run(own), ""]
    return "\n".join(text)


def of_run(lines: Sequence[Line]) -> list[str]:
    first = lines[0]
    heads = ["accuracy", "Brier", "reliability error (by chance)"]
    heads += [f"{what} at {level}" for level in LEVELS for what in ("coverage", "size")]
    heads += [f"worst size at {LEVELS[0]}", "seconds"]
    rows = []
    for line in sorted(lines, key=lambda line: [*MODELS, HEAD].index(line["method"])):
        chance = f"{line['reliability_error']:.3f} ({line['expected_reliability_error']:.3f})"
        cells = [f"{line['accuracy']:.3f}", f"{line['brier']:.3f}", chance]
        for coverage, size in zip(line["sets"]["coverage"], line["sets"]["size"], strict=True):
            cells += [f"{coverage:.3f}", f"{size:.2f}"]
        rows.append([line["method"], *cells, f"{of_size([line], 'sets'):.3f}", f"{line['seconds']:,.0f}"])
    error = (LEVELS[0] * (1 - LEVELS[0]) / first["n_test"]) ** 0.5
    versions = ", ".join(f"{name} {number}" for name, number in first["versions"].items())
    return [
        *textwrap.wrap(words_of(lines), 140, break_on_hyphens=False),
        "",
        markdown(["", *heads], rows),
        "",
        *textwrap.wrap(
            f"One seed. Chance alone moves a coverage at {LEVELS[0]} by {error:.3f} (one standard error). The worst "
            f"size is the lowest coverage of sets of one size that {FEWEST} photographs have. Seconds are those of the "
            "fit, features of the frozen layers apart; on a CPU they are those of one thread at work. "
            f"(Seed {first['seed']}; weights {first['weights']}; {first['device']}; {versions}.)",
            140,
        ),
    ]


def words_of(lines: Sequence[Line]) -> str:
    """What was run."""
    first, settings = lines[0], {line["method"]: line["settings"] for line in lines}
    words = [f"{first['n_train']:,} training and {first['n_test']:,} test photographs of the official split."]
    if (of_model := settings.get("matched") or settings.get("unmatched")) is not None:
        words.append(
            f"`MatchedClassifier`: {of_model['folds']} folds, {of_model['repeats']} repeat(s), at most "
            f"{of_model['max_rounds']} rounds of {of_model['mean_epochs']} and {of_model['interval_epochs']} epochs, "
            f"learning rate {of_model['learning_rate']:g}, batches of {of_model['batch_size']}."
        )
    if TWICE in settings:
        words.append(
            "With one repeat, out-of-fold scores are those of single networks, which err more than the average that is "
            "deployed: sets cover more than asked. The row of two repeats, the default, was added after the others had "
            "been seen."
        )
    if (head := settings.get(HEAD)) is not None:
        words.append(
            f"The plain head: one network, {head['epochs']} epochs of cross-entropy on all training photographs, the "
            "rate falling to zero; its sets are the likeliest classes until their probabilities sum to the level, "
            "without calibration. All average a photograph and its mirror image."
        )
    if first["n_classes"] < ALL and first["data"] != GENERATED:
        words.append(
            f"This is a part: the first {first['n_classes']} of {ALL} species in a random order, on small images, with "
            "fits shorter than the defaults. All species at full size were not run here; `make bench-species "
            f"CLASSES={ALL} SIZE=224 DEVICE=cuda` is that run, with the defaults."
        )
    return " ".join(words)


def selection_report(lines: Sequence[Line]) -> str:
    """Accuracy, Brier score and log loss on the photographs left out, by learning rate and length."""
    first, heads = lines[0], ["epochs", "learning rate", "accuracy", "Brier", "log loss"]
    rows = [
        [f"{line['settings']['epochs']}", f"{line['settings']['learning_rate']:g}"]
        + [f"{line[score]:.3f}" for score in ("accuracy", "brier", "log_loss")]
        for line in lines
    ]
    words = (
        f"A plain head on the training photographs of {first['n_classes']} species ({first['size']} x {first['size']} "
        f"pixels) without a third of them, measured on that third; no test photograph is touched. One seed "
        f"({first['seed']}); {first['device']}, torch {first['versions']['torch']}."
    )
    return "\n".join(["# Learning rates for species", "", *textwrap.wrap(words, 140), "", markdown(heads, rows), ""])


# The picture ---------------------------------------------------------------------------------------------------------


def draw(line: Line, problem: BoxProblem | None = None) -> Any:
    """Birds with small, middle and large sets at 0.9, below their photographs if a problem is given that has them."""
    n_parts = 1 if problem is None else 2
    height = len(line["examples"]) * 1.35 * n_parts + 0.75
    with figures.new_figure(height) as figure:
        edges = {"left": 0.03, "right": 0.99, "top": 1 - 0.3 / height, "bottom": 0.45 / height}
        grid = figure.add_gridspec(len(line["examples"]), OF_EACH, **edges, wspace=0.12, hspace=0.24)
        for row, birds in enumerate(line["examples"]):
            for column, bird in enumerate(birds):
                cells = grid[row, column].subgridspec(n_parts, 1, hspace=0.04)
                if problem is not None:
                    above = figure.add_subplot(cells[0])
                    above.imshow(figures.photograph(problem, bird["image_id"]))
                    above.set_axis_off()
                draw_set(figure.add_subplot(cells[-1]), bird)
                figure.axes[-n_parts].set_title(f"image {bird['image_id']}", fontsize=figures.TICK_SIZE, pad=3)
        alone = "" if problem else " The photographs are not ours to print."
        generated = " These numbers mean nothing: images of our own making." * (line["data"] == GENERATED)
        note = (
            f"Sets at {LEVELS[0]} of the matched classifier for test photographs of {line['n_classes']} species: the "
            f"smallest (above), middle ones and the largest, ties at random. Bars are probabilities; the true species "
            f"is blue, and red where the set misses it. Seed {line['seed']}.{alone}{generated}"
        )
        figure.text(0.5, 0.06 / height, textwrap.fill(note, 130), fontsize="small", ha="center", va="bottom")
    return figure


def draw_set(ax: Any, bird: Line) -> None:
    """A bar for each species of a set, the likeliest above; many are cut short, but the true one is always there."""
    true, shown = bird["species"], bird["set"][:MOST_NAMES]
    if true not in dict(shown):
        shown = [*shown[: MOST_NAMES - 1], [true, dict(bird["set"]).get(true)]]
    for place, (name, p) in enumerate(shown):
        colour = COLOURS["outside" if p is None else "inside" if name == true else "centre"]
        text: dict[str, Any] = {"va": "center", "fontsize": SMALL, "color": colour}
        words = name if p is not None else f"not in the set: {name}"
        ax.text(0.01, place, words, weight="bold" if name == true else "normal", **text)
        if p is not None:
            ax.barh(place, p, height=0.9, color=COLOURS["band" if name == true else "bar"])
            ax.text(0.99, place, f"{p:.2f}", ha="right", **text)
    if more := len(bird["set"]) - sum(p is not None for _, p in shown):
        ax.text(0.01, MOST_NAMES, f"and {more} more", va="center", fontsize=SMALL, color=COLOURS["centre"])
    ax.set(xlim=(0, 1), ylim=(MOST_NAMES + 0.5, -0.6), xticks=[], yticks=[])
    for side in ax.spines.values():
        side.set_linewidth(0.4)


# The command ---------------------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=CLASSES, help=f"so many species, 2 to {ALL} ({CLASSES})")
    parser.add_argument("--size", type=int, default=SIZE, help=f"side of the images in pixels ({SIZE})")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--weights", type=Path, help="file of the ImageNet trunk; else torchvision's own")
    parser.add_argument("--features", type=Path, help="folder in which the trunk's features are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--selection", action="store_true", help="compare learning rates on the training photographs")
    parser.add_argument("--quick", action="store_true", help="see that it runs: generated images")
    given = parser.parse_args()
    if not 2 <= given.classes <= ALL:
        parser.error(f"--classes must be 2 to {ALL}, got {given.classes}")
    if given.quick:
        given.classes, given.size, given.out = 2, QUICK_SIZE, given.out / "quick"
    return given


def missing(birds: Birds, lines: Sequence[Line]) -> list[str]:
    keys = ("data", "n_classes", "size")
    known = birds.about("")
    done = [line["method"] for line in lines if all(line[key] == known[key] for key in keys)]
    wanted = [method for method in (HEAD, *MODELS) if birds.settings or method != TWICE]
    return [method for method in wanted if method not in done]


def main() -> None:
    given = arguments()
    weights = TrunkWeights() if given.quick else trunk_weights(given.weights)
    path = given.out / ("species-selection.jsonl" if given.selection else "species.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        recipe = ResNet18(mirror="same", size=given.size, weights=weights.path, cache=given.features or folder)
        birds = birds_of(given.classes, recipe, weights.name, device=given.device, quick=given.quick)
        for half in (birds.problem.train, birds.problem.test):
            birds.features(half.images)
        if given.selection:
            select(birds, path)
        else:
            for method in missing(birds, read_lines(path)):
                append(path, measure(method, birds))
    lines = read_lines(path)
    text = (selection_report if given.selection else report)(lines)
    path.with_suffix(".md").write_text(text)
    print(text)
    own = [line for line in lines if "examples" in line and line["n_classes"] == given.classes]
    if own:
        figures.write(draw(own[-1]), given.out, "species")
        figures.write_photographs(draw(own[-1], birds.problem), given.out, "species")


if __name__ == "__main__":
    main()
