"""ResNet-18 with torchvision's parameter names: a frozen trunk for images, and a tail that members train."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from http.client import HTTPException
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, cast
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from coverwell.files import new_file
from coverwell.networks.team import LoopTeam, Network, State
from coverwell.options import check_count, check_number, stored

FilePath = str | PathLike[str]

IMAGENET = "imagenet"  # the name of torchvision's public weights
FILE = "resnet18-f37072fd.pth"
SHA256 = "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec"
ADDRESS = f"https://download.pytorch.org/models/{FILE}"
TIMEOUT = 60.0  # seconds of silence after which the address counts as unreachable
# ImageNet's red, green and blue, in [0, 1].
IMAGENET_MEAN, IMAGENET_SD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRUNK_CHANNELS, TAIL_CHANNELS = 256, 512
NAMED = 12  # tensors that an error names before it only counts
TRUNK_PARTS = ("conv1", "bn1", "layer1", "layer2", "layer3")


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions whose result is added to their input (He et al. 2016, Figs. 2 and 5, left).

    Where the sizes differ, the input passes a 1 x 1 convolution on the way (their option B).

    Shape: input `(batch, n_inputs, height, width)`, output `(batch, n_channels, height / stride, width / stride)`,
    sizes rounded up.
    """

    def __init__(self, n_inputs: int, n_channels: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(n_inputs, n_channels, size=3, stride=stride)
        self.bn1 = nn.BatchNorm2d(n_channels)
        self.conv2 = _convolution(n_channels, n_channels, size=3, stride=1)
        self.bn2 = nn.BatchNorm2d(n_channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or n_inputs != n_channels:
            shortcut = _convolution(n_inputs, n_channels, size=1, stride=stride)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(n_channels))

    def forward(self, x: Float[Tensor, "batch _ _ _"]) -> Float[Tensor, "batch _ _ _"]:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.bn1(self.conv1(x)).relu_()
        x = self.bn2(self.conv2(x))
        return x.add_(shortcut).relu_()


def _convolution(n_inputs: int, n_channels: int, *, size: int, stride: int) -> nn.Conv2d:
    """A convolution without bias that keeps the image's size but for the stride, initialised as torchvision's."""
    convolution = nn.Conv2d(n_inputs, n_channels, size, stride=stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution


def _layer(n_inputs: int, n_channels: int, *, stride: int) -> nn.Sequential:
    first = BasicBlock(n_inputs, n_channels, stride=stride)
    return nn.Sequential(first, BasicBlock(n_channels, n_channels, stride=1))


class ResNet18Trunk(nn.Module):
    """ResNet-18 up to layer 3, frozen: its features of an image never change and can be kept on disk.

    Images are RGB in [0, 1]; the network itself standardises them by ImageNet's mean and deviation. It stays in eval
    mode whatever its parents do. Until `load_weights`, its weights are random.

    Shape: input `(batch, 3, height, width)`, output `(batch, 256, height / 16, width / 16)`, sizes rounded up.

    Examples
    --------
    >>> import torch
    >>> ResNet18Trunk()(torch.rand(2, 3, 64, 40)).shape
    torch.Size([2, 256, 4, 3])
    """

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.tensor(IMAGENET_MEAN)[:, None, None], persistent=False)  # not torchvision's
        self.sd = nn.Buffer(torch.tensor(IMAGENET_SD)[:, None, None], persistent=False)
        self.conv1 = _convolution(3, 64, size=7, stride=2)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _layer(64, 64, stride=1)
        self.layer2 = _layer(64, 128, stride=2)
        self.layer3 = _layer(128, TRUNK_CHANNELS, stride=2)
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> ResNet18Trunk:
        """Stay in eval mode: weights may come with their batch norms folded in, and then have no batch statistics."""
        return super().train(False)

    @torch.no_grad()
    def forward(
        self, images: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch 256 (height+15)//16 (width+15)//16"]:
        x = self.bn1(self.conv1((images - self.mean) / self.sd)).relu_()
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        return cast(Tensor, self.layer3(self.layer2(self.layer1(x))))

    def load_weights(self, path: FilePath) -> tuple[str, ...]:
        """Take the trunk's weights from a file; return the parts of a whole ResNet-18 that the file does not have."""
        weights = read_weights(path)
        self.load_state_dict({name: weight for name, weight in weights.items() if _part_of(name) in TRUNK_PARTS})
        return tuple(part for part in ("layer4", "fc") if part not in map(_part_of, weights))


class ResNet18Tail(nn.Module):
    """ResNet-18 from layer 4 on: two blocks, the mean over the image, dropout, and a linear head.

    In training, whole channels of the input are silenced at random (`feature_dropout`), as are pooled ones (`dropout`).

    Shape: input `(batch, 256, height, width)`, output `(batch, n_outputs)`.
    """

    def __init__(self, n_outputs: int, *, dropout: float = 0.0, feature_dropout: float = 0.0) -> None:
        super().__init__()
        self.feature_dropout = nn.Dropout2d(feature_dropout)
        self.layer4 = _layer(TRUNK_CHANNELS, TAIL_CHANNELS, stride=2)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(TAIL_CHANNELS, n_outputs)

    def forward(self, features: Float[Tensor, "batch 256 height width"]) -> Float[Tensor, "batch output"]:
        if self.training and len(features) == 1 and max(features.shape[2:]) <= 2:  # layer 4 makes 1 x 1 of 2 x 2
            must = "have features larger than 2 x 2, or batch norms have a single number to learn from"
            got = f"{features.shape[2]} x {features.shape[3]}: give a batch_size of at least 2, or a larger size"
            raise ValueError(f"batches of one image must {must}; got {got}")
        features = self.feature_dropout(features)
        # In training a GPU computes convolutions in bfloat16, with the channels last.
        is_half = self.training and features.is_cuda and features.dtype == torch.float32
        if is_half:
            features = features.to(dtype=torch.bfloat16, memory_format=torch.channels_last)
        # A step that is captured and replayed must not have autocast's cache of cast weights.
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False) if is_half else nullcontext():
            wide = self.layer4(features)
        pooled = (wide.float() if is_half else wide).mean(dim=(2, 3))  # -> (batch, channel)
        return cast(Tensor, self.fc(self.dropout(pooled)))


class ResNet18Team(LoopTeam):
    """Tails of a ResNet-18, one after the other: on a CPU faster than grouped convolutions for all members at once.

    Batch norms are torchvision's; those without batch statistics learned a fresh layer 4 more slowly.

    Shape: input `(member, batch, 256, height, width)`, output `(member, batch, output)`.
    """

    capturable = True
    precision = torch.float32

    def __init__(self, recipe: ResNet18, tails: Sequence[nn.Module], n_outputs: int) -> None:
        super().__init__(tails, n_outputs)
        self.recipe: Network = replace(recipe, weights=None)  # a trained team needs no file

    def weight_of_row(self, n_inputs: int) -> int:
        # Layer 4 holds a few arrays of half the size of its input; an MLP some sixty numbers for each input.
        return max(1, n_inputs // 16)


@stored
@dataclass(frozen=True)
class ResNet18:
    """Recipe of a ResNet-18 for images: a frozen trunk, and layer 4 and a linear head, which every member trains.

    Paper: where `weights` has no layer 4, that starts from random weights; the paper's comes from ImageNet. The paper
    does not mention dropout; 0 leaves it out.

    Parameters
    ----------
    dropout, feature_dropout : float
        Shares of channels silenced in training: of the 512 pooled ones before the head, and of the trunk's 256.
    weights : path, "imagenet" or None
        A file of torchvision's ResNet-18, whole or the trunk alone: without layer 4, that starts from random weights,
        as the head always does. "imagenet" is torchvision's public file, found or fetched by
        `coverwell.networks.imagenet_weights`. With None the trunk is random too: for tests.
    size : int
        Side of the square to which images are squeezed.
    mirror : "same", "boxes" or None
        Train on mirror images as well, and average predictions over both. A mirror leaves the targets the same, or
        turns boxes (x, y, width, height), in fractions of the image's sides: x becomes 1 - x - width.
    cache : path, optional
        Folder that keeps the trunk's features for later calls with the same images; a temporary file without one.

    Examples
    --------
    >>> import torch
    >>> team = ResNet18(weights=None).build(n_members=2, input_shape=(256, 4, 3), n_outputs=4)
    >>> team(torch.zeros(2, 5, 256, 4, 3)).shape
    torch.Size([2, 5, 4])
    """

    # What "auto" stands for in an estimator with this network.
    defaults: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"mean_epochs": 6, "interval_epochs": 6, "max_rounds": 8, "patience": 3, "learning_rate": 1e-3}
        | {"repeats": 2, "batch_size": 128, "growth": 1.0}
    )

    dropout: float = 0.3
    feature_dropout: float = 0.3
    weights: FilePath | None = IMAGENET
    size: int = 224
    mirror: str | None = None
    cache: FilePath | None = None

    def __post_init__(self) -> None:
        for name in ("dropout", "feature_dropout"):
            check_number(name, getattr(self, name), least=0, below=1)
        check_count("size", self.size)
        if self.mirror not in (None, "same", "boxes"):
            raise ValueError(f"mirror must be 'same', 'boxes' or None, got {self.mirror!r}")
        for name, what in (("weights", "a path, 'imagenet' or None"), ("cache", "the path of a folder, or None")):
            path = getattr(self, name)
            if not isinstance(path, str | PathLike | None):
                raise TypeError(f"{name} must be {what}, got {path!r}")
            object.__setattr__(self, name, None if path is None else fspath(path))  # text, which can be saved

    def trunk(self) -> ResNet18Trunk:
        """The frozen layers, with the weights of the file; random without one."""
        trunk = ResNet18Trunk()
        if self.weights is not None:
            trunk.load_weights(self.weights)
        return trunk

    def build(self, n_members: int, input_shape: tuple[int, ...], n_outputs: int) -> ResNet18Team:
        if len(input_shape) != 3 or input_shape[0] != TRUNK_CHANNELS or min(input_shape) < 1:
            must = f"takes features of the shape ({TRUNK_CHANNELS}, height, width)"
            raise ValueError(f"ResNet18 {must}, got {tuple(input_shape)}; pass images through its trunk() first")
        rates = {"dropout": self.dropout, "feature_dropout": self.feature_dropout}
        tails = [ResNet18Tail(n_outputs, **rates) for _ in range(n_members)]
        if self.weights is not None:
            layer4 = {name: w for name, w in read_weights(self.weights).items() if _part_of(name) == "layer4"}
            for tail in tails if layer4 else ():  # a file of the trunk alone has none
                tail.load_state_dict(layer4, strict=False)  # all but the head
        return ResNet18Team(self, tails, n_outputs)

    def operations_per_row(self, n_inputs: int) -> float:
        """Roughly the multiplications of one pass."""
        n_places = n_inputs / TRUNK_CHANNELS / 4  # after the stride
        return n_places * ((9 + 1) * TRUNK_CHANNELS * TAIL_CHANNELS + 3 * 9 * TAIL_CHANNELS**2)


