"""Settings of the ResNet-18 compared within the training photographs of CUB: how its defaults were chosen.

No test photograph is touched. Two members, each without another fifth of the training photographs, learn the box; what
is compared is how well each finds the boxes of the photographs that it left out, every few epochs. Each candidate
changes some of the settings of the first one. Lines go to results/localization-selection.jsonl; what is there is not
run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from result_lines import append, environment, read_lines
from sklearn.model_selection import KFold
from torch import Tensor

from coverwell import metrics
from coverwell.baselines.training import NormalHead
from coverwell.inputs.features import features_of
from coverwell.inputs.scaling import Mirroring, Scaling
from coverwell.matched import EMA_DECAY
from coverwell.networks.resnet import ResNet18
from coverwell.training.device import Settings, device_from, seeded
from coverwell.training.learner import Learner
from coverwell.training.rows import Rows, as_tensor
from reproduction.domains.boxes import CUB, GENERATED, TrunkWeights, box_problem, trunk_weights
from reproduction.tables.typeset import markdown

SEED = 0
FOLDS, MEMBERS = 5, 2
EPOCHS, EVERY = 36, 6
MIRRORING = Mirroring("boxes")
HEAD = NormalHead()
QUICK_SIZE = 32
FIRST: dict[str, Any] = {
    "network": ResNet18(dropout=0.3, feature_dropout=0.0, mirror="boxes"),
    "loss": "squared error",
    "learning_rate": 1e-3,
    "batch_size": 128,
}
LIKELY = {"loss": "likelihood"}


def network(**fields: Any) -> dict[str, Any]:
    """The first candidate's network with some fields changed."""
    return {"network": replace(FIRST["network"], **fields)}


CANDIDATES: dict[str, dict[str, Any]] = {
    "first": {},
    "rate 3e-4": {"learning_rate": 3e-4},
    "rate 3e-3": {"learning_rate": 3e-3},
    "rate 2e-3, batch 256": {"learning_rate": 2e-3, "batch_size": 256},
    "dropout .5": network(dropout=0.5),
    "features .3": network(feature_dropout=0.3),
    "likelihood": LIKELY,
    "likelihood, features .3": {**LIKELY, **network(feature_dropout=0.3)},
    "likelihood, features .5": {**LIKELY, **network(feature_dropout=0.5)},
    "likelihood, features .3, dropout 0": {**LIKELY, **network(feature_dropout=0.3, dropout=0.0)},
    "likelihood, features .3, rate 5e-4": {**LIKELY, **network(feature_dropout=0.3), "learning_rate": 5e-4},
}

Array = NDArray[np.float64]


class Study:
    """The training photographs' features and boxes, and who leaves which of them out."""

    def __init__(self, images: Any, boxes: Array, recipe: ResNet18, device: torch.device) -> None:
        kept = features_of(images, recipe.trunk(), size=recipe.size, mirrored=True, device=device, cache=recipe.cache)
        self.boxes, self.scaling = boxes, Scaling.of(boxes)
        folds = KFold(FOLDS, shuffle=True, random_state=SEED).split(boxes)
        left_out = np.stack([np.isin(np.arange(len(boxes)), rows) for _, rows in folds])[:MEMBERS]
        self.left_out = left_out
        leaves_out = torch.from_numpy(left_out.repeat(2, axis=1))[None].to(device)
        self.rows = Rows(
            x=as_tensor(MIRRORING.flat(kept))[None].to(device),
            y=self.scaling(torch.from_numpy(MIRRORING.rows(boxes))).float()[None].to(device),
            trains=~leaves_out,
            leaves_out=leaves_out,
            coverage=torch.full((1, 1), 0.95, device=device),
        )

    def run(self, candidate: str, n_epochs: int) -> dict[str, Any]:
        """One line: how well a candidate's members find boxes as they learn."""
        settings = {**FIRST, **CANDIDATES[candidate]}
        device, n_targets = self.rows.y.device, self.rows.y.shape[-1]
        n_outputs = HEAD.n_outputs(n_targets, 1) if settings["loss"] == "likelihood" else n_targets
        started = time.perf_counter()
        with seeded(SEED, device):
            # The trunk is done; layer 4 starts from random weights.
            fresh = replace(settings["network"], weights=None)
            learner = Learner(
                fresh,
                self.rows,
                n_outputs,
                Settings(1, settings["batch_size"], settings["learning_rate"], EMA_DECAY, device),
            )
            path = []
            for epoch in range(EVERY, n_epochs + 1, EVERY):
                learner.descend(self.rows, EVERY, self._loss(settings["loss"]))
                path.append({"epoch": epoch, **self._measured(learner)})
        return {
            "candidate": candidate,
            "seed": SEED,
            "n_images": len(self.boxes),
            "path": path,
            "seconds": round(time.perf_counter() - started, 1),
            **environment(str(device)),
        }

    def _loss(self, kind: str) -> Callable[[Tensor, Tensor], Tensor]:
        def loss(outputs: Tensor, batch: Tensor) -> Tensor:
            y = self.rows.at(self.rows.y, batch)
            if kind == "likelihood":
                return HEAD.losses(outputs, y, self.rows.levels_of_members).mean(dim=-1)
            return (outputs - y).square().mean(dim=(1, 2))

        return loss

    def _measured(self, learner: Learner) -> dict[str, float]:
        mean = learner.outputs(self.rows)[..., : self.rows.y.shape[-1]].double().cpu()
        of_members = MIRRORING.merged(self.scaling.inverse(mean)).numpy()
        # Every member predicts the photographs that it left out.
        found = np.concatenate([own[rows] for own, rows in zip(of_members, self.left_out, strict=True)])
        truth = np.concatenate([self.boxes[rows] for rows in self.left_out])
        errors = (found - truth) / self.scaling.spread.numpy()
        return {
            "iou": round(metrics.iou(truth, found), 5),
            "rmse": round(float(np.sqrt(np.square(errors).mean())), 5),
        }


