"""Files that are complete or not there: a new file gets its name when all of it is written."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

LONGEST_NAME = 230  # bytes; file systems end at 255, and the name of the part is longer


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """An open binary file that gets its name when the block ends well; otherwise nothing is left.

    Until then a file that has the name already stays as it is. A symbolic link stays a link, and its target is
    replaced. Missing folders are made, and removed again if the block fails.
    """
    path = pointed_to(path)
    with _new_folders(path.parent):
        name = path.name if len(os.fsencode(path.name)) <= LONGEST_NAME else path.name[:50]
        part_path = path.with_name(f"{name}.{secrets.token_hex(8)}.part")
        with part_path.open("xb") as part:
            try:
                yield part
                part.flush()
                os.fsync(part.fileno())  # before the rename: a power cut must not leave a name without content
                part.close()
                part_path.replace(path)
            finally:
                part.close()
                part_path.unlink(missing_ok=True)


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
