"""Images of any kind that users hold, read one at a time and streamed in batches.

An image is squeezed to a square: its sides are scaled each by its own factor (bilinear, with antialiasing), nothing is
cut off, so that places in fractions of the sides stay what they were. What comes out is RGB in [0, 1].

- Grey becomes three equal channels. Sixteen bits are divided by 65,535, eight by 255.
- Transparent pixels are laid on white: what lies under them is seen by no viewer and is often noise.
- Pixels come as they are stored. A turn that a camera noted in the EXIF data is not carried out, since positions in
  data sets refer to the stored pixels; where they do not, give images through `PIL.ImageOps.exif_transpose`.
- Files far larger than needed are shrunk on the way: JPEG while decoding, others by whole factors, down to no less than
  twice the size asked for.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
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

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "ImageError",
    "Images",
    "LargeImageWarning",
    "images_of",
    "naming",
    "opened",
    "pillow",
    "rgb_pixels",
]

CHANNELS = (1, 3, 4)  # grey, RGB, RGB and alpha
# Batches that are read ahead of the one that is being worked on.
BATCHES_AHEAD = 2
MOST_THREADS = 4
# A file is first shrunk cheaply to no less than this many times the size asked for; below 2 it would show.
SPARE = 2
# Numbers a hair outside [0, 1] are rounding of whoever made them.
ROUNDING = 1e-6


@contextmanager
def naming(image: str, through: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn what is raised about a missing or broken image into an `ImageError` that begins with its name.

    What is no fault of the image comes through as it is: Pillow that is not installed, memory that does not suffice,
    and the errors in `through`.
    """
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except through:
        raise
    except ImageError as error:
        raise ImageError(f"{image} cannot be read: {error}") from error
    except Exception as error:  # decoders raise nearly anything about a broken file
        reason = f"{type(error).__name__}: {error}"
        raise ImageError(f"{image} cannot be read: {reason}; replace it or leave it out") from error


class Images:
    """Images that are read when they are needed; made by `images_of`.

    Parameters
    ----------
    items : sequence
        With a length and `[i]`. An item is a path, a PIL image, a tensor (channel, height, width) or (height, width),
        or an array (height, width) or (height, width, channel). Items are asked for by one thread at a time, since a
        user's data set need not bear more; decoding and squeezing run side by side. A data set that gives PIL images
        as `PIL.Image.open` returns them, not yet decoded, leaves the decoding to those threads.
    """

    def __init__(self, items: Any) -> None:
        self.items = items
        self._one_at_a_time = threading.Lock()

    def __len__(self) -> int:
        return len(self.items)

    def read(self, position: int, size: int) -> Float[Tensor, "3 size size"]:
        """One image in [0, 1]."""
        item = self._item(position)
        with naming(_name(item, position)):
            return _squeezed(_pixels(item, size), size)

    def batches(
        self, *, size: int, batch_size: int = 32, mirrored: bool = False, n_threads: int | None = None
    ) -> Generator[Float[Tensor, "batch *view 3 size size"], None, None]:
        """All images in order: (batch, 3, size, size), or (batch, 2, 3, size, size) with their mirror images.

        No more than `BATCHES_AHEAD` batches wait, read or being read, beside the one that was given out.
        """
        n_threads = min(MOST_THREADS, os.cpu_count() or 1) if n_threads is None else n_threads
        _check_at_least_one(size=size, batch_size=batch_size, n_threads=n_threads)
        pool = ThreadPoolExecutor(n_threads, "coverwell-images")
        waiting: deque[Future[Tensor]] = deque()
        positions = iter(range(len(self)))
        try:
            for first in range(0, len(self), batch_size):
                batch = torch.empty(min(batch_size, len(self) - first), 3, size, size)
                for place in batch:
                    while len(waiting) < BATCHES_AHEAD * batch_size and (position := next(positions, None)) is not None:
                        waiting.append(pool.submit(self.read, position, size))
                    place.copy_(waiting.popleft().result())
                yield torch.stack([batch, batch.flip(-1)], dim=1) if mirrored else batch
        finally:
            pool.shutdown(cancel_futures=True)

    def key(self) -> str:
        """Sha256 that says which images these are: equal only if they are the same ones in the same order.

        Files count by absolute path, length and time of change; images in memory by their content. A data set with an
        attribute `key`, a text that its owner changes whenever its images change, is taken at its word and not read;
        any other is read through once.
        """
        given = getattr(self.items, "key", None)
        if isinstance(given, str):
            return hashlib.sha256(f"key {len(self)} {given}".encode()).hexdigest()
        digest = hashlib.sha256(f"items {len(self)}".encode())
        for position in range(len(self)):
            item = self._item(position)
            with naming(_name(item, position)):
                digest.update(_identity(item))
        return digest.hexdigest()

    def _item(self, position: int) -> Any:
        try:
            with self._one_at_a_time:
                item = self.items[position]
        except Exception as error:
            error.add_note(f"while reading image {position}")
            raise
        # A TensorDataset of images alone gives tuples of one.
        return item[0] if isinstance(item, tuple) and len(item) == 1 else item


