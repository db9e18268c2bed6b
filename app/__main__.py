"""The command line: batchscope [window], and the commands of `COMMANDS`.

What is imported on top is little, so that Ctrl+C finds `main` from the start.
"""

import argparse
import contextlib
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from app.interrupts import uninterrupted

if TYPE_CHECKING:
    from engine.remote import ServerAddress


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0, 1 for a failure, 2 for bad input, 130 for Ctrl+C. Whatever ends it
    is told in one line."""
    _open_standard()
    try:
        status = _run(arguments)
        print(end="", flush=True)
    except KeyboardInterrupt:
        _hear_no_more(arguments)
        status = _ended("stopped", 130)
        if arguments is None:
            os._exit(status)  # threads that compute cannot be waited for, nor live on without their interpreter
    except BrokenPipeError:  # the reader of a pipe, `head` say, has seen enough
        status = _ended("", 0)
    except OSError as error:  # a full disk, a folder that may not be written to
        what = f"{error.filename}: " if error.filename else ""
        status = _ended(f"{what}{error.strerror or error}", 1)
    _hear_no_more(arguments)
    return status


def _open_standard() -> None:
    """Where one of the three standard files was closed, a file opened later would take its number, and what a library
    prints would be written into a run."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        with contextlib.suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # the lowest that is free is this one
        setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _hear_no_more(arguments: Sequence[str] | None) -> None:
    """Where this process ends, a further Ctrl+C has nothing to stop."""
    if arguments is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _ended(why: str, status: int) -> int:
    """Says why; what can no longer be printed is let go."""
    with contextlib.suppress(OSError):
        if why:
            print(f"batchscope: {why}", file=sys.stderr, flush=True)
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _run(arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # where a character cannot be printed, a ? stands
            stream.reconfigure(errors="replace")
    with uninterrupted():
        from app.cli.shared.progress import Stopped
        from engine import InvalidInput

        known = parser()
    try:
        options = known.parse_args(with_command(sys.argv[1:] if arguments is None else arguments))
        return int(options.command(options))
    except InvalidInput as error:
        return _ended(str(error), 2)
    except Stopped as why:
        return _ended(str(why), why.status)
    except ImportError as error:
        if words := _without_engine(error):
            return _ended(words, 2)
        if "cannot open shared object file" not in str(error):
            raise
        from app.cli.doctor.qt import qt_failure

        return _ended(qt_failure(str(error)).words, 2)


def _without_engine(error: ImportError) -> str:
    """Why this needs what the viewer has not, or ""."""
    from engine.jobs import engine_missing

    own = (error.name or "").partition(".")[0] in ("app", "engine", "resources")
    return engine_missing() if isinstance(error, ModuleNotFoundError) and not own else ""


def with_command(arguments: Sequence[str]) -> list[str]:
    """A file of a run or race alone is replayed: so a desktop opens it."""
    opened = len(arguments) == 1 and arguments[0].endswith((".bsrun", ".bsrace"))
    return ["replay", *arguments] if opened else list(arguments)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as all bad input is told, with what was likely meant."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        own = self.prog == PROGRAM and given[:1] and given[0].startswith("-")
        for word in takewhile(lambda word: word not in COMMANDS, given if own else ()):
            name = word.partition("=")[0]
            if name.startswith("--") and name not in self._option_string_actions:
                self._refuse(name)  # here, since its value would be taken for a command
        known, unknown = super().parse_known_args(given, namespace)
        if unknown:
            self._refuse(unknown[0])
        if own and known.called is not None:  # which would take its own defaults for what was given here
            self.error(f"{given[0]} stands before the command {known.called!r}: options go behind it")
        return known, unknown

    def _refuse(self, word: str) -> NoReturn:
        who, option = self.prog.removeprefix(f"{PROGRAM} "), word.partition("=")[0]
        if option.startswith("-"):
            self.error(f"{who} has no option {option}{meant(option, self._option_string_actions)}")
        self.error(f"{who} does not take {word!r}; what it takes is given by its options")

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"invalid choice: '?(.*?)'? \(choose from (.*)\)$", message)
        if unknown and message.startswith("argument : "):
            guess = meant(unknown[1], COMMANDS) or f"; commands are {', '.join(COMMANDS)}"
            message = f"there is no command {unknown[1]!r}{guess}"
        message += " See" if message.endswith("?") else "; see"
        self.exit(2, f"batchscope: {message} {self.prog} --help\n")

    def format_help(self) -> str:
        """A usage of two dozen options tells nothing that the list below it does not."""
        if self.usage is None and len(self._option_string_actions) > 12:
            head = argparse.HelpFormatter(f"{self.prog} [options]", width=1000)
            head.add_usage(None, [a for a in self._actions if a.required or not a.option_strings], [], prefix="")
            self.usage = head.format_help().strip().replace("%", "%%")
        return super().format_help().replace("commands:\n  \n", "commands:\n")


