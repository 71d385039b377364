"""What a command prints when something is wrong: one line on standard error, an exit code, and no traceback."""

import json
import shlex
import signal
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click

from coverwell.errors import NonFiniteLossError
from coverwell.files import pointed_to

MOST_OF_A_KIND = 4  # warnings that are shown
TYPED = "coverwell.typed"  # the key of the whole command in the meta of its context
STOPPED_BY = 128  # plus the number of the signal, as shells count


class BadInput(click.ClickException):
    """Files or options that cannot be used as they are."""

    exit_code = 2


class OneLineGroup(click.Group):
    """A group whose commands say in one line what is wrong with their arguments, their files or the machine.

    Bad files and options have exit code 2; what goes wrong in spite of good ones, such as a full disk, has 1.
    """

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        typed = shlex.join([info_name or "", *args])
        with _errors_in_one_line():
            context = super().make_context(info_name, args, *more, **extra)
        context.meta.setdefault(TYPED, typed)
        return context

    def invoke(self, ctx: click.Context) -> Any:
        with _errors_in_one_line(), _warnings_in_one_line(), _sigterm_like_ctrl_c():
            return super().invoke(ctx)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:  # the help itself
        raise
    except click.UsageError as error:
        command = "" if error.ctx is None else f" (see {error.ctx.command_path} --help)"
        raise BadInput(f"{_one_line(error.format_message()).rstrip('.')}{command}") from None
    except KeyboardInterrupt as stop:
        kept = " ".join(getattr(stop, "__notes__", ["Nothing was written."]))
        click.echo(f"\nStopped. {kept}", err=True)
        raise SystemExit(STOPPED_BY + (stop.args[0] if stop.args else signal.SIGINT)) from None
    except (ImportError, NonFiniteLossError) as error:
        raise click.ClickException(_one_line(error)) from None
    except (ValueError, TypeError) as error:  # what the library says about data and parameters
        raise BadInput(_one_line(error)) from None
    except MemoryError:
        raise click.ClickException("not enough memory for this; take fewer rows, or a larger machine") from None
    except BrokenPipeError:
        raise  # whoever read our output has seen enough; click ends quietly
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        way_out = "nothing was written: make room, or choose another place"
        raise click.ClickException(f"{error.strerror or error}{where}; {way_out}") from None
    except Exception as error:
        if not type(error).__module__.startswith("polars"):
            raise
        raise BadInput(f"{_one_line(error)}; look at the columns of that file") from None


@contextmanager
def _sigterm_like_ctrl_c() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only that one may set what a signal does
        yield
        return

    def stop(*_: Any) -> None:  # what is half written is removed, as after Ctrl-C
        raise KeyboardInterrupt(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print the first few warnings of a kind, and at the end how many came after them, such as from parts of a file."""
    shown: defaultdict[type[Warning], list[str]] = defaultdict(list)

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = _one_line(message)
        for_users = issubclass(category, UserWarning) and not issubclass(category, DeprecationWarning)
        if not for_users or text in shown[category]:
            return  # others are about the packages that we build on
        shown[category].append(text)
        if len(shown[category]) <= MOST_OF_A_KIND:
            click.echo(f"Warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield
    for category, texts in shown.items():
        if (count := len(texts) - MOST_OF_A_KIND) > 0:
            click.echo(f"Warning: {count} more of the kind {category.__name__}, for other rows.", err=True)


def check_output(path: Path, *, force: bool, inputs: Sequence[Path] = (), name: str = "--out") -> None:
    """Raise before any work unless a file can be written there; `name` is what users call the place."""
    try:
        above = next(folder for folder in pointed_to(path).absolute().parents if folder.exists())
        if path.exists() and not path.is_file():
            raise BadInput(f"{name} must be a file, but {path} is {'a folder' if path.is_dir() else 'no plain file'}")
        if any(path.exists() and path.samefile(other) for other in inputs):
            raise BadInput(f"{name} {path} is the file that is read; give another name")
        if path.exists() and not force:
            raise BadInput(f"{path} exists; give another {name}, or --force to replace it")
        if not above.is_dir():
            raise BadInput(f"{name} {path} cannot be written, since {above} is not a folder; give another {name}")
        with TemporaryFile(dir=above):  # permissions are not enough: the disk may be read-only or full
            pass
    except OSError as error:
        where = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        raise BadInput(f"{name} {path} cannot be written ({where}); give another {name}") from None


def print_json(content: Any) -> None:
    click.echo(json.dumps(content, indent=1, default=str))


def _one_line(message: object) -> str:
    return " ".join(str(message).split())
