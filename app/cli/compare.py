"""`batchscope compare`: one workload raced through several lanes."""

from __future__ import annotations

import argparse
import json
import sys

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
from app.cli.progress import HeatBar, interrupt_as_event, terminal_width
from engine import Race, parse_lanes
from engine.compare import (
    LANE_GRAMMAR,
    RACE_ORDERS,
    LocalHost,
    RaceResult,
    agreements,
    compare_race,
    lane_names,
    lane_text,
)
from engine.trace import Slo, formulas

WORKLOAD = "mixed-lengths"
LANES = ("static:8", "continuous")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compare = commands.add_parser(
        "compare", help="race several ways of batching on the same prompts",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"a lane is {LANE_GRAMMAR}\n\nwhat is printed:\n{formulas()}",
    )  # fmt: skip
    workload_options(compare, WORKLOAD)
    compare.add_argument(
        "--lanes", metavar="LANE,LANE…",
        help=f"e.g. recompute,static:8,continuous,chunked (default: the workload's, else {','.join(LANES)})",
    )  # fmt: skip
    compare.add_argument("--repeats", type=whole, default=1, metavar="N", help="play every lane N times")
    compare.add_argument(
        "--order", default="as listed",
        help="; ".join(f"{name!r}: {what}" for name, what in RACE_ORDERS.items()).replace("%", "%%"),
    )  # fmt: skip
    comparison_options(
        compare, kv="what the workload suggests, else 8192", seed="of the workload, the order and the sampling"
    )
    compare.set_defaults(command=run_compare)


def run_compare(options: argparse.Namespace) -> int:
    """Everything is checked before a model is loaded, so that a mistake costs no wait."""
    spec, slo, seed = spec_of(options), slo_of(options), options.seed or 0
    lanes = parse_lanes(options.lanes, spec, seed) if options.lanes else None
    for each in dict.fromkeys([spec, *(lane.spec for lane in lanes or ())]):
        check_model(each)
    workload = sampled(workload_of(options, spec), options)
    lanes = lanes or parse_lanes(",".join(workload.suggested.lanes or LANES), spec, seed)
    race = Race(
        workload, lanes, repeats=options.repeats, order=options.order, kv_tokens=options.kv_tokens,
        kv_memory=options.kv_memory, seed=seed,
    )  # fmt: skip
    quiet = options.json or options.csv or options.markdown
    bar = HeatBar(quiet, lane_names(race.lanes), options.repeats)
    with interrupt_as_event() as interrupted, LocalHost(options.threads) as host, bar:
        result = race.play(host, bar.tell, interrupted)
    _print(result, options, slo)
    if interrupted.is_set():
        return 130
    return 1 if any(result.error(i) for i in range(len(lanes))) else 0


def _print(result: RaceResult, options: argparse.Namespace, slo: Slo) -> None:
    comparison = compare_race(result, slo)
    played = [next(iter(result.traces(i)), None) for i in range(len(result.lanes))]
    agreed = agreements(played)
    if options.csv:
        print(comparison.csv(), end="")
        return
    if options.json:
        data = comparison.to_json()
        for lane, given, found in zip(data["lanes"], result.lanes, agreed):
            lane |= {"lane": lane_text(given), "agreement": found.to_json() if found else None}
        about = {
            "workload": result.workload.name, "requests": len(result.workload), "repeats": options.repeats,
            "order": options.order, "kv_memory": result.kv_memory, "cancelled": result.cancelled, "slo": slo.limits,
        }  # fmt: skip
        print(json.dumps(about | data, ensure_ascii=False, indent=1))
        return
    head = _head(result, options)
    agreement = [f"{name}: {found.text()}" for name, found in zip(result.names, agreed) if found]
    if agreement:
        first = next(name for name, trace in zip(result.names, played) if trace is not None)
        agreement.insert(0, f"tokens compared with {first}")
    if options.markdown:
        print("\n\n".join([*head, comparison.markdown(), *agreement]))
        return
    print("\n".join([*head, "", comparison.text(terminal_width()), *(["", *agreement] if agreement else [])]))
    if result.cancelled:
        print("batchscope: stopped early; the table holds what was finished", file=sys.stderr)


def _head(result: RaceResult, options: argparse.Namespace) -> list[str]:
    """What was raced, and on what."""
    workload = result.workload
    title = workload.title or workload.name
    lines = [
        f"{title}: {len(workload)} prompts" + (f", {options.repeats} times, {options.order}" * (options.repeats > 1))
    ]
    trace = next((h.trace for h in result.lane_runs if h.trace is not None), None)
    if trace is not None and result.kv_memory is not None:
        model, machine = trace.header.model, trace.header.machine
        lines.append(f"{model.name} · {model.dtype} · {model.device} · {machine.cpu}")
        tokens = result.kv_memory // model.kv_token_bytes
        lines.append(f"every lane has {result.kv_memory / 2**20:,.1f} MiB of KV memory ({tokens:,} tokens)")
    return lines