def read_weights(path: FilePath) -> State:
    """The weights in a file of torchvision's ResNet-18, or of its trunk alone, with all names and shapes checked.

    Layer 4 and the head may each be absent as a whole, and so may counts of batches, which older files do not have. The
    head may have any number of classes.
    """
    with torch.device("meta"):  # shapes, without memory
        whole = {**ResNet18Trunk().state_dict(), **ResNet18Tail(n_outputs=1000).state_dict()}
    path = imagenet_weights() if path == IMAGENET else path
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:  # torch's errors for broken files
        got = f"it cannot be read ({type(error).__name__}); get the file again"
        raise ValueError(f"{fspath(path)} must be a state dict that torch.save wrote, but {got}") from error
    entries = state.items() if isinstance(state, dict) else [(None, None)]
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in entries):
        way_out = "save it with torch.save(model.state_dict(), path)"
        raise ValueError(f"{fspath(path)} must be a state dict of names and tensors, got something else; {way_out}")
    held, known = {*TRUNK_PARTS, *map(_part_of, state)}, [name for name in state if name in whole]
    due = [name for name in whole if _part_of(name) in held and not name.endswith("num_batches_tracked")]
    heads = {name for name in known if _part_of(name) == "fc"}  # their first axis may be of any length
    others = [name for name in known if state[name].shape[name in heads :] != whole[name].shape[name in heads :]]
    problems = {
        "missing": [name for name in due if name not in state],
        "unknown": [name for name in state if name not in whole],
        "of another shape": [f"{n} {tuple(state[n].shape)} instead of {tuple(whole[n].shape)}" for n in others],
        "not finite": [name for name in known if not state[name].isfinite().all()],
    }
    if found := [
        f"{len(names)} {problem} ({', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''})"
        for problem, names in problems.items()
        if names
    ]:
        raise ValueError(
            f"{fspath(path)} must hold the weights of a ResNet-18 with torchvision's names, whole or up to layer 3, "
            f"got tensors that are {'; '.join(found)}; take the file from torchvision's resnet18, unchanged"
        )
    return dict(state)


