"""The command line: batchscope [window], run, compare, sweep, replay, models, fit, quantize, quality, bench, doctor."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from app.cli import bench, compare, doctor, fit, models, quality, quantize, replay, run, sweep
from app.cli.options import config_of, engine_options, has_display, model_options, spec_of
from app.cli.progress import Stopped
from engine import InvalidInput
from engine.jobs import warm_up


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0, 1 for a failure, 2 for bad input, 130 for Ctrl+C."""
    options = parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except InvalidInput as error:
        print(f"batchscope: {error}", file=sys.stderr)
        return 2
    except Stopped as why:
        print(f"batchscope: {why}", file=sys.stderr)
        return why.status
    except ImportError as error:
        if "cannot open shared object file" not in str(error):
            raise
        print(f"batchscope: {doctor.qt_failure(str(error)).words}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as all bad input is told."""

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"invalid choice: (\S+) \(choose from (.*)\)$", message)
        if unknown and message.startswith("argument : "):
            message = f"there is no command {unknown[1]}; commands are {unknown[2].replace(chr(39), '')}"
        self.exit(2, f"batchscope: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="batchscope",
        description="See how LLM inference works: batching, paging and streaming, live. "
        "Without a command the window opens; without a display the demo plays offscreen.",
    )
    model_options(top)
    engine_options(top)
    top.add_argument("--in-process", action="store_true", help="keep the engine beside the window, for debugging")
    top.set_defaults(command=open_window)
    said = "print the version and exit"
    top.add_argument("--version", dest="command", action="store_const", const=print_version, help=said)
    commands = top.add_subparsers(title="commands", metavar="")

    for command in (run, compare, sweep, replay, models, quantize, quality, fit, bench, doctor):
        command.add(commands)
    return top


def open_window(options: argparse.Namespace) -> int:
    """The window; where there is no display, the demo in an offscreen one."""
    spec, config = spec_of(options), config_of(options)
    if not options.in_process:
        warm_up()
    if not has_display():
        from app.window.offscreen import play_demo

        return play_demo(spec, config)
    if lost := doctor.lost_libraries():  # Qt would end the process without naming the packages
        print(f"batchscope: {doctor.qt_failure(lost).words}", file=sys.stderr)
    from app.window.application import open_window as show

    return show(spec, config, in_process=options.in_process)


def print_version(options: argparse.Namespace) -> int:
    from importlib.metadata import version

    print("batchscope", version("batchscope"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