def report(lines: list[dict[str, Any]]) -> str:
    """Each candidate's IoU on photographs that were left out, epoch by epoch."""
    epochs = sorted({point["epoch"] for line in lines for point in line["path"]})
    rows = []
    for line in lines:
        found = {point["epoch"]: point for point in line["path"]}
        cells = [f"{found[epoch]['iou']:.4f}" if epoch in found else "-" for epoch in epochs]
        rows.append([line["candidate"], *cells, f"{line['path'][-1]['rmse']:.4f}", f"{line['seconds']:.0f}"])
    devices = sorted({f"{line['device']}, torch {line['versions']['torch']}" for line in lines})
    numbers = sorted({line["n_images"] for line in lines})
    text = [
        "# How the settings of the ResNet-18 were chosen",
        "",
        f"`python benchmarks/selection_localization.py`: {MEMBERS} members, each without another fifth of "
        f"{' or '.join(f'{n:,}' for n in numbers)} training photographs, seed {SEED}; mean IoU on the left-out ones "
        "(averaged with the mirror image) by epoch, and the RMSE after the last, in standard deviations of the "
        "targets. One seed: differences of .002 are noise. Seconds are for all epochs; some ran next to other "
        f"programs. Devices: {'; '.join(devices)}.",
        "",
        markdown(["candidate", *[f"{epoch} epochs" for epoch in epochs], "RMSE", "seconds"], rows).rstrip(),
        "",
    ]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--weights", type=Path, help="file of the ImageNet trunk; else torchvision's own")
    parser.add_argument("--features", type=Path, help="folder in which the trunk's features are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "localization-selection.jsonl")
    parser.add_argument("--candidates", nargs="*", choices=list(CANDIDATES), default=list(CANDIDATES))
    parser.add_argument("--quick", action="store_true", help="see that it runs: two candidates, generated images")
    asked = parser.parse_args()
    n_epochs = EPOCHS
    if asked.quick:
        asked.candidates, n_epochs = ["first", "likelihood, features .3"], EVERY
        asked.out = asked.out.with_name("localization-selection-quick.jsonl")
    problem = box_problem(GENERATED if asked.quick else CUB)
    weights = TrunkWeights() if asked.quick else trunk_weights(asked.weights)
    recipe = replace(FIRST["network"], weights=weights.path, cache=asked.features)
    recipe = replace(recipe, size=QUICK_SIZE) if asked.quick else recipe
    done = {line["candidate"] for line in read_lines(asked.out)}
    if missing := [candidate for candidate in asked.candidates if candidate not in done]:
        study = Study(problem.train.images, problem.train.fractions, recipe, device_from(asked.device))
        for candidate in missing:
            append(asked.out, study.run(candidate, n_epochs))
    table = report(read_lines(asked.out))
    asked.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
