"""What frozen layers make of images: computed once, kept on disk, read in place.

A file of kept features is a numpy file (version 1.0) that any numpy reads, with a seal behind the numbers: one line of
JSON with the key and the sha256 of all that stands before it. It is written in order, never through a memory map (on a
full disk a map kills the process where a write raises an error), and gets its name when it is whole. So a file is whole
or not there, whoever is interrupted, and several processes that compute the same features at once do the work twice but
do not touch each other.

The numbers are float16 unless asked otherwise: half the disk and half the reading. They carry 11 bits, a relative
error of at most 1/2,048 each, about that of the TF32 arithmetic with which GPUs compute them in the first place.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import io
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from coverwell.errors import DamagedFeaturesWarning
from coverwell.files import new_file
from coverwell.inputs.images import Images, images_of
from coverwell.training.device import device_from

__all__ = ["DamagedFeaturesWarning", "bytes_kept", "features_of", "forget"]

FORMAT = 1  # grows when features computed by older versions must not be used: another layout, another way to read
PATTERN = "features-*.npy"
CHUNK = 1 << 20  # bytes read at a time
CPU_BATCH, GPU_BATCH = 32, 128  # images
# A file in the making grows every few seconds; after an hour of silence whoever wrote it is dead.
SECONDS_OF_SILENCE = 3600.0


def features_of(
    images: Any,
    trunk: nn.Module,
    *,
    size: int = 224,
    mirrored: bool = False,
    device: str | torch.device = "auto",
    cache: str | Path | None = None,
    dtype: str = "float16",
    n_threads: int | None = None,
    verbose: int = 0,
) -> NDArray[Any]:
    """Features of images under a frozen trunk, as an array that lies on disk: (image, channel, height, width).

    Parameters
    ----------
    images : array, tensor, data frame, sequence or Images
        See `images_of`.
    trunk : torch.nn.Module
        From (batch, 3, size, size) in [0, 1] to (batch, channel, height, width), or any other shape that begins with
        the batch. A copy of it runs, in eval mode; it stays as it is.
    size : int
        Side of the square to which every image is squeezed.
    mirrored : bool
        Also give the features of the mirror images: (image, 2, channel, height, width), the image itself first.
    device : str or torch.device
        Where the trunk runs.
    cache : path, optional
        Folder in which features are kept and looked for. They are found again if the images, the trunk (its kind and
        its weights), `size`, `mirrored` and `dtype` are the same. Without a folder they lie in a temporary file that
        goes when the array goes.
    dtype : {"float16", "float32"}
        Of the features.
    n_threads : int, optional
        Threads that read images; by default up to four.
    verbose : int
        1 shows a progress bar while features are computed.

    Returns
    -------
    features : read-only memory map
        Rows are read from disk when they are asked for; `features[rows]` with a list of rows is a copy in memory.

    Warns
    -----
    DamagedFeaturesWarning
        If a file of features is not as it was written. It is then replaced.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from coverwell.inputs.features import features_of
    >>> trunk = torch.nn.Conv2d(3, 8, kernel_size=16, stride=16)
    >>> features_of(np.zeros((5, 3, 40, 30)), trunk, size=32, mirrored=True, device="cpu").shape
    (5, 2, 8, 2, 2)
    """
    if dtype not in ("float16", "float32"):
        raise ValueError(f"dtype must be 'float16' or 'float32', got {dtype!r}")
    if cache is not None:
        _check_folder(Path(cache))
    images = images_of(images)
    torch_device = device_from(device)

    def write(file: IO[bytes], key: str) -> None:
        batch_size = CPU_BATCH if torch_device.type == "cpu" else GPU_BATCH
        batches = images.batches(size=size, batch_size=batch_size, mirrored=mirrored, n_threads=n_threads)
        features = _under(trunk, batches, torch_device, getattr(torch, dtype))
        with closing(batches):  # its threads end with us, however we end
            _write_sealed(file, key, len(images), _counted(features, len(images), verbose))

    if cache is None:
        with tempfile.TemporaryFile() as file:
            write(file, "")
            return _mapped(file)
    return _from_cache(Path(cache), _key(images, trunk, (FORMAT, size, mirrored, dtype)), write)


def bytes_kept(cache: str | Path) -> int:
    """How many bytes the features in a folder take, with those that a killed process left unfinished."""
    return sum(path.stat().st_size for path in _files(Path(cache)))


def forget(cache: str | Path) -> int:
    """Remove the features that are kept in a folder, and say how many bytes that were; other files stay.

    What another process is writing at this time stays too.
    """
    n_bytes = 0
    for path in _files(Path(cache)):
        n_bytes += path.stat().st_size
        path.unlink(missing_ok=True)
    return n_bytes


def _files(folder: Path) -> list[Path]:
    silent_since = time.time() - SECONDS_OF_SILENCE
    unfinished = [path for path in folder.glob(f"{PATTERN}.*.part") if path.stat().st_mtime < silent_since]
    return [*folder.glob(PATTERN), *unfinished]


# What the features depend on


def _key(images: Images, trunk: nn.Module, settings: tuple[Any, ...]) -> str:
    return hashlib.sha256(repr((images.key(), _trunk_key(trunk), settings)).encode()).hexdigest()


def _trunk_key(trunk: nn.Module) -> str:
    """Sha256 of what a module prints about itself (layers, strides, paddings) and of all its numbers."""
    digest = hashlib.sha256(f"{type(trunk).__module__}.{type(trunk).__qualname__} {trunk!r}".encode())
    # A buffer may be left out of the state, such as the means that inputs are centred by.
    numbers = {**trunk.state_dict(), **dict(trunk.named_buffers())}
    for name, value in sorted(numbers.items()):
        if not isinstance(value, Tensor):
            digest.update(repr((name, value)).encode())
            continue
        digest.update(repr((name, value.dtype, tuple(value.shape))).encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


# Computing


def _under(
    trunk: nn.Module, batches: Iterator[Tensor], device: torch.device, dtype: torch.dtype
) -> Iterator[NDArray[Any]]:
    """Batch after batch under a copy of the trunk."""
    trunk = copy.deepcopy(trunk).to(device).eval()
    n_before = 0
    for batch in batches:
        views = batch.shape[:-3]  # (batch,) or (batch, 2)
        with torch.no_grad():
            features = trunk(batch.to(device).flatten(0, -4))
        if not isinstance(features, Tensor) or features.shape[:1] != (views.numel(),):
            raise TypeError("trunk must map (batch, 3, height, width) to one tensor whose first axis is the batch")
        kept = features.to(dtype).unflatten(0, views)
        _check_finite(kept, features, n_before)
        n_before += len(batch)
        yield kept.cpu().numpy()


def _counted(batches: Iterator[NDArray[Any]], n_pictures: int, verbose: int) -> Iterator[NDArray[Any]]:
    """The same batches, with a bar that counts their images."""
    with tqdm(total=n_pictures, disable=not verbose, desc="features", unit="image") as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))


def _check_finite(kept: Tensor, features: Tensor, n_before: int) -> None:
    bad = ~torch.isfinite(kept).flatten(1).all(dim=1)
    if bad.any():
        first = n_before + int(bad.nonzero()[0, 0])
        if torch.isfinite(features).all():
            raise ValueError(
                f"the features of image {first} go beyond 65,504, the largest float16, where those of trained layers "
                "are of order one; look at the trunk's weights, or let the trunk divide what it gives (estimators keep "
                "float16; called by itself, features_of takes dtype='float32')"
            )
        raise ValueError(f"the features of image {first} are NaN or infinite; look at the trunk's weights")


# Files


def _check_folder(folder: Path) -> None:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(
            f"cache must be a folder, existing or new, got {folder}, where {there} is a file; give another path, or "
            "None for a temporary file"
        )


def _from_cache(folder: Path, key: str, write: Callable[[IO[bytes], str], None]) -> NDArray[Any]:
    path = folder / PATTERN.replace("*", key)
    features = _kept(path, key)
    if features is None:
        try:
            with new_file(path) as file:
                write(file, key)
        except OSError as error:  # a failing write does not say where
            error.add_note(f"while features were to be kept in {folder}; nothing of them was left there")
            raise
        features = _kept(path, key)
    if features is None:
        raise OSError(f"{path} is not as it was written just now; look to the disk, or give another folder as cache")
    return features


def _kept(path: Path, key: str) -> NDArray[Any] | None:
    """The features in a file that is whole; None if there is no such file, or if it is damaged."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        if not _is_whole(file, key):
            warnings.warn(f"{path} is damaged; its features are computed again", DamagedFeaturesWarning, stacklevel=4)
            return None
        return _mapped(file)