class _Stack:
    """An array or tensor (image, channel, height, width) as a sequence of its images."""

    def __init__(self, array: NDArray[Any] | Tensor) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, position: int) -> NDArray[Any] | Tensor:
        image = self.array[position]
        return image if isinstance(image, Tensor) else np.moveaxis(image, 0, -1)  # arrays have channels last


def images_of(images: Any) -> Images:
    """What a user gives as images, ready to be read.

    Parameters
    ----------
    images : array, tensor, data frame or sequence
        An array or tensor (image, channel, height, width) of uint8, of uint16, or of floats in [0, 1]; a list, a
        column or a data frame of one column (pandas or polars) of file paths; a `torch.utils.data.Dataset` or any
        other sequence with a length and `[i]`, whose items are as in `Images`.

    Examples
    --------
    >>> import numpy as np
    >>> from coverwell.inputs.images import images_of
    >>> grey = np.zeros((5, 1, 20, 30), dtype=np.uint8)  # image, channel, height, width
    >>> [tuple(batch.shape) for batch in images_of(grey).batches(size=16, batch_size=4)]
    [(4, 3, 16, 16), (1, 3, 16, 16)]
    """
    if isinstance(images, Images):
        return images
    found = Images(_items(images))
    if len(found) == 0:
        raise ValueError("images must hold at least one image, got none")
    return found


def _items(images: Any) -> Any:
    if isinstance(images, Tensor):
        return _stack(images)
    if hasattr(images, "iloc") or type(images).__module__.startswith("polars"):
        return _paths(_column(images))
    if isinstance(images, np.ndarray):
        return _paths(images.tolist()) if images.ndim == 1 and images.dtype.kind in "OU" else _stack(images)
    if isinstance(images, str | bytes | os.PathLike | dict) or not _is_sequence(images):
        raise TypeError(
            f"images must be an array (image, channel, height, width), a list or data frame of file paths, or a "
            f"dataset with a length and [i], got {type(images).__name__}; put a single image into a list"
        )
    if isinstance(images, list | tuple) and len(images) > 0 and isinstance(images[0], str | os.PathLike):
        return _paths(images)
    return images


def _is_sequence(images: Any) -> bool:
    return hasattr(images, "__len__") and hasattr(images, "__getitem__")


def _stack(array: NDArray[Any] | Tensor) -> _Stack:
    if array.ndim != 4 or array.shape[1] not in CHANNELS:
        shape = tuple(array.shape)
        raise ValueError(
            f"an array of images must have the shape (image, channel, height, width) with 1, 3 or 4 channels, got "
            f"{shape}{_way_to_stack(shape)}"
        )
    return _Stack(array)


def _way_to_stack(shape: tuple[int, ...]) -> str:
    """What to do with an array of this shape."""
    colours = CHANNELS[1:]
    if len(shape) == 4 and shape[-1] in CHANNELS:
        return "; move the channels with .transpose(0, 3, 1, 2) (numpy) or .permute(0, 3, 1, 2) (torch)"
    if len(shape) == 3 and shape[0] in colours:
        return "; a single image (channel, height, width) becomes [None]"
    if len(shape) == 3 and shape[-1] in colours:
        return "; a single image (height, width, channel) becomes .transpose(2, 0, 1)[None] (torch: .permute)"
    return "; grey images (image, height, width) become [:, None]" if len(shape) == 3 else ""


