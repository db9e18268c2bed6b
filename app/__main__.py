"""The command line: batchscope [window], run, compare, sweep, replay, models, fit, quantize, quality, bench, doctor."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from app.cli import compare, fit, models, quality, quantize, replay, run, sweep
from app.cli.options import config_of, engine_options, model_options, spec_of, whole
from engine import QUANTIZATIONS, InvalidInput


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0, 1 for a failure, 2 for bad input, 130 for Ctrl+C."""
    options = parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except InvalidInput as error:
        print(f"batchscope: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="batchscope",
        description="See how LLM inference works: batching, paging and streaming, live. "
        "Without a command the window opens; without a display the demo plays offscreen.",
    )
    model_options(top)
    engine_options(top)
    top.add_argument("--in-process", action="store_true", help="keep the engine beside the window, for debugging")
    top.set_defaults(command=open_window)
    top.add_argument(
        "--version", dest="command", action="store_const", const=print_version, help="print the version and exit"
    )
    commands = top.add_subparsers(title="commands", metavar="")

    run.add(commands)
    compare.add(commands)
    sweep.add(commands)
    replay.add(commands)
    models.add(commands)
    quantize.add(commands)
    quality.add(commands)
    fit.add(commands)

    bench = commands.add_parser("bench", help="measure this engine, its peers and the bound; --ui: the window's cost")
    bench.add_argument("--ui", action="store_true", help="measure the window: frames, first paint, what it costs")
    bench.add_argument("--panels", choices=("usual", "all"), default="usual", help="with --ui: which panels are open")
    bench.add_argument("--prompts", type=whole, nargs="+", default=[24, 64], metavar="N", help="batch sizes")
    bench.add_argument("--rounds", type=whole, default=3, help="how often each side is measured")
    bench.add_argument("--threads", type=whole, help="torch threads (default: the best for each)")
    bench.add_argument(
        "--quantization", nargs="+", choices=("all", *QUANTIZATIONS), metavar="NAME",
        help=f"measure a model of 100 M parameters in these instead: all, or of {', '.join(QUANTIZATIONS)}",
    )  # fmt: skip
    bench.add_argument("--json", action="store_true", help="print all numbers as JSON")
    bench.set_defaults(command=run_bench)

    doctor = commands.add_parser("doctor", help="what machine, GPU, libraries and models are here")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.set_defaults(command=run_doctor)
    return top


def open_window(options: argparse.Namespace) -> int:
    """The window; where there is no display, the demo in an offscreen one."""
    spec, config = spec_of(options), config_of(options)
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        from app.window.offscreen import play_demo

        return play_demo(spec, config)
    from app.window.application import open_window as show

    return show(spec, config, in_process=options.in_process)


def print_version(options: argparse.Namespace) -> int:
    from importlib.metadata import version

    print("batchscope", version("batchscope"))
    return 0


def run_bench(options: argparse.Namespace) -> int:
    if options.ui:
        from app.bench.run import main as measure_window

        return measure_window(json_output=options.json, rounds=options.rounds, panels=options.panels)
    if options.quantization:
        from engine.bench.cpu import quantized

        chosen = QUANTIZATIONS if "all" in options.quantization else options.quantization
        found = quantized.run(chosen, rounds=options.rounds, threads=options.threads)
        print(found.json() if options.json else found.text())
        return 0
    from engine.bench.cpu import run as cpu

    report = cpu.run(prompts=tuple(options.prompts), rounds=options.rounds, threads=options.threads)
    print(report.json() if options.json else report.text())
    return 0


def run_doctor(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from engine import examine, render

    findings = examine()
    print(json.dumps([asdict(f) for f in findings], indent=1) if options.json else render(findings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
