"""Files that are complete or not there: a new file gets its name when all of it is written."""

import errno
import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows, where nobody can remove a file that is open
    fcntl = None  # type: ignore[assignment]

LONGEST_NAME = 230  # bytes; file systems end at 255, and the name of the part is longer


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """An open binary file that gets its name when the block ends well; otherwise nothing is left.

    Until then a file that has the name already stays as it is. A symbolic link stays a link, and its target is
    replaced. Missing folders are made, and removed again if the block fails. Parts that killed processes have left of
    this file are removed.
    """
    path = pointed_to(path)
    with _new_folders(path.parent):
        name = path.name if len(os.fsencode(path.name)) <= LONGEST_NAME else path.name[:50]
        with _new_part(path.with_name(name)) as part:
            part_path = Path(part.name)
            try:
                yield part
                part.flush()
                os.fsync(part.fileno())  # before the rename: a power cut must not leave a name without content
                part.close()
                part_path.replace(path)
            finally:
                part.close()
                part_path.unlink(missing_ok=True)


def _new_part(path: Path) -> IO[bytes]:
    """An open file beside this one, locked for as long as it is open: nobody else takes it for one that was left."""
    remove_parts(path)
    while True:
        part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part").open("xb")
        with suppress(OSError):  # some network drives know no locks
            if fcntl:
                fcntl.flock(part, fcntl.LOCK_EX)
        if os.fstat(part.fileno()).st_nlink:  # not removed before it was locked
            return part
        part.close()


def remove_parts(path: Path) -> None:
    """Remove what killed processes have left of this file."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 16}.part"):
        with suppress(OSError):
            _remove_unless_open(left)


def _remove_unless_open(part: Path) -> None:
    if fcntl is None:
        part.unlink()
        return
    with part.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        part.unlink()


def pointed_to(path: Path) -> Path:
    """Where a symbolic link points to, even if nothing is there; any other path as it is."""
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():  # links that point to one another
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


@contextmanager
def _new_folders(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; if the block fails, remove those that were made."""
    absent = [above for above in (folder, *folder.parents) if not above.exists()]  # the deepest first
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for made in absent:
            with suppress(OSError):  # somebody else may have put something there
                made.rmdir()
        raise
