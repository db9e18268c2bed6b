"""`batchscope sweep`: one workload at growing batch sizes or request rates."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from app.cli.options import (
    check_model,
    comparison_options,
    sampled,
    slo_of,
    spec_of,
    whole,
    workload_of,
    workload_options,
)
from app.cli.progress import HeatBar, interrupt_as_event
from engine import Sweep, parse_lanes
from engine.compare import LANE_GRAMMAR, LocalHost, lane_name, sizes_up_to
from engine.trace import formulas

WORKLOAD = "burst"
LARGEST = 64


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sweep = commands.add_parser(
        "sweep", help="find the batch size, or the request rate, at which more stops to pay",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"a lane is {LANE_GRAMMAR}\n\nwhat is printed:\n{formulas()}",
    )  # fmt: skip
    workload_options(sweep, WORKLOAD)
    sweep.add_argument(
        "--mode",
        metavar="LANE,LANE…",
        default="continuous",
        help="e.g. static,chunked:budget=256 (default: continuous)",
    )
    settings = sweep.add_mutually_exclusive_group()
    settings.add_argument(
        "--sizes", type=_numbers(whole), metavar="N,N…",
        help=f"batch sizes (default: 1, 2, 4 … as many as there are prompts, {LARGEST} at most)",
    )  # fmt: skip
    settings.add_argument("--rates", type=_numbers(float), metavar="R,R…", help="requests a second, Poisson arrivals")
    sweep.add_argument("--repeats", type=whole, default=1, metavar="N", help="play every point N times")
    comparison_options(
        sweep,
        kv="what the batch could fill, within the free memory",
        seed="of the workload, the arrivals and the sampling",
    )
    sweep.set_defaults(command=run_sweep)


def _numbers(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def numbers(text: str) -> list[Any]:
        try:
            return [read(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: give numbers with commas between them, e.g. 2,4,8") from None

    return numbers


def run_sweep(options: argparse.Namespace) -> int:
    """Everything is checked before a model is loaded, so that a mistake costs no wait."""
    spec, slo, seed = spec_of(options), slo_of(options), options.seed or 0
    lanes = parse_lanes(options.mode, spec, seed)
    for each in dict.fromkeys([spec, *(lane.spec for lane in lanes)]):
        check_model(each)
    workload = sampled(workload_of(options, spec), options)
    sizes = options.sizes or (() if options.rates else sizes_up_to(min(LARGEST, len(workload))))
    sweep = Sweep(
        workload, lanes, sizes=sizes, rates=options.rates or (), repeats=options.repeats, slo=slo,
        kv_tokens=options.kv_tokens, kv_memory=options.kv_memory, seed=seed,
    )  # fmt: skip
    names = tuple(
        f"{lane_name(point.lane)}{f' at {point.setting:g} req/s' if sweep.by_rate else ''}" for point in sweep.points
    )
    quiet = options.json or options.csv or options.markdown
    bar = HeatBar(quiet, names, options.repeats)
    with interrupt_as_event() as interrupted, LocalHost(options.threads) as host, bar:
        result = sweep.play(host, bar.tell, interrupted)
    if options.json:
        print(result.json())
    elif options.csv:
        print(result.csv(), end="")
    else:
        head = f"{workload.title or workload.name}: {len(workload)} prompts"
        print(head, result.markdown() if options.markdown else result.text(), sep="\n\n")
    if result.cancelled:
        print("batchscope: stopped early; the table holds what was finished", file=sys.stderr)
    if interrupted.is_set():
        return 130
    return 1 if any(o.error for o in result.outcomes) else 0
