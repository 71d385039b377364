"""Weights that others trained on public images, for networks that start from them."""

from pathlib import Path

from coverwell.datasets.store import DataFile, located

RESNET18 = DataFile(
    name="resnet18-f37072fd.pth",
    folder="weights",
    sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    address="https://download.pytorch.org/models/resnet18-f37072fd.pth",
)


def imagenet_weights() -> Path:
    """Path of torchvision's ResNet-18 that was trained on ImageNet (IMAGENET1K_V1): a file of 45 MB.

    It comes from the folder in the environment variable ``COVERWELL_DATA`` or from the user's cache, there or in their
    sub-folder ``weights``; otherwise it is downloaded into the cache, whole or not at all. It is checked by sha256 each
    time. torchvision's code has the licence BSD-3-Clause; the images of ImageNet are for non-commercial research.

    Raises
    ------
    DatasetNotFoundError
        If it is in no folder and cannot be downloaded; the message says where to put it by hand.
    DatasetChecksumError
        If a file of that name, or the address, holds something else.

    Examples
    --------
    >>> from coverwell.datasets import weights
    >>> weights.imagenet_weights().name  # doctest: +SKIP
    'resnet18-f37072fd.pth'
    """
    return located(RESNET18)
