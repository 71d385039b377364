"""Images of any kind that users hold, read one at a time.

An image is squeezed to a square: each side is scaled by its own factor (bilinear, with antialiasing) and nothing is cut
off, so positions in fractions of the sides stay what they were. The result is RGB in [0, 1].

- Grey becomes three equal channels. Sixteen bits are divided by 65,535, eight by 255.
- Transparent pixels are laid on white: what lies under them is invisible and often noise.
- Pixels come as they are stored, to which positions in data sets refer. A turn that a camera noted in the EXIF data is
  not carried out: give images through `PIL.ImageOps.exif_transpose` where it should be.
- Files far larger than needed are first shrunk, to no less than twice the size asked for.
"""

from __future__ import annotations

import hashlib
import os
import threading
import warnings
from collections.abc import Generator, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from coverwell.errors import ImageError, LargeImageWarning
from coverwell.inputs.frames import columns_of, is_frame

if TYPE_CHECKING:
    from PIL.Image import Image

CHANNELS = (1, 3, 4)  # grey, RGB, RGB and alpha
MOST_THREADS = 4
SPARE = 2  # a file is first shrunk cheaply, to no less than so many times the size asked for; less would show
ROUNDING = 1e-6  # numbers outside [0, 1] by no more than this are rounding


class Images:
    """Images that are read when they are needed; made by `images_of`.

    An item is a path, a PIL image, a tensor (channel, height, width) or (height, width), or an array (height, width) or
    (height, width, channel). One thread at a time asks for items; decoding and squeezing run side by side.
    """

    def __init__(self, items: Any) -> None:
        self.items = items
        self._one_at_a_time = threading.Lock()

    def __len__(self) -> int:
        return len(self.items)

    def read(self, position: int, size: int) -> Float[Tensor, "3 size size"]:
        """One image in [0, 1]."""
        with self._item(position) as item:
            return _squeezed(_pixels(item, size), size)

    def batches(
        self, *, size: int, batch_size: int = 32, n_threads: int | None = None
    ) -> Generator[Float[Tensor, "batch 3 size size"], None, None]:
        """All images in order; one batch is read ahead, by threads, which copy neither arrays nor errors."""
        pool = ThreadPoolExecutor(n_threads or min(MOST_THREADS, os.cpu_count() or 1), "coverwell-images")

        def submitted(first: int) -> list[Future[Tensor]]:
            positions = range(first, min(first + batch_size, len(self)))
            return [pool.submit(self.read, position, size) for position in positions]

        try:
            coming = submitted(0)
            for first in range(0, len(self), batch_size):
                present, coming = coming, submitted(first + batch_size)
                batch = torch.stack([image.result() for image in present])
                del present
                yield batch
        finally:
            pool.shutdown(cancel_futures=True)

    def key(self) -> str:
        """A sha256 that identifies these images in this order.

        Files count by absolute path, length and time of change; images in memory by their content. A data set with a
        text `key`, which its owner changes whenever its images change, is not read; any other is read through once.
        """
        given = getattr(self.items, "key", None)
        if isinstance(given, str):
            return hashlib.sha256(f"key {len(self)} {given}".encode()).hexdigest()
        digest = hashlib.sha256(f"items {len(self)}".encode())
        for position in range(len(self)):
            with self._item(position) as item:
                if isinstance(item, str | os.PathLike):
                    file = os.stat(item)
                    digest.update(repr(("file", os.path.abspath(item), file.st_size, file.st_mtime_ns)).encode())
                    continue
                if _is_pil(item):
                    content, transparency = item.tobytes(), item.info.get("transparency")
                    about: tuple[Any, ...] = ("image", item.mode, item.size, item.getpalette(), transparency)
                else:
                    pixels = _channels_first(item).contiguous()
                    content = pixels.flatten().view(torch.uint8).numpy().data
                    about = ("pixels", pixels.dtype, tuple(pixels.shape))
                digest.update(hashlib.sha256(repr(about).encode() + content).digest())
        return digest.hexdigest()

    @contextmanager
    def _item(self, position: int) -> Iterator[Any]:
        """An item; what is raised about it, missing or broken, becomes an `ImageError` that begins with its name."""
        try:
            with self._one_at_a_time:
                item = self.items[position]
        except Exception as error:
            error.add_note(f"while reading image {position}")
            raise
        item = item[0] if isinstance(item, tuple) and len(item) == 1 else item  # as a TensorDataset of images gives
        path = item if isinstance(item, str | os.PathLike) else getattr(item, "filename", None)
        name = f"image {position} ({os.fspath(path)})" if path else f"image {position}"
        try:
            yield item
        except (ImportError, MemoryError):  # no fault of the image
            raise
        except Exception as error:  # decoders raise nearly anything about a broken file
            other = f"{type(error).__name__}: {error}; replace it or leave it out"
            raise ImageError(f"{name} cannot be read: {error if isinstance(error, ImageError) else other}") from error


