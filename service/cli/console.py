"""The terminal side of the command line: reading, writing, and one clear line for each error.

It imports the standard library only, since every command loads it.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

from service.problems import problem_from
from solver import documents
from solver.errors import (
    ArenaplanError,
    CapacityError,
    DocumentError,
    InternalError,
    NotJsonError,
    OptionsError,
    OtherFormatError,
    ProblemError,
)
from solver.options import DEPLOYMENT_OPTIONS, MEASURES, REQUEST_OPTIONS, flag_of

if TYPE_CHECKING:
    from solver.plan import RequestedOptions

__all__ = [
    "TITLES",
    "Exit",
    "command_line",
    "degrade_output",
    "drop_unwritable",
    "end_for",
    "ended_by",
    "errors_may_be_seen",
    "explain_command",
    "fail",
    "heed",
    "note_end",
    "print_commands",
    "print_json",
    "print_line",
    "print_notes",
    "print_written",
    "progress_text",
    "read_document",
    "read_options",
    "reading_commands",
    "reporting",
    "showing",
    "write_document",
]


#: Operands in a message about one line long.
MOST_NAMED: Final = 3


class Exit(IntEnum):
    """The exit codes of all commands. Other signals than Ctrl-C's have codes of their own."""

    OK = 0
    WRONG = 1
    USAGE = 2
    TOO_LARGE = 3
    BUG = 4
    CHANGE = 5
    INTERRUPTED = 130


#: The signal that is to end this command, or 0; and whether that was raised as an exception.
_signal: Final = [0]
_raised: Final = [False]


def end_for(number: int, _frame: object = None) -> NoReturn:
    """A handler of signals: the command puts away what it has begun, as for Ctrl-C, and ends."""
    note_end(number)
    _raised[0] = True
    raise KeyboardInterrupt


def note_end(number: int) -> None:
    """The command is going to end because of this signal; 0: it is not."""
    _signal[0], _raised[0] = number, False


def heed() -> None:
    """Raise KeyboardInterrupt once more: C modules that are being loaded may swallow the one of a handler."""
    if _raised[0]:
        raise KeyboardInterrupt


def ended_by() -> int:
    """The exit code of a command that was interrupted: 128 and the number of the signal."""
    return 128 + (_signal[0] or signal.SIGINT)


def errors_may_be_seen() -> bool:
    """Whether rich, which takes a while to load, could take standard error for a terminal."""
    return sys.stderr.isatty() or any(name in os.environ for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))


#: One ASCII character for each of those that tables and maps are made of, so that columns stay straight.
_ASCII: Final = str.maketrans("…·×–—→▁▂▃▄▅▆▇█", "~.x-->.:-=+*#@")


def degrade_output() -> None:
    """Write in ASCII what standard output and standard error cannot encode, rather than fail.

    An error handler that the user has chosen (``PYTHONIOENCODING=latin-1:replace``) stays.
    """
    _replace_closed()
    codecs.register_error("arenaplan", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="arenaplan")


#: Whether this process was started without a standard output.
_no_output: Final = [False]


def _replace_closed() -> None:
    """A stream that was closed before the start would be None, and the next file to be opened would be it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
            _no_output[0] |= name == "stdout"


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Write symbols in ASCII; characters of names become escapes, as ``\\u4e2d``, and stay different."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


def _json_text(value: Mapping[str, Any], stream: TextIO, indent: int | None = None) -> str:
    """JSON has escapes of its own for what the stream cannot encode."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    ascii_only = not encoding.lower().startswith("utf")
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only)


