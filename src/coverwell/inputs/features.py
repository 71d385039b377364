"""What frozen layers make of images: computed once, kept on disk in float16, read in place.

A file of kept features is a numpy file (version 1.0) with a seal behind the numbers: the sha256 of the key and of all
before it. It is written in order, never through a memory map (on a full disk a map kills the process where a write
raises an error), and gets its name when it is whole. Processes that compute the same features do not disturb others.

float16 carries 11 bits, about as many as the TF32 arithmetic with which GPUs compute the features in the first place.
"""

import copy
import errno
import hashlib
import io
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coverwell.errors import DamagedFeaturesWarning
from coverwell.files import new_file
from coverwell.inputs.images import images_of
from coverwell.training.device import device_from

FORMAT = 2  # grows when features computed by older versions must not be used: another layout, another way to read
PATTERN = "features-*.npy"
SEAL = 64  # bytes of a sha256 in hexadecimal
CPU_BATCH, GPU_BATCH = 32, 128  # images
SECONDS_OF_SILENCE = 3600.0  # a file in the making grows every few seconds: after an hour its writer is dead


def features_of(
    images: Any,
    trunk: nn.Module,
    *,
    size: int = 224,
    mirrored: bool = False,
    device: str | torch.device = "auto",
    cache: str | Path | None = None,
    verbose: int = 0,
) -> NDArray[np.float16]:
    """Features of images (see `images_of`) under a frozen trunk, as a read-only memory map.

    The trunk maps (batch, 3, size, size) in [0, 1] to (batch, channel, height, width), or another shape that begins
    with the batch; a copy of it runs, in eval mode. With `mirrored`, features of the mirror images come second: (image,
    2, channel, height, width). The folder `cache` keeps features of the same images, trunk and settings, and a damaged
    file is replaced, with a warning. Without one, they lie in a temporary file that goes when the array goes.
    """
    folder = None if cache is None else Path(cache)
    if folder and (files := [path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()]):
        got = f"{folder}, where {files[0]} is a file; give another path, or None for a temporary file"
        raise NotADirectoryError(f"cache must be a folder, existing or new, got {got}")
    found, torch_device = images_of(images), device_from(device)

    def write(file: IO[bytes], key: str) -> None:
        from tqdm import tqdm

        batch_size = CPU_BATCH if torch_device.type == "cpu" else GPU_BATCH
        bar = tqdm(total=len(found), disable=not verbose, desc="features", unit="image")
        # The threads that read end with us, however we end.
        with bar, closing(found.batches(size=size, batch_size=batch_size)) as batches:
            _write_sealed(file, key, _computed(trunk, batches, torch_device, mirrored=mirrored), len(found), bar)

    if folder is None:
        with tempfile.TemporaryFile() as temporary:
            write(temporary, "")
            return _mapped(temporary)
    settings = (found.key(), _key_of(trunk), FORMAT, size, mirrored)
    key = hashlib.sha256(repr(settings).encode()).hexdigest()
    path = folder / PATTERN.replace("*", key)
    if (kept := _kept(path, key)) is not None:
        return kept
    try:
        with new_file(path) as new:
            write(new, key)
    except OSError as error:  # a failing write does not say where
        error.add_note(f"while features were to be kept in {folder}; nothing of them was left there")
        raise
    with path.open("rb") as file:
        return _mapped(file)


def bytes_kept(cache: str | Path) -> int:
    """How many bytes the features in a folder take, with those that a killed process left unfinished."""
    return sum(path.stat().st_size for path in _files(Path(cache)))


def forget(cache: str | Path) -> int:
    """Remove the features in a folder, but nothing that is being written, and return how many bytes that were."""
    n_bytes = bytes_kept(cache)
    for path in _files(Path(cache)):
        path.unlink(missing_ok=True)
    return n_bytes


def _files(folder: Path) -> list[Path]:
    silent_since = time.time() - SECONDS_OF_SILENCE
    unfinished = [path for path in folder.glob(f"{PATTERN}.*.part") if path.stat().st_mtime < silent_since]
    return [*folder.glob(PATTERN), *unfinished]


