"""How far an exported model of images lies from the model, and why: features are rounded to float16.

torch and onnxruntime add up convolutions in another order, so a feature between two float16 numbers may be rounded to
another one of them. The same is measured with features that are not rounded. Networks are barely trained, which
magnifies differences; `--weights` adds a trunk that is trained.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnxruntime
import torch
from machine import at_the_end, environment, place
from torch.nn.functional import interpolate

from coverwell import MatchedRegressor, ResNet18, Schedule, baselines, to_onnx

HERE = Path(__file__).parent
SEED, SIZE, N_TRAINED, N_NEW = 0, 32, 20, 8
BRIEFLY = Schedule(max_rounds=1, mean_epochs=1, interval_epochs=1, batch_size=8)
Found = dict[str, Any]


def photographs(n: int, seed: int) -> np.ndarray:
    """Smooth images (n, 3, size, size) in [0, 1]."""
    coarse = torch.rand(n, 3, SIZE // 8, SIZE // 8, generator=torch.Generator().manual_seed(seed))
    return interpolate(coarse, size=(SIZE, SIZE), mode="bilinear").numpy()


def fitted(kind: str, weights: str | None, seed: int) -> Any:
    network, known = ResNet18(weights=weights, size=SIZE), {"random_state": seed, "device": "cpu"}
    if kind == "MC Dropout":
        few = {"n_samples": 3, "max_epochs": 1, "batch_size": 8}
        model: Any = baselines.MCDropoutRegressor(0.8, network=network, **few, **known)
    else:
        literal = {"folds": None, "calibration": "split", "repeats": 1, "schedule": BRIEFLY}
        model = MatchedRegressor(0.8, network=network, **literal, **known)
    return model.fit(photographs(N_TRAINED, seed), np.random.default_rng(seed).uniform(0.05, 0.45, (N_TRAINED, 4)))


@contextmanager
def unrounded() -> Iterator[None]:
    """Features stay in float32, in the model and in the graph."""
    with patch.object(torch.Tensor, "half", lambda self: self), patch.object(np, "float16", np.float32):
        yield


def difference(model: Any) -> float:
    """The largest of predictions and bounds of new images, in standard deviations of the targets."""
    new, spread = photographs(N_NEW, SEED + 100), model.predictor_.fitted_teams[0].targets.spread.numpy()
    with tempfile.TemporaryDirectory() as folder:
        to_onnx(model, f"{folder}/model.onnx")
        session = onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])
        prediction, lower, upper = session.run(["prediction", "lower", "upper"], {"X": new})
    own = model.predict_all(new)
    parts = prediction - own.mean, (lower - own.lower)[..., 0], (upper - own.upper)[..., 0]
    return max(float(np.abs(part / spread).max()) for part in parts)


def measure(trunks: dict[str, str | None], n_seeds: int) -> Found:
    where, rows = environment(seed=SEED, packages={"onnxruntime": onnxruntime.__version__}), []
    for (trunk, weights), kind in ((item, kind) for item in trunks.items() for kind in ("matched", "MC Dropout")):
        models = [fitted(kind, weights, SEED + number) for number in range(n_seeds)]
        rounded = [difference(model) for model in models]
        with unrounded():
            exact = [difference(model) for model in models]
        rows.append({"trunk": trunk, "model": kind, "fits": n_seeds, "rounded": max(rounded), "unrounded": max(exact)})
    return {"environment": at_the_end(where), "rows": rows}


def report(results: Found) -> str:
    lines = ["| trunk | model | fits | as it is | features not rounded |", "|---|---|---|---|---|"]
    for row in results["rows"]:
        figures = f"{row['rounded']:.1e} | {row['unrounded']:.1e}"
        lines.append(f"| {row['trunk']} | {row['model']} | {row['fits']} | {figures} |")
    texts = [
        "# Exported models of images",
        f"`make bench-onnx`. The largest difference of predictions and bounds between onnxruntime and the model, in "
        f"standard deviations of the target, over {N_NEW} new images of {SIZE} x {SIZE} pixels. Networks were trained "
        "for one epoch, which magnifies differences.",
        "\n".join(lines),
        "The features of the frozen layers are kept in float16. torch and onnxruntime compute them in float32, each in "
        "its own order, so a feature between two float16 numbers may be rounded to another one of them: that is the "
        "difference, and it is gone where features are not rounded. Kept in float32 they would take twice the memory "
        "and disk, and onnxruntime has no convolutions in float64. So they stay in float16, and an export is checked "
        "against 1e-5 for equal features and 1e-3 from the pixels on.",
        place(results["environment"]),
    ]
    return "\n\n".join(texts) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one fit of each: whether everything runs")
    parser.add_argument("--weights", help="file of a trained trunk's weights")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    trunks = {"random": None, **({"ImageNet": asked.weights} if asked.weights else {})}
    results = measure(trunks, 1 if asked.quick else 3)
    file = asked.out / ("onnx-images-quick.json" if asked.quick else "onnx-images.json")
    file.write_text(json.dumps(results, indent=1) + "\n")
    file.with_suffix(".md").write_text(report(results))
    print(report(results))


if __name__ == "__main__":
    main()