def images_of(images: Any) -> Images:
    """What a user gives as images, ready to be read.

    That is an array or tensor (image, channel, height, width) of uint8, of uint16, or of floats in [0, 1]; a list, a
    column or a data frame of one column (pandas or polars) of file paths; or a `torch.utils.data.Dataset` or anything
    else with a length and `[i]`, whose items are as in `Images`.
    """
    found = images if isinstance(images, Images) else Images(_items(images))
    if len(found) == 0:
        raise ValueError("images must hold at least one image, got none")
    return found


def _items(images: Any) -> Any:
    if is_frame(images):
        columns = columns_of(images)
        if len(columns) != 1:
            got = f"{len(columns)}: {list(columns)}; give that column alone, such as frame['path']"
            raise ValueError(f"a data frame of images must have one column, of file paths, got {got}")
        (images,) = columns.values()
    if hasattr(images, "to_list") and hasattr(images, "dtype"):  # a column
        return _paths(images.to_list())
    if isinstance(images, np.ndarray) and images.ndim == 1 and images.dtype.kind in "OU":
        return _paths(images.tolist())
    if isinstance(images, Tensor | np.ndarray):
        _check_stack(tuple(images.shape))
        return images if isinstance(images, Tensor) else np.moveaxis(images, 1, -1)  # arrays have channels last
    is_sequence = isinstance(images, Sized) and callable(getattr(images, "__getitem__", None))
    if not is_sequence or isinstance(images, str | bytes | os.PathLike | dict):
        raise TypeError(
            "images must be an array (image, channel, height, width), a list or data frame of file paths, or a dataset "
            f"with a length and [i], got {type(images).__name__}; put a single image into a list"
        )
    are_paths = isinstance(images, list | tuple) and isinstance(next(iter(images), None), str | os.PathLike)
    return _paths(images) if are_paths else images


def _check_stack(shape: tuple[int, ...]) -> None:
    """Raise unless an array or tensor of this shape holds images."""
    if len(shape) == 4 and shape[1] in CHANNELS:
        return
    way_out, colours = "", CHANNELS[1:]
    match shape:
        case (_, _):
            way_out = ", a table; the network takes images: give file paths, or a network for tables such as MLP()"
        case (n, _, _) if n in colours:
            way_out = "; a single image (channel, height, width) becomes [None]"
        case (_, _, n) if n in colours:
            way_out = "; a single image (height, width, channel) becomes .transpose(2, 0, 1)[None] (torch: .permute)"
        case (_, _, _):
            way_out = "; grey images (image, height, width) become [:, None]"
        case (_, _, _, n) if n in CHANNELS:
            way_out = "; move the channels with .transpose(0, 3, 1, 2) (numpy) or .permute(0, 3, 1, 2) (torch)"
    must = "an array of images must have the shape (image, channel, height, width) with 1, 3 or 4 channels"
    raise ValueError(f"{must}, got {shape}{way_out}")


def _paths(values: Sequence[Any]) -> list[Path]:
    for position, value in enumerate(values):
        if not isinstance(value, str | os.PathLike) or value == "":
            raise TypeError(f"every image must be given by its file path, but image {position} is {value!r}")
    pillow()  # better now than at the first file
    return [Path(value) for value in values]


def pillow() -> Any:
    """Pillow's module of images, which is an optional companion."""
    try:
        import PIL.Image
    except ImportError:
        way_out = "install the extra `images`: pip install 'coverwell[images]'"
        raise ImportError(f"reading images from files needs Pillow; {way_out}") from None
    return PIL.Image