def meant(word: str, names: Iterable[str]) -> str:
    """What to say of the names that are near to it; "" where none is."""
    by_name = {name.strip("-"): name for name in names}
    near = get_close_matches(word.strip("-"), by_name, n=2, cutoff=0.65)
    return f"; did you mean {' or '.join(by_name[name] for name in near)}?" if near else ""


PROGRAM = "batchscope"
COMMANDS = (
    "run serve key fleet requests compare sweep compress replay tour export models quantize quality fit bench doctor"
).split()
"""Each a module of `app.cli`, in the order of --help."""


def parser() -> argparse.ArgumentParser:
    from app.cli.shared.options import engine_options, model_options

    top = Parser(
        allow_abbrev=False,  # it sorts a command's options too, and would find --n to be short for several
        prog=PROGRAM,
        usage=f"{PROGRAM} [options]\n       {PROGRAM} COMMAND [options]      (COMMAND --help tells its options)",
        description="See how LLM inference works: batching, paging and streaming, live. "
        "Without a command the window opens; without a display the demo plays offscreen.",
    )
    said = "print the version and exit"
    for name, does in (("install", "put Batchscope into the desktop's menu"), ("uninstall", "take it out again")):
        act = desktop_entry(name)
        top.add_argument(f"--{name}-desktop", dest="command", action="store_const", const=act, help=does)
    top.add_argument("--version", dest="command", action="store_const", const=print_version, help=said)
    said = "print how to cite Batchscope, as BibTeX, and exit"
    top.add_argument("--cite", dest="command", action="store_const", const=print_citation, help=said)

    commands = top.add_subparsers(title="commands", metavar="", prog=PROGRAM, dest="called")
    for name in COMMANDS:
        import_module(f"app.cli.{name}").add(commands)

    window = top.add_argument_group("the window")
    joins = "show the engine of a server (`batchscope serve`) in place of one here, such as http://127.0.0.1:8000"
    window.add_argument("--connect", metavar="URL", help=joins)
    key = "a file with the key that the server asks for (default: $BATCHSCOPE_KEY)"
    window.add_argument("--key-file", type=Path, metavar="FILE", help=key)
    window.add_argument("--in-process", action="store_true", help="keep the engine beside the window, for debugging")
    model_options(top)
    engine_options(top)
    top.set_defaults(command=open_window, model=None)  # behind the options, whose defaults it takes the place of
    return top


def open_window(options: argparse.Namespace) -> int:
    """The window; where there is no display, the demo in an offscreen one."""
    from app.cli.shared.options import config_of, has_display, spec_of
    from engine import InvalidInput
    from engine.jobs import engine_missing, warm_up

    server = server_of(options)
    given, options.model = options.model is not None, options.model or "demo"
    spec, config = spec_of(options), config_of(options)
    if not options.in_process and server is None:
        warm_up()
    if server is not None and not has_display():
        raise InvalidInput("connect: there is no display to open a window on")
    if not has_display():
        if words := engine_missing():
            raise InvalidInput(words)
        with uninterrupted():
            from app.window.offscreen.demo import play_demo
        return play_demo(spec, config)
    with uninterrupted():
        from app.cli.doctor.qt import lost_libraries, qt_failure
        from app.window.start.application import open_window as show
        from app.window.start.greeting import first_model
    if lost := lost_libraries():  # Qt would end the process without naming the packages
        print(f"batchscope: {qt_failure(lost).words}", file=sys.stderr)
    if server is not None:
        return show(None, config, server=server)
    return show(spec if given else first_model(spec), config, in_process=options.in_process)


def server_of(options: argparse.Namespace) -> "ServerAddress | None":
    """The server to join; None where none is named. Raises InvalidInput."""
    from engine import InvalidInput
    from engine.remote import ServerAddress, key_from

    if options.connect is None:
        if options.key_file is not None:
            raise InvalidInput(f"key-file={options.key_file}: is for a server: name that with --connect URL")
        return None
    if options.model is not None:
        raise InvalidInput(f"model={options.model}: a server has its own; leave it out, or leave out --connect")
    return ServerAddress(options.connect, key_from(options.key_file))


def desktop_entry(verb: str) -> Callable[[argparse.Namespace], int]:
    """Installs or uninstalls entry, icons and file types of this person's desktop."""

    def change(options: argparse.Namespace) -> int:
        entry = import_module("app.desktop.entry")
        for path in getattr(entry, verb)():
            print(f"{verb}ed  {path}")
        return 0

    return change


def print_version(options: argparse.Namespace) -> int:
    from importlib.metadata import version

    print("batchscope", version("batchscope"))
    return 0


def print_citation(options: argparse.Namespace) -> int:
    from engine.export import software_citation

    print(software_citation())
    return 0


if __name__ == "__main__":
    sys.exit(main())