def _write_sealed(file: IO[bytes], key: str, n_pictures: int, batches: Iterator[NDArray[Any]]) -> None:
    digest = hashlib.sha256()
    for number, batch in enumerate(batches):
        if number == 0:
            _check_room(file, n_pictures * batch[0].nbytes)
            header = _header((n_pictures, *batch.shape[1:]), batch.dtype)
            digest.update(header)
            file.write(header)
        content = np.ascontiguousarray(batch).data
        digest.update(content)
        file.write(content)
    file.write(_seal(key, digest.hexdigest()))
    file.flush()


def _check_room(file: IO[bytes], n_bytes: int) -> None:
    """Say at the first batch, not after an hour, that the rest will not fit."""
    folder = Path(file.name).parent if isinstance(file.name, str) else Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise OSError(
            errno.ENOSPC,
            f"the features take {n_bytes:,} bytes, but only {free:,} are free; make room or give another cache",
            str(folder),
        )


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    header = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue()


def _seal(key: str, sha256: str) -> bytes:
    return json.dumps({"key": key, "sha256": sha256}).encode() + b"\n"


def _is_whole(file: IO[bytes], key: str) -> bool:
    n_left = file.seek(0, io.SEEK_END) - len(_seal(key, hashlib.sha256().hexdigest()))
    digest = hashlib.sha256()
    file.seek(0)
    while n_left > 0:
        content = file.read(min(CHUNK, n_left))
        digest.update(content)
        n_left -= len(content)
        if not content:  # it became shorter under our hands
            return False
    return file.read() == _seal(key, digest.hexdigest())


def _mapped(file: IO[bytes]) -> NDArray[Any]:
    file.seek(0)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return np.memmap(file, dtype=dtype, mode="r", offset=file.tell(), shape=shape)