def _column(frame: Any) -> list[Any]:
    """The one column of a data frame, or a series, as a list."""
    if hasattr(frame, "collect"):
        raise TypeError(f"images must be a polars DataFrame or Series, got {type(frame).__name__}; use .collect()")
    if len(frame.shape) == 1:
        return list(frame.to_list())
    names = list(frame.columns)
    if len(names) != 1:
        raise ValueError(
            f"a data frame of images must have one column, of file paths, got {len(names)}: {names}; give that "
            f"column alone, such as frame['path']"
        )
    return list(frame[names[0]].to_list())


def _paths(values: Sequence[Any]) -> list[Path]:
    for position, value in enumerate(values):
        if not isinstance(value, str | os.PathLike) or value == "":
            raise TypeError(f"every image must be given by its file path, but image {position} is {value!r}")
    pillow()  # better now than at the first file
    return [Path(value) for value in values]


def _name(item: Any, position: int) -> str:
    path = item if isinstance(item, str | os.PathLike) else getattr(item, "filename", None)
    return f"image {position} ({os.fspath(path)})" if path else f"image {position}"


# From an item to a tensor (channel, height, width) of uint8, or of floats in [0, 1]


def _pixels(item: Any, size: int) -> Tensor:
    if isinstance(item, str | os.PathLike):
        with opened(item, os.fspath(item)) as image:
            image.draft(None, (SPARE * size, SPARE * size))  # JPEG decodes at 1/2, 1/4 or 1/8; others take no notice
            return _image_pixels(image, least_side=SPARE * size)
    if _is_pil(item):
        return _image_pixels(item, least_side=SPARE * size)
    return _unit(_channels_first(item))


def pillow() -> Any:
    """Pillow's module of images, which is an optional companion."""
    try:
        import PIL.Image
    except ImportError:
        raise ImportError(
            "reading images from files needs Pillow; install coverwell[images], with the extra `images`: pip install "
            "'coverwell[images]'"
        ) from None
    return PIL.Image


@contextmanager
def opened(source: str | os.PathLike[str] | io.BytesIO, name: str) -> Iterator[Image]:
    """The image in a file, opened by Pillow and not yet decoded; `name` is what a warning calls it."""
    images = pillow()
    try:
        with images.open(source) as image:
            _warn_if_large(image, images.MAX_IMAGE_PIXELS, name)
            yield image
    except (images.DecompressionBombError, images.DecompressionBombWarning) as error:
        raise ImageError(
            f"it is larger than Pillow takes for safe ({error}); shrink it first, or if you trust it, set "
            "PIL.Image.MAX_IMAGE_PIXELS higher"
        ) from error


def _warn_if_large(image: Image, limit: int | None, name: str) -> None:
    # Pillow warns too, but names no file. Its warning stays: filters of warnings are not to be changed in a thread.
    n_pixels = image.width * image.height
    if limit is not None and n_pixels > limit:
        warnings.warn(
            f"{name} has {n_pixels:,} pixels, more than the {limit:,} that Pillow takes for safe; it is read all the "
            "same. If you trust it, set PIL.Image.MAX_IMAGE_PIXELS higher",
            LargeImageWarning,
            stacklevel=2,
        )


def rgb_pixels(image: Image) -> NDArray[np.uint8]:
    """All pixels of an image of eight bits per channel, (height, width, channel): RGB, opaque."""
    if _is_deep(image):
        raise ImageError(f"it must have 8 bits per channel, Pillow's mode here is {image.mode}; convert it first")
    if image.has_transparency_data:
        return (255 * _image_pixels(image)).round().to(torch.uint8).movedim(0, -1).contiguous().numpy()
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _is_pil(item: Any) -> bool:
    return any(kind.__module__ == "PIL.Image" for kind in type(item).__mro__)