def print_line(line: str, *, to_errors: bool = False) -> None:
    """Print a line on standard output, or standard error, at once."""
    stream = sys.stderr if to_errors else sys.stdout
    # Where errors cannot be said, the exit code still does.
    with contextlib.suppress(OSError) if to_errors else contextlib.nullcontext():
        stream.write(f"{line}\n")
        stream.flush()


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on an imported model, one a line, to standard error."""
    for note in notes:
        print_line(f"arenaplan: note: {note}", to_errors=True)


#: What is shown while a request is answered, by what is wanted; {} is the network.
TITLES: Final[Mapping[str, str]] = {
    "plan": "planning {}",
    "deployment": "planning {}",
    "tradeoff": "looking for schedules of {}",
    "verdict": "looking for what makes {} fit",
    "largest": "looking for the largest size of {}",
    "trainable": "looking for what to train of {}",
    "validation": "training {}",
    "import": "importing {}",
}


def progress_text(stage: str, found: Mapping[str, Any]) -> str:
    """``layout, 21,613,184 bytes, at least 21,613,184``: figures of a search, by the names that jobs have."""

    def share(name: str) -> str | None:
        part, step = found.get(name), found.get("step_nanoseconds")
        return None if part is None or not step else f"{10_000 * part // step / 100:.2f} %"

    peak, bound, moved = (found.get(name) for name in ("peak_bytes", "bound_bytes", "moved_bytes"))
    parts = [stage]
    if peak is not None:
        parts.append(f"{peak:,} bytes")
    if bound:  # 0 is no news
        parts.append(f"at least {bound:,}")
    if extra := share("extra_nanoseconds"):
        parts.append(f"+{extra} of time")
    if (least := share("bound_nanoseconds")) not in (None, "0.00 %"):
        parts.append(f"at least {least}")
    if moved is not None:
        parts.append(f"{moved:,} bytes moved")
    return ", ".join(parts)


def print_json(value: Mapping[str, Any]) -> None:
    print_line(_json_text(value, sys.stdout, indent=2))


def print_written(output: Path, facts: Mapping[str, Any], sentence: str, *, as_json: bool) -> None:
    """Say what was written to a file, in a sentence or as facts; nothing of standard output."""
    if str(output) == "-":
        return
    if as_json:
        print_json(facts)
    else:
        print_line(sentence)


def fail(message: str, code: Exit, *, as_json: bool = False, **facts: Any) -> NoReturn:
    """End with one line on standard error, or one JSON object for scripts."""
    if as_json:
        line = _json_text({"error": message, "exit": int(code), **facts}, sys.stderr)
    else:
        line = f"arenaplan: {' '.join(message.split())}"
    print_line(line, to_errors=True)
    raise SystemExit(int(code))


@contextlib.contextmanager
def reporting(*, as_json: bool, document: str = "", place: str = "") -> Iterator[None]:
    """Turn the errors of the core and of the file system into messages with an exit code.

    `place` is what an error of the system is about that names no file.
    """
    try:
        yield
        sys.stdout.flush()
    except ArenaplanError as error:
        if isinstance(error, OptionsError) and flag_of(str(*error.path[:1])) == "--only":
            error.message, error.remedy = _hyphenated(error.message), _hyphenated(error.remedy)
        document = error.document or document
        problem = problem_from(error)
        if command := _command_for(error, document):
            problem.remedy = command
            message = f"{document}: {command}"
        else:
            message = f"{_place(error, document)}{problem.detail}{_largest(error)} {problem.remedy}".rstrip()
        facts = {name: value for name, value in problem.document().items() if name not in ("status", "title")}
        code = Exit.TOO_LARGE if isinstance(error, CapacityError) else Exit.USAGE
        fail(message, Exit.BUG if isinstance(error, InternalError) else code, as_json=as_json, **facts)
    except KeyboardInterrupt:
        raise SystemExit(int(Exit.INTERRUPTED)) from None
    except (BrokenPipeError, SystemExit) as end:
        if not _is_closed_pipe(end):
            raise
        _drop(sys.stdout)
        raise SystemExit(int(Exit.OK)) from None
    except OSError as error:
        about = f"{error.filename or place}: " if error.filename or place else ""
        fail(f"{about}{error.strerror or error}.", Exit.USAGE, as_json=as_json)
    except Exception as error:
        if hasattr(error, "exit_code"):  # of click, which has words and codes of its own
            raise
        _fail_with_bug(error, as_json=as_json)


def _is_closed_pipe(end: BaseException) -> bool:
    """Whether standard output was closed by its reader, which libraries may turn into an exit."""
    return isinstance(end, BrokenPipeError) or (
        isinstance(end, SystemExit) and end.code == 1 and isinstance(end.__context__, BrokenPipeError)
    )


def drop_unwritable() -> None:
    """Discard buffered output that a stream cannot take; Python would end with exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _drop(stream)


