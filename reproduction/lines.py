"""Results as lines of JSON: added whole, read whole, each with its versions and device.

A results file only grows. What a kill can leave behind is a last line that breaks off: it is passed over in reading and
cut off by the next command that writes.
"""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch

from coverwell._version import __version__
from coverwell.training.device import device_from

try:
    import fcntl
except ImportError:  # Windows: no lock there
    fcntl = None  # type: ignore[assignment]

Line = dict[str, Any]

FORMAT = 1
ANY_VERSION = "any"
WAY_OUT = "give another folder with --out, or remove those lines from the file"


class ResultsFileError(ValueError):
    """A results file cannot be used: a line of it is damaged, doubled or of another version, or it is being written."""


def environment(device: str) -> Line:
    """Where a line was made: the device's name and the versions."""
    where = device_from(device)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else f"{platform.machine()} {where.type.upper()}"
    versions = {"coverwell": __version__, "torch": str(torch.__version__), "sklearn": sklearn.__version__}
    return {"device": name, "versions": {**versions, "numpy": np.__version__, "python": platform.python_version()}}


def key_of(line: Line, key: Sequence[str]) -> tuple[Hashable, ...]:
    """What tells a line from all others; lists become tuples."""
    return tuple(tuple(line[name]) if isinstance(line[name], list) else line[name] for name in key)


def append(path: Path, lines: Iterable[Line]) -> None:
    """Add whole lines in one write that has reached the disk on return; a last line that broke off is cut off first."""
    content = b"".join(json.dumps(line, allow_nan=False).encode() + b"\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        file.seek(0)
        before = file.read()
        _, torn = _whole_and_torn(before)
        if torn and not torn.startswith(b"{"):
            raise ResultsFileError(f"{path} ends in {torn[:40]!r}, which is no line of ours; {WAY_OUT}")
        if torn:
            file.truncate(len(before) - len(torn))
        elif before and not before.endswith(b"\n"):
            content = b"\n" + content
        n_written = file.write(content)
        os.fsync(file.fileno())
    if n_written < len(content):
        raise OSError(errno.ENOSPC, "the disk took only a part of the new lines", str(path))


def read(
    path: Path,
    *,
    fields: Sequence[str],
    key: Sequence[str],
    version: str | None = __version__,
    methods: Container[str] | None = None,
) -> list[Line]:
    """The whole lines of a results file, which stays as it is; none if there is no file.

    Every line must have these fields, no two may agree in all fields of the key, and those of one method must be
    written by one version of coverwell, or by what it was in development: those of `methods` (None is all) by the given
    one, unless it is None. `ANY_VERSION` allows several, for lines of other packages. Raises `ResultsFileError` if not.
    """
    lines: list[Line] = []
    number_of: dict[Hashable, int] = {}
    version_of: dict[str, str] = {}
    for number, text in enumerate(whole_lines(path), start=1):
        where, line = f"{path}, line {number}", _parsed(text)
        if line is None:
            raise ResultsFileError(f"{where}: expected one JSON object, got {text[:40]!r}; {WAY_OUT}")
        if line.get("format") != FORMAT:
            raise ResultsFileError(f"{where}: expected format {FORMAT}, got {line.get('format')!r}; {WAY_OUT}")
        missing = [name for name in fields if name not in line]
        if not isinstance(line.get("versions"), dict) or "coverwell" not in line["versions"]:
            missing.append("the version of coverwell")
        if missing:
            raise ResultsFileError(f"{where}: the line lacks {', '.join(missing)}; {WAY_OUT}")
        written_by = line["versions"]["coverwell"]
        given = version if methods is None or line["method"] in methods else None
        expected = version_of.setdefault(line["method"], given or written_by)
        if version != ANY_VERSION and written_by.partition(".dev")[0] != expected.partition(".dev")[0]:
            raise ResultsFileError(
                f"{where}: written by coverwell {written_by}, expected {expected}: numbers of different versions are "
                f"not mixed in a method; install {written_by}, {WAY_OUT}"
            )
        first = number_of.setdefault(key_of(line, key), number)
        if first != number:
            raise ResultsFileError(f"{where}: the same run is in line {first}; remove one of the two lines")
        lines.append(line)
    return lines


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file without a last one that broke off; none if there is no file."""
    return _whole_and_torn(path.read_bytes() if path.exists() else b"")[0]


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Keep other commands from writing to a results file; the system ends this with the process, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = f"another command is writing to {path}; wait until it ends, or give another folder with --out"
                raise ResultsFileError(message) from None
        yield


def _whole_and_torn(content: bytes) -> tuple[list[bytes], bytes]:
    """The whole lines, and what follows them: the beginning of a line that a kill broke off, or nothing."""
    *whole, last = content.split(b"\n")
    if _parsed(last) is not None:  # no beginning of an object is an object: only its line end is missing
        return [*whole, last], b""
    return whole, last


def _parsed(text: bytes) -> Line | None:
    """The object in a line of JSON; None for anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