def _image_pixels(image: Image, *, least_side: int | None = None) -> Tensor:
    """Pixels as `_unit` gives them; sides are shrunk by a whole factor, to no less than `least_side`."""
    if _is_deep(image):
        return _unit(_tensor(_deep_grey(image))[None])
    if image.has_transparency_data:
        image = image.convert("RGBA")
    elif image.mode != "L":
        image = image.convert("RGB")
    factor = 1 if least_side is None else min(image.size) // least_side
    image = image.reduce(factor) if factor > 1 else image
    return _unit(_channels_first(np.asarray(image)))


def _is_deep(image: Image) -> bool:
    """Whether it has more than eight bits per channel; Pillow would clip such numbers to 255, not scale them."""
    return image.mode.startswith("I") or image.mode == "F"


def _deep_grey(image: Image) -> NDArray[Any]:
    """A grey image of more than eight bits; whole numbers of 32 bits are what some readers make of sixteen."""
    values = np.asarray(image)
    if image.mode == "I":
        if values.size > 0 and (values.min() < 0 or values.max() > 65_535):
            raise ImageError(f"its numbers must lie in 0 to 65,535, got {values.min()} to {values.max()}")
        return values.astype(np.uint16)
    return values


def _channels_first(item: Any) -> Tensor:
    if isinstance(item, Tensor):
        pixels = item.detach().cpu()
        pixels = pixels[None] if pixels.ndim == 2 else pixels
        wanted = "a tensor (channel, height, width) or (height, width)"
    elif isinstance(item, np.ndarray):
        pixels = _tensor(item)
        pixels = pixels[None] if pixels.ndim == 2 else pixels.movedim(-1, 0) if pixels.ndim == 3 else pixels
        wanted = "an array (height, width) or (height, width, channel)"
    elif isinstance(item, tuple | list):
        raise ImageError(
            f"it must be an image, got {type(item).__name__} of {len(item)}; a dataset gives the images alone, the "
            f"targets go into y"
        )
    else:
        raise ImageError(f"it must be a path, a PIL image, a tensor or an array, got {type(item).__name__}")
    if pixels.ndim != 3 or pixels.shape[0] not in CHANNELS:
        raise ImageError(f"it must be {wanted} with 1, 3 or 4 channels, got the shape {tuple(item.shape)}")
    return pixels


def _tensor(array: NDArray[Any]) -> Tensor:
    """A copy as a tensor: torch takes no foreign byte order and no negative strides, and warns of read-only memory."""
    if array.dtype.kind not in "uf" or array.dtype.itemsize > 8:
        raise ImageError(f"its numbers must be uint8, uint16 or floats in [0, 1], got {array.dtype}")
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def _unit(pixels: Tensor) -> Tensor:
    """Pixels as uint8, or as float32 in [0, 1]: checked, opaque."""
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
    return _on_white(pixels) if pixels.shape[0] == 4 else pixels


def _on_white(pixels: Tensor) -> Tensor:
    pixels = pixels / 255 if pixels.dtype == torch.uint8 else pixels
    colour, alpha = pixels[:3], pixels[3:]
    return colour * alpha + (1 - alpha)


def _squeezed(pixels: Tensor, size: int) -> Float[Tensor, "3 size size"]:
    if pixels.shape[1:] != (size, size):
        pixels = interpolate(pixels[None], size=(size, size), mode="bilinear", antialias=True)[0]
    pixels = pixels / 255 if pixels.dtype == torch.uint8 else pixels.clamp(0, 1)  # rounding again
    return pixels.expand(3, -1, -1)


# What an item is, as bytes that differ when it differs


def _identity(item: Any) -> bytes:
    if isinstance(item, str | os.PathLike):
        about = os.stat(item)
        return repr(("file", os.path.abspath(item), about.st_size, about.st_mtime_ns)).encode()
    digest = hashlib.sha256()
    if _is_pil(item):
        digest.update(repr(("image", item.mode, item.size, item.getpalette())).encode())
        digest.update(repr(item.info.get("transparency")).encode())
        digest.update(item.tobytes())
    else:
        pixels = _channels_first(item)
        digest.update(repr(("pixels", pixels.dtype, tuple(pixels.shape))).encode())
        digest.update(pixels.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()


def _check_at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