def _drop(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def showing() -> Iterator[None]:
    """Ignore a closed pipe while something is shown: that changes no verdict, so the command goes on."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as end:
        if not _is_closed_pipe(end):
            raise
        _drop(sys.stdout)


def _fail_with_bug(error: Exception, *, as_json: bool = False) -> NoReturn:
    """End with the traceback of an exception that nothing foresaw, and the exit code for bugs.

    Ctrl-C while a compiled module is initialized comes as an ImportError, with what it was as its cause.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            raise SystemExit(int(Exit.INTERRUPTED)) from None
        cause = cause.__cause__
    import traceback

    trace = "".join(traceback.format_exception(error))
    message = f"This is a bug of arenaplan: {type(error).__name__}: {error}"
    if as_json:
        fail(message, Exit.BUG, as_json=True, traceback=trace)
    print_line(trace.rstrip(), to_errors=True)
    fail(f"{message} Please report it with the lines above.", Exit.BUG)


_PLAN_IT: Final = "arenaplan plan {file} -o plan.json"
_NETWORK: Final = ("a graph", _PLAN_IT)
_MODEL: Final = ("a model", "arenaplan plan {file} --loss cross-entropy -o plan.json")

#: By the format of a document: what it is, and the command that takes it.
_DOCUMENTS: Final[Mapping[str, tuple[str, str]]] = {
    "arenaplan.graph": _NETWORK,
    "arenaplan.program": ("a program", _PLAN_IT),
    "arenaplan.plan": ("a plan", "arenaplan show {file}"),
    "arenaplan.buffers": ("a problem of buffers", "arenaplan solve {file} -o layout.json"),
    "arenaplan.layout": ("a layout of buffers", "arenaplan solve buffers.json -o {file} makes it"),
    "arenaplan.costs": ("a list of costs", "arenaplan plan graph.json --costs {file} -o plan.json"),
    "arenaplan.tradeoff": ("a trade-off curve", "arenaplan tradeoff graph.json -o {file} makes it"),
    "arenaplan.verdict": ("a verdict", "arenaplan explain graph.json --capacity SIZE --json makes it"),
    "arenaplan.report": ("a validation report", "arenaplan validate graph.json plan.json --json makes it"),
    "arenaplan.budgets": ("a list of budgets", "arenaplan budget check {file}"),
}

#: By the suffix of a file that is not JSON: the same.
_FILES: Final[Mapping[str, tuple[str, str]]] = {
    ".onnx": _MODEL,
    ".circle": _MODEL,
    ".tflite": _MODEL,
    ".ini": ("a model of nntrainer", "arenaplan plan {file} --target nntrainer -o plan.json"),
    ".csv": ("a problem of buffers", "arenaplan solve {file} -o layout.csv"),
    ".toml": ("a list of budgets", "arenaplan budget check {file}"),
}


def _command_for(error: ArenaplanError, file: str) -> str | None:
    """``this is a plan: arenaplan show plan.json``, where `error` says that `file` is of another kind.

    None for all other errors, and for kinds that are not known here.
    """
    suffix = Path(file).suffix.lower()
    if isinstance(error, OtherFormatError):
        kind = _DOCUMENTS.get(error.format)
    elif isinstance(error, NotJsonError) or (isinstance(error, ProblemError) and suffix != ".csv"):
        kind = _FILES.get(suffix)
    else:
        return None
    if kind is None:
        return None
    noun, command = kind
    return f"this is {noun}: {command.format(file=shlex.quote(file))}"


def _hyphenated(text: str) -> str:
    """A text with measures, and the flag beside `--only`, as the command line writes them."""
    for name in (*MEASURES, "as_written"):
        text = text.replace(name, name.replace("_", "-"))
    return text


def _largest(error: ArenaplanError) -> str:
    """The largest operands at the peak of an arena that does not fit."""
    if not isinstance(error, CapacityError) or not error.live_at_peak:
        return ""
    named = ", ".join(f"{name} ({size:,})" for name, size in error.live_at_peak[:MOST_NAMED])
    return f" Largest at the peak: {named}."


def _place(error: ArenaplanError, document: str) -> str:
    """The place of the mistake: an option of the command line, or a place in a document."""
    # Tiers on the command line are read as those of an options document; no other document begins with them.
    # So are entry points and ties.
    if isinstance(error, OptionsError | CapacityError) or error.path[:1] in (
        ("tiers",),
        *((name,) for name in DEPLOYMENT_OPTIONS),
    ):
        name = str(error.path[0]) if error.path else ""
        if name == "output":  # of the command; that of a model is --output-name
            return "--output: "
        if name == "models":  # arguments, which have no flag
            return ""
        return f"{flag_of(name)}: " if name else ""
    if not document:
        return ""
    return f"{document}#{error.pointer}: " if error.pointer else f"{document}: "


def read_options(given: Mapping[str, Any]) -> RequestedOptions:
    """The options of a plan, by fields of their document. Raises OptionsError, whose path is an option."""
    from solver.plan import RequestedOptions

    if not given:
        return RequestedOptions()
    try:
        return documents.load_options(given)
    except DocumentError as error:
        raise OptionsError(error.message, remedy=error.remedy, path=error.path) from error


def read_document(path: Path) -> bytes:
    """The bytes of a file, of standard input for ``-``."""
    return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()


def write_document(path: Path, data: bytes) -> None:
    """Write all or nothing: a failure leaves a file that was there as it was. ``-``: standard output."""
    if str(path) == "-":
        if _no_output[0]:
            raise OSError(errno.EBADF, "it is closed", "standard output")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    if path.exists() and not path.is_file():
        path.write_bytes(data)  # a device or pipe has nothing to lose
        return
    target = path.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(_mode(target))
        temporary.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)  # gone already where all went well