def _pixels(item: Any, size: int) -> Tensor:
    """An item as a tensor (channel, height, width)."""
    if not isinstance(item, str | os.PathLike):
        return _channels_first(_array(item, least_side=SPARE * size) if _is_pil(item) else item)
    images = pillow()
    try:
        with images.open(item) as image:
            n_pixels, limit = image.width * image.height, images.MAX_IMAGE_PIXELS
            if limit is not None and n_pixels > limit:  # Pillow's own warning does not name the file
                found = f"{os.fspath(item)} has {n_pixels:,} pixels, more than the {limit:,} that Pillow takes for safe"
                trusted = "it is read all the same. If you trust it, set PIL.Image.MAX_IMAGE_PIXELS higher"
                warnings.warn(f"{found}; {trusted}", LargeImageWarning, stacklevel=2)
            image.draft(None, (SPARE * size, SPARE * size))  # JPEG decodes at 1/2, 1/4 or 1/8; others take no notice
            return _channels_first(_array(image, least_side=SPARE * size))
    except (images.DecompressionBombError, images.DecompressionBombWarning) as error:
        way_out = "shrink it first, or if you trust it, set PIL.Image.MAX_IMAGE_PIXELS higher"
        raise ImageError(f"it is larger than Pillow takes for safe ({error}); {way_out}") from error


def _is_pil(item: Any) -> bool:
    return any(kind.__module__ == "PIL.Image" for kind in type(item).__mro__)


def _array(image: Image, *, least_side: int) -> NDArray[Any]:
    """Pixels (height, width) or (height, width, channel); sides are shrunk to no less than `least_side`."""
    if image.mode.startswith("I") or image.mode == "F":  # more than 8 bits, which Pillow would clip to 255, not scale
        values = np.asarray(image)
        if image.mode != "I":
            return values
        if values.size > 0 and (values.min() < 0 or values.max() > 65_535):
            raise ImageError(f"its numbers must lie in 0 to 65,535, got {values.min()} to {values.max()}")
        return values.astype(np.uint16)  # some readers make "I" of sixteen bits
    if image.has_transparency_data:
        image = image.convert("RGBA")
    elif image.mode != "L":
        image = image.convert("RGB")
    return np.asarray(image.reduce(max(1, min(image.size) // least_side)))


def _channels_first(item: Any) -> Tensor:
    if isinstance(item, Tensor):
        pixels, wanted = item.detach().cpu(), "a tensor (channel, height, width) or (height, width)"
    elif isinstance(item, np.ndarray):
        if item.dtype.kind not in "uf" or item.dtype.itemsize > 8:
            raise ImageError(f"its numbers must be uint8, uint16 or floats in [0, 1], got {item.dtype}")
        # A copy: torch takes no foreign byte order and no negative strides, and warns of read-only memory.
        pixels = torch.from_numpy(np.array(item, dtype=item.dtype.newbyteorder("="), order="C"))
        pixels = pixels.movedim(-1, 0) if pixels.ndim == 3 else pixels
        wanted = "an array (height, width) or (height, width, channel)"
    elif isinstance(item, tuple | list):
        way_out = "a dataset gives the images alone, the targets go into y"
        raise ImageError(f"it must be an image, got {type(item).__name__} of {len(item)}; {way_out}")
    else:
        raise ImageError(f"it must be a path, a PIL image, a tensor or an array, got {type(item).__name__}")
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    if pixels.ndim != 3 or pixels.shape[0] not in CHANNELS:
        raise ImageError(f"it must be {wanted} with 1, 3 or 4 channels, got the shape {tuple(item.shape)}")
    return pixels


def _squeezed(pixels: Tensor, size: int) -> Float[Tensor, "3 size size"]:
    """RGB in [0, 1], opaque and square; eight bits stay eight bits until the end."""
    if pixels.numel() == 0:
        raise ImageError(f"it is empty: {pixels.shape[1]} pixels high and {pixels.shape[2]} wide")
    if pixels.dtype == torch.uint16:
        pixels = pixels.float() / 65_535
    elif pixels.is_floating_point():
        low, high = (float(end) for end in pixels.aminmax())
        if not (low >= -ROUNDING and high <= 1 + ROUNDING):  # NaN is in no order
            raise ImageError(f"its floats must lie in [0, 1], got {low:.6g} to {high:.6g}; scale them")
        pixels = pixels.float()
    elif pixels.dtype != torch.uint8:
        raise ImageError(f"its numbers must be uint8, uint16 or floats in [0, 1], got {pixels.dtype}")
    if pixels.shape[0] == 4:  # on white
        pixels = pixels / 255 if pixels.dtype == torch.uint8 else pixels
        pixels = pixels[:3] * pixels[3:] + (1 - pixels[3:])
    if pixels.shape[1:] != (size, size):
        pixels = interpolate(pixels[None], size=(size, size), mode="bilinear", antialias=True)[0]
    pixels = pixels / 255 if pixels.dtype == torch.uint8 else pixels.clamp(0, 1)  # rounding again
    return pixels.expand(3, -1, -1)
