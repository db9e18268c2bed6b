"""`batchscope sweep`: one workload at growing batch sizes or request rates."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from app.cli.shared.lanes import Asked, add_lanes, lane_options, played, status
from app.cli.shared.options import price_of, price_option, whole, workload_options
from engine import Sweep
from engine.compare import lane_name, sizes_up_to

WORKLOAD = "burst"
LARGEST = 64


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sweep = add_lanes(commands, "sweep", "find the batch size, or the request rate, at which more stops to pay")
    workload_options(sweep, WORKLOAD)
    mode = "e.g. static,chunked:budget=256 (default: continuous)"
    sweep.add_argument("--mode", metavar="LANE,LANE…", default="continuous", help=mode)
    settings = sweep.add_mutually_exclusive_group()
    sizes = f"batch sizes (default: 1, 2, 4 … as many as there are prompts, {LARGEST} at most)"
    settings.add_argument("--sizes", type=_numbers(whole), metavar="N,N…", help=sizes)
    settings.add_argument("--rates", type=_numbers(float), metavar="R,R…", help="requests a second, Poisson arrivals")
    sweep.add_argument("--repeats", type=whole, default=1, metavar="N", help="play every point N times")
    seed = "of the workload, the arrivals and the sampling"
    price_option(sweep)
    lane_options(sweep, kv="what the batch could fill, within the free memory", seed=seed)
    sweep.set_defaults(command=run_sweep)


def _numbers(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def numbers(text: str) -> list[Any]:
        try:
            return [read(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: give numbers with commas between them, e.g. 2,4,8") from None

    return numbers


def run_sweep(options: argparse.Namespace) -> int:
    asked = Asked.of(options, options.mode)
    workload, rates = asked.workload, options.rates or ()
    sizes = options.sizes or (() if rates else sizes_up_to(min(LARGEST, len(workload))))
    pool = {"kv_tokens": options.kv_tokens, "kv_memory": options.kv_memory}
    settings = {"sizes": sizes, "rates": rates, "repeats": options.repeats, "slo": asked.slo, "seed": asked.seed}
    settings["price"] = price_of(options)
    sweep = Sweep(workload, asked.lanes, **settings, **pool)
    at = (f" at {point.setting:g} req/s" if sweep.by_rate else "" for point in sweep.points)
    names = tuple(lane_name(point.lane) + rate for point, rate in zip(sweep.points, at))
    result, interrupted = played(sweep.play, names, options)
    if options.json:
        print(result.json())
    elif options.csv:
        print(result.csv(), end="")
    else:
        head = f"{workload.title or workload.name}: {len(workload)} prompts"
        print(head, result.markdown() if options.markdown else result.text(), sep="\n\n")
    failed = any(outcome.error for outcome in result.outcomes)
    return status(cancelled=result.cancelled, interrupted=interrupted, failed=failed)
