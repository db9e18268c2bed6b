"""`batchscope compare`: one workload raced through several lanes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from app.cli.shared.lanes import Asked, add_lanes, lane_options, played, status
from app.cli.shared.options import price_of, price_option, whole, workload_options
from app.cli.shared.progress import terminal_width
from engine import InvalidInput, Race
from engine.compare import (
    RACE_ORDERS,
    RACE_SUFFIX,
    RaceResult,
    agreements,
    compare_race,
    lane_names,
    lane_text,
    save_race,
)
from engine.trace import Slo

WORKLOAD = "mixed-lengths"
LANES = "static:8,continuous"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compare = add_lanes(commands, "compare", "race several ways of batching on the same prompts")
    lanes = f"e.g. recompute,static:8,continuous,chunked (default: the workload's, else {LANES})"
    orders = "; ".join(f"{name!r}: {what}" for name, what in RACE_ORDERS.items()).replace("%", "%%")
    workload_options(compare, WORKLOAD)
    compare.add_argument("lane", nargs="*", metavar="LANE", help="what races; the same as --lanes")
    compare.add_argument("--lanes", metavar="LANE,LANE…", help=lanes)
    compare.add_argument("--repeats", type=whole, default=1, metavar="N", help="play every lane N times")
    compare.add_argument("--order", default="as listed", help=orders)
    compare.add_argument(
        "--out", type=Path, metavar="FILE", help=f"keep the race in FILE ({RACE_SUFFIX}), to replay it"
    )
    seed = "of the workload, the order and the sampling"
    lane_options(compare, kv="what the workload suggests, else 8192", seed=seed)
    price_option(compare)
    compare.set_defaults(command=run_compare)


def run_compare(options: argparse.Namespace) -> int:
    if options.out is not None and options.out.exists():
        raise InvalidInput(f"{options.out} exists; choose another name, or delete it first")
    if options.lane and options.lanes:
        raise InvalidInput(f"--lanes {options.lanes}: lanes are named already; leave it out")
    price = price_of(options)
    asked = Asked.of(options, ",".join(options.lane) or options.lanes, LANES)
    pool = {"kv_tokens": options.kv_tokens, "kv_memory": options.kv_memory}
    race = Race(asked.workload, asked.lanes, repeats=options.repeats, order=options.order, seed=asked.seed, **pool)
    result, interrupted = played(race.play, lane_names(race.lanes), options)
    if options.out is not None:
        save_race(result, options.out)
    _print(result, options, asked.slo, price)
    failed = any(result.error(i) for i in range(len(asked.lanes)))
    return status(cancelled=result.cancelled, interrupted=interrupted, failed=failed)


def _print(result: RaceResult, options: argparse.Namespace, slo: Slo, price: float) -> None:
    comparison = compare_race(result, slo, price)
    played = [next(iter(result.traces(i)), None) for i in range(len(result.lanes))]
    agreed = agreements(played)
    if options.csv:
        print(comparison.csv(), end="")
        return
    if options.json:
        data = comparison.to_json()
        for lane, given, found in zip(data["lanes"], result.lanes, agreed):
            lane |= {"lane": lane_text(given), "agreement": found.to_json() if found else None}
        about: dict[str, Any] = {"workload": result.workload.name, "requests": len(result.workload)}
        about |= {"repeats": options.repeats, "order": options.order, "kv_memory": result.kv_memory}
        about |= {"cancelled": result.cancelled, "slo": slo.limits}
        print(json.dumps(about | data, indent=1))
        return
    head = _head(result, options)
    agreement = [f"{name}: {found.text()}" for name, found in zip(result.names, agreed) if found]
    if agreement:
        first = next(name for name, trace in zip(result.names, played) if trace and not trace.header.outside)
        agreement.insert(0, f"tokens compared with {first}")
    if any(comparison.disturbances):
        again = "repeat the race when they are done" + ("" if options.repeats > 1 else "; --repeats 3 shows the spread")
        agreement = [again, "", *agreement]
    if options.markdown:
        print("\n\n".join([*head, comparison.markdown(), *agreement]))
        return
    print("\n".join([*head, "", comparison.text(terminal_width()), *(["", *agreement] if agreement else [])]))


def _head(result: RaceResult, options: argparse.Namespace) -> list[str]:
    """What was raced, and on what."""
    workload = result.workload
    often = f", {options.repeats} times, {options.order}" if options.repeats > 1 else ""
    lines = [f"{workload.title or workload.name}: {len(workload)} prompts{often}"]
    known = [run.trace for run in result.lane_runs if run.trace is not None and not run.trace.header.outside]
    if known and result.kv_memory is not None:
        trace = known[0]
        model, machine = trace.header.model, trace.header.machine
        lines.append(f"{model.name} · {model.dtype} · {model.device} · {machine.cpu}")
        headers = [each.header for each in known]
        rooms = sorted({header.blocks * header.config.block_size for header in headers})
        tokens = " to ".join(f"{room:,}" for room in dict.fromkeys((rooms[0], rooms[-1])))
        lines.append(f"every lane has {result.kv_memory / 2**20:,.1f} MiB of KV memory ({tokens} tokens)")
    return lines