def _mode(target: Path) -> int:
    """Permissions of the file that is replaced, or those of a new one."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


# ----------------------------------------------------------------------------------- commands as text


#: Options of `plan` that `explain` does not take, and the capacity, for which it has another one.
_SCHEDULED: Final = {
    "solver",
    "capacity",
    *(n for n, o in REQUEST_OPTIONS.items() if "verdict" not in o.changes),
}

_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def command_line(
    command: str, *arguments: str | Path, options: Mapping[str, Any], output: str | None = None
) -> str:
    """``arenaplan plan graph.json --batch 4 -o plan.json``, quoted for a shell.

    `options` are by name: fields of an options document and choices for models. Those that have their default
    or are None are left out.
    """
    words = ["arenaplan", command, *map(str, arguments)]
    for name, value in options.items():
        declared = REQUEST_OPTIONS.get(name)
        if value is None or (declared is not None and value == declared.default):
            continue
        if value is True:
            words.append(flag_of(name))
            continue
        if name == "only" and not isinstance(value, str):
            words += ["--only", ",".join(value).replace("_", "-")] if value else ["--as-written"]
            continue
        is_size = declared is not None and declared.kind == "size"
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [flag_of(name), _size_text(one) if is_size else str(one)]
    return shlex.join(words + (["-o", output] if output else []))


def _size_text(size: int | str) -> str:
    """Bytes as ``512KiB`` where that is exact."""
    if isinstance(size, int):
        for unit, name in _UNITS:
            if size and size % unit == 0:
                return f"{size // unit}{name}"
    return str(size)


def explain_command(
    model: Path, fields: Mapping[str, Any], choices: Mapping[str, Any], capacity: int, server: str | None
) -> str:
    """The command that says what would make the network fit, with the options of a plan that does not."""
    kept = {name: value for name, value in fields.items() if name not in _SCHEDULED}
    if isinstance(kept.get("batch"), str):  # a range: its largest size is what does not fit
        kept["batch"] = kept["batch"].rpartition("..")[2]
    options = {**kept, "capacity": capacity, **choices, "server": server}
    return command_line("explain", model, options=options)


def reading_commands(plan_file: str) -> Iterator[tuple[str, str]]:
    """The commands that read a plan of any kind: the purpose of each, and the command."""
    yield "to see what is live at the peak, and where", command_line("show", plan_file, options={})
    page = Path(plan_file).with_suffix(".html")
    yield "to see the same as a page", command_line("report", plan_file, options={}, output=str(page))
    header = Path(plan_file).with_suffix(".h")
    yield "to use it on a device", command_line("export", plan_file, options={}, output=str(header))


def print_commands(commands: Iterable[tuple[str, str]]) -> None:
    """Print commands one a line, each below the words for what it does, so that none is cut or wrapped."""
    print_line("")
    for words, command in commands:
        print_line(f"{words}:\n  {command}")
