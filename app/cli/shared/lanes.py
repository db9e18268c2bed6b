"""What `compare` and `sweep` have in common: their options, what they check first, and playing lanes."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.cli.shared.options import (
    check_model,
    kv_memory_option,
    model_options,
    output_options,
    quiet,
    sampled,
    sampling_options,
    seed_option,
    slo_of,
    slo_options,
    spec_of,
    threads_option,
    whole,
    workload_of,
)
from app.cli.shared.progress import LanesBar
from app.interrupts import heard, interrupt_as_event
from engine import Lane, ModelSpec, Workload, parse_lanes
from engine.compare import LANE_GRAMMAR, EngineHost, LocalHost, RaceEvent, RaceResult, SweepEvent, SweepResult
from engine.core import import_engine
from engine.trace import Slo, formulas

Result = TypeVar("Result", RaceResult, SweepResult)
Play = Callable[[EngineHost, Callable[[RaceEvent | SweepEvent], None], threading.Event], Result]
Commands = argparse._SubParsersAction  # of ArgumentParser


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be played."""

    spec: ModelSpec
    lanes: Sequence[Lane]
    workload: Workload
    slo: Slo
    seed: int

    @classmethod
    def of(cls, options: argparse.Namespace, lanes: str | None, otherwise: str = "") -> Asked:
        """Checks everything before a model is loaded, so that a mistake costs no wait; without `lanes`, those that the
        workload suggests, or `otherwise`. Raises InvalidInput."""
        spec, slo, seed = spec_of(options), slo_of(options), options.seed or 0
        given = parse_lanes(lanes, spec, seed) if lanes else []
        own = [lane.spec for lane in given if lane.server is None]
        for each in dict.fromkeys([spec, *own] if own or not given else []):
            check_model(each)
        workload = sampled(workload_of(options, spec), options)
        suggested = ",".join(workload.suggested.lanes) or otherwise
        return cls(spec, given or parse_lanes(suggested, spec, seed), workload, slo, seed)


def add_lanes(commands: Commands[argparse.ArgumentParser], name: str, does: str) -> argparse.ArgumentParser:
    """A command that plays lanes."""
    form, epilog = argparse.RawDescriptionHelpFormatter, f"a lane is {LANE_GRAMMAR}\n\nwhat is printed:\n{formulas()}"
    return commands.add_parser(name, help=does, formatter_class=form, epilog=epilog)


def lane_options(to: argparse.ArgumentParser, *, kv: str, seed: str) -> None:
    """`kv` says the default size, `seed` what the seed is of."""
    sizes = to.add_mutually_exclusive_group()
    sizes.add_argument("--kv-tokens", type=whole, metavar="N", help=f"tokens in every KV pool (default: {kv})")
    kv_memory_option(sizes, "see --kv-tokens")
    slo_options(to)
    output_options(to)
    seed_option(to, seed)
    threads_option(to)
    model_options(to, sends=True)
    sampling_options(to)


def played(play: Play[Result], names: tuple[str, ...], options: argparse.Namespace) -> tuple[Result, bool]:
    """The result of a race or sweep, and whether Ctrl+C cut it short; `names` are those of the bar."""
    with heard():
        import_engine()  # here, since below Ctrl+C would wait for a whole load

    bar = LanesBar(quiet(options), names, options.repeats)
    with interrupt_as_event() as interrupted, LocalHost(options.threads) as host, bar:
        return play(host, bar.tell, interrupted), interrupted.is_set()


def status(*, cancelled: bool, interrupted: bool, failed: bool) -> int:
    """The exit status, once the result is printed."""
    if cancelled:
        print("batchscope: stopped early; the table holds what was finished", file=sys.stderr)
    return 130 if interrupted else int(failed)