def _key_of(trunk: nn.Module) -> str:
    """Sha256 of what a module prints about itself (layers, strides, paddings) and of all its numbers."""
    digest = hashlib.sha256(f"{type(trunk).__module__}.{type(trunk).__qualname__} {trunk!r}".encode())
    # A buffer may be left out of the state, such as the means that inputs are centred by.
    for name, value in sorted({**trunk.state_dict(), **dict(trunk.named_buffers())}.items()):
        if isinstance(value, Tensor):
            digest.update(repr((name, value.dtype, tuple(value.shape))).encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        else:
            digest.update(repr((name, value)).encode())
    return digest.hexdigest()


def _computed(trunk: nn.Module, batches: Iterable[Tensor], device: torch.device, *, mirrored: bool) -> Iterator[Any]:
    """Arrays, batch after batch, under a copy of the trunk."""
    trunk, n_before = copy.deepcopy(trunk).to(device).eval(), 0
    for batch in batches:
        views = torch.stack([batch, batch.flip(-1)], dim=1) if mirrored else batch  # (batch, [view,] 3, size, size)
        with torch.no_grad():
            features = trunk(views.to(device).flatten(0, -4))
        if not isinstance(features, Tensor) or features.shape[:1] != (views.shape[:-3].numel(),):
            raise TypeError("trunk must map (batch, 3, height, width) to one tensor whose first axis is the batch")
        kept = features.half().unflatten(0, views.shape[:-3])
        bad = ~torch.isfinite(kept).flatten(1).all(dim=1)
        if bad.any():
            wrong = "go beyond 65,504, the largest float16" if torch.isfinite(features).all() else "are NaN or infinite"
            way_out = "look at the trunk's weights, or let the trunk divide what it gives"
            found = f"the features of image {n_before + int(bad.nonzero()[0, 0])} {wrong}"
            raise ValueError(f"{found}, where those of trained layers are of order one; {way_out}")
        n_before += len(batch)
        yield kept.cpu().numpy()


def _write_sealed(file: IO[bytes], key: str, batches: Iterable[NDArray[Any]], n_images: int, bar: Any) -> None:
    digest, header = hashlib.sha256(key.encode()), io.BytesIO()
    for number, batch in enumerate(batches):
        if number == 0:
            folder = Path(file.name).parent if isinstance(file.name, str) else Path(tempfile.gettempdir())
            n_bytes, free = n_images * batch[0].nbytes, shutil.disk_usage(folder).free
            if free < n_bytes:  # better at the first batch than after an hour
                lack = f"the features take {n_bytes:,} bytes, but only {free:,} are free"
                raise OSError(errno.ENOSPC, f"{lack}; make room or give another cache", str(folder))
            about = {"descr": np.lib.format.dtype_to_descr(batch.dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(header, {**about, "shape": (n_images, *batch.shape[1:])})
        for content in (header.getvalue() if number == 0 else b"", np.ascontiguousarray(batch).data):
            digest.update(content)
            file.write(content)
        bar.update(len(batch))
    file.write(digest.hexdigest().encode())
    file.flush()


def _kept(path: Path, key: str) -> NDArray[Any] | None:
    """The features in a file that is whole; None if it is absent or damaged."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        if path.stat().st_size > SEAL:
            content, digest = np.memmap(file, dtype=np.uint8, mode="r"), hashlib.sha256(key.encode())
            digest.update(content[:-SEAL].data)
            if content[-SEAL:].tobytes() == digest.hexdigest().encode():
                return _mapped(file)
    warnings.warn(f"{path} is damaged; its features are computed again", DamagedFeaturesWarning, stacklevel=3)
    return None


def _mapped(file: IO[bytes]) -> NDArray[Any]:
    file.seek(0)
    np.lib.format.read_magic(file)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return np.memmap(file, dtype=dtype, mode="r", offset=file.tell(), shape=shape)