def _part_of(name: str) -> str:
    return name.split(".")[0]


def imagenet_weights() -> Path:
    """Path of torchvision's ResNet-18 trained on ImageNet (IMAGENET1K_V1), a file of 45 MB.

    It is looked for in the folder that the environment variable ``COVERWELL_DATA`` names and in the user's cache
    (``~/.cache/coverwell``), each also in the sub-folder ``weights``; otherwise it is downloaded into the cache, whole
    or not at all. Its sha256 is checked every time. torchvision's code has the licence BSD-3-Clause; the images of
    ImageNet are for non-commercial research.

    Raises
    ------
    FileNotFoundError
        If it is in no folder and cannot be downloaded; the message says where to put it by hand.
    ValueError
        If a file of that name, or the address, holds something else.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coverwell"
    asked = os.environ.get("COVERWELL_DATA")
    bases = (Path(asked).expanduser(), cache) if asked else (cache,)
    folders = [folder for base in bases for folder in (base, base / "weights")]
    for path in (folder / FILE for folder in folders):
        if path.is_file():
            _check(path.read_bytes(), path, "Delete or replace it")
            return path
    path = cache / "weights" / FILE
    try:
        with urlopen(ADDRESS, timeout=TIMEOUT) as response:
            content = response.read()
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the open connection
        raise FileNotFoundError(
            f"{FILE} was not found. Folders: {', '.join(map(str, folders))}. Address: {ADDRESS} ({error!r}). Put the "
            "file into one of these folders, or into one that the environment variable COVERWELL_DATA names."
        ) from error
    _check(content, ADDRESS, "Nothing was kept; get the file elsewhere")
    with new_file(path) as out:
        out.write(content)
    return path


def _check(content: bytes, where: Path | str, way_out: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(f"{where} is not the published file: its sha256 is {found}, expected {SHA256}. {way_out}.")
