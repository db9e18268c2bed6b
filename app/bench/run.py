"""What the window costs: milliseconds a frame, tokens a second lost, time to the first paint."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app import storage
from app.bench.first_paint import first_paint
from app.bench.headless import Headless, bench_workload
from engine import EngineConfig, EngineProcess, ModelSpec, SamplingParams, Submission, measure
from engine.trace import TraceWriter
from engine.workloads import demo_workload

if TYPE_CHECKING:
    from app.bench.frames import FrameMeter
    from app.window.main_window import MainWindow

SIZE = (1600, 1000)
FRAME_MS = 33.0
SCRUB_MS = 100.0
BUSY = 0.5  # load average before the bench, from which on the table warns
Report = Callable[[str], None]


def ui_bench(
    source: str = "demo",
    *,
    seconds: float = 10.0,
    rounds: int = 3,
    streams: int = 256,
    tokens_per_second: float = 30_000,
    workload: tuple[int, int, int] = (64, 64, 96),
    panels: str = "usual",
    report: Report = lambda line: print(line, file=sys.stderr, flush=True),
) -> dict[str, Any]:
    """Measures the real window offscreen and returns the figures; `render` makes them a table.

    `workload` is slots, requests and tokens of a throughput round, of which there are four pairs a round. `panels`:
    the "usual" ones are open, or "all", and then over the largest pool that is drawn. `report` is told what goes on.
    """
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    result: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "cpu": platform.machine(), "load": os.getloadavg()[0]},
        "settings": {"seconds": seconds, "rounds": rounds, "streams": streams, "tokens_per_second": tokens_per_second,
                     "workload": list(workload), "window": list(SIZE), "panels": panels},
    }  # fmt: skip
    report("first paint: starting the window six times")
    result["first_paint"] = first_paint()
    import qasync

    from app.bench.timeline import ROW_STEPS, timeline_frames
    from app.window.application import make_application

    with tempfile.TemporaryDirectory() as folder:
        kept, os.environ["BATCHSCOPE_DATA"] = os.environ.get("BATCHSCOPE_DATA"), folder
        try:
            application = make_application()
            report(f"timeline: pan and zoom over {ROW_STEPS:,} row-steps")
            result["timeline"] = timeline_frames()
            result |= qasync.run(
                _in_window(source, seconds, rounds, streams, tokens_per_second, workload, panels, report)
            )
            del application
        finally:
            if kept is None:
                del os.environ["BATCHSCOPE_DATA"]
            else:
                os.environ["BATCHSCOPE_DATA"] = kept
    result["torch_in_window"] = "torch" in sys.modules
    return result


async def _in_window(
    source: str,
    seconds: float,
    rounds: int,
    streams: int,
    rate: float,
    workload: tuple[int, int, int],
    panels: str,
    report: Report,
) -> dict[str, Any]:
    from app.bench.frames import FrameMeter
    from app.bench.race import race_frames
    from app.playback.bridge import Bridge
    from app.session.session import Session
    from app.window.application import settle
    from app.window.main_window import MainWindow

    session, bridge = Session(), Bridge()
    window = MainWindow(session, bridge)
    window.keeps_layout = False
    window.resize(*SIZE)
    window.show()
    window.page.complete()
    everything = panels == "all"
    if everything:
        window.page.layout_of.everything()
    closed = asyncio.get_running_loop().create_future()
    window.closed.connect(lambda: closed.set_result(None))
    meter = FrameMeter(bridge)
    result: dict[str, Any] = {}
    threads = max(1, (os.cpu_count() or 2) - 1)
    try:
        await asyncio.sleep(0.5)
        settle()
        report(f"replay: {streams} streams at {rate:,.0f} tok/s")
        result["replay"] = await _replay(window, meter, streams, rate, seconds, everything)
        report(f"live: {streams} streams of {source}")
        result["live"] = await _live(window, meter, source, streams, seconds, threads, everything)
        if everything:
            from app.bench.panels import scrub

            report("scrubbing: all panels at random moments")
            result["scrub"] = await scrub(window, streams, rate, seconds)
        report("race: four lanes on the Compare page")
        result["race"] = await race_frames(window, meter, source)
        result["throughput"] = {}
        for name, limit in (("limited", threads), ("free", None)):
            report(f"throughput: {4 * rounds} pairs with the window and without it, {limit or 'all'} threads")
            result["throughput"][name] = await _throughput(window, source, 4 * rounds, workload, limit)
    finally:
        window.close()
        await closed
        window.deleteLater()
    return result


async def _until(condition: Callable[[], bool], limit: float) -> bool:
    """Whether the condition came true within so many seconds."""
    end = time.perf_counter() + limit
    while not condition():
        if time.perf_counter() > end:
            return False
        await asyncio.sleep(0.02)
    return True


async def _replay(
    window: MainWindow, meter: FrameMeter, streams: int, rate: float, seconds: float, everything: bool
) -> dict[str, Any]:  # fmt: skip
    from app.bench.frames import Replayer

    if everything:
        from app.bench.panels import made_up

        records = made_up(streams, rate, seconds + 1.5)
    else:
        from app.bench.synthetic import synthetic_trace

        records = synthetic_trace(streams=streams, tokens_per_second=rate, seconds=seconds + 1.5)
    player = Replayer(records)
    window.bridge.show(player.trace)
    player.start()
    try:
        await asyncio.sleep(1.0)
        meter.start()
        await asyncio.sleep(seconds)
        frames = meter.stop()
        behind = window.bridge.behind
    finally:
        player.stop()
    return {**frames, "records_behind": behind}


async def _live(
    window: MainWindow, meter: FrameMeter, source: str, streams: int, seconds: float, threads: int, everything: bool
) -> dict[str, Any]:  # fmt: skip
    loop, bridge = asyncio.get_running_loop(), window.bridge
    config = EngineConfig(max_running=streams, token_budget=max(2048, streams))
    if everything:
        from app.bench.panels import large_pool

        config = large_pool(config, source)
    engine = await loop.run_in_executor(None, lambda: EngineProcess(ModelSpec(source), config, threads=threads))
    writer = TraceWriter(engine.trace, storage.new_run_file(source))
    try:
        bridge.show(engine.trace)
        room = engine.card.context - 64
        params = SamplingParams(max_tokens=min(1024, room), temperature=0.8, ignore_eos=True, seed=1)
        prompts = demo_workload(streams, params).arrivals
        await loop.run_in_executor(None, lambda: engine.submit_many([Submission(a.prompt, a.params) for a in prompts]))
        decoding = await _until(lambda: sum(len(v.tokens) > 0 for v in bridge.requests.values()) >= streams, 120)
        tokens = sum(len(v.tokens) for v in bridge.requests.values())
        meter.start()
        begun = time.perf_counter()
        await _until(lambda: len(bridge.open) < streams, seconds)
        spent = time.perf_counter() - begun
        frames = meter.stop()
        given = sum(len(v.tokens) for v in bridge.requests.values()) - tokens
        engine.cancel()
        await _until(lambda: not bridge.open, 10)
    finally:
        await loop.run_in_executor(None, engine.close)
        await loop.run_in_executor(None, writer.close)
    return {**frames, "all_decoding": decoding, "tokens_per_second": given / spent}


async def _throughput(
    window: MainWindow, source: str, rounds: int, workload: tuple[int, int, int], threads: int | None
) -> dict[str, Any]:
    loop, bridge = asyncio.get_running_loop(), window.bridge
    running, requests, tokens = workload
    config = EngineConfig(max_running=running)
    engine = await loop.run_in_executor(None, lambda: EngineProcess(ModelSpec(source), config, threads=threads))
    headless: Headless | None = None
    beside, alone = [], []

    async def with_window() -> float:
        run = await loop.run_in_executor(None, lambda: engine.run(bench_workload(requests, tokens)))
        writer = TraceWriter(run.trace, storage.new_run_file(source))
        bridge.show(run.trace)
        await _until(lambda: run.done, 600)
        await loop.run_in_executor(None, writer.close)
        return measure(run.result(timeout=0)).output_throughput

    try:
        headless = Headless(source, running, requests, tokens, threads)
        await with_window()  # a warm-up of each, not counted
        headless.round()
        for i in range(rounds):
            for side in ("window", "alone") if i % 2 == 0 else ("alone", "window"):
                if side == "window":
                    beside.append(await with_window())
                else:
                    alone.append(headless.round())
    finally:
        await loop.run_in_executor(None, engine.close)
        if headless is not None:
            headless.close()
    with_it, without = statistics.median(beside), statistics.median(alone)
    # A shared machine's speed drifts by tens of percent in a minute, and hardly within a pair of seconds.
    pairs = [b / a for b, a in zip(beside, alone, strict=True)]
    return {
        "threads": headless.threads,
        "window": beside,
        "headless": alone,
        "window_median": with_it,
        "headless_median": without,
        "ratio": statistics.median(pairs),
        "ratio_quartiles": statistics.quantiles(pairs, n=4)[::2] if len(pairs) > 1 else [pairs[0]] * 2,
    }


def render(result: dict[str, Any]) -> str:
    """The figures as the table that `batchscope bench --ui` prints."""

    def line(name: str, value: str, goal: str = "", met: bool | None = None) -> str:
        mark = "" if met is None else "   yes" if met else "   NO"
        return f"{name:<56}{value:>24}   {goal:<12}{mark}".rstrip()

    machine, settings = result["machine"], result["settings"]
    lines = [
        f"window {settings['window'][0]} × {settings['window'][1]}, offscreen, "
        f"{settings['panels']} panels open, {machine['cores']} cores, load {machine['load']:.1f} before",
        "",
        line("", "measured", "goal"),
    ]
    for name, words in (("replay", f"replay of {settings['tokens_per_second']:,.0f} tok/s"), ("live", "live")):
        part = result[name]
        title = f"{settings['streams']} streams, {words}: frame"
        lines.append(line(f"{title} p95", f"{part['p95_ms']:.1f} ms", "≤ 33 ms", part["p95_ms"] <= FRAME_MS))
        lines.append(line("    p50 · p99 · fps", f"{part['p50_ms']:.1f} · {part['p99_ms']:.1f} ms · {part['fps']:.0f}"))
    lines.append(line("    engine beside it", f"{result['live']['tokens_per_second']:,.0f} tok/s"))
    if "scrub" in result:
        part = result["scrub"]
        title = f"scrubbing: all panels at a random one of {part['steps']:,} steps, p95"
        lines.append(line(title, f"{part['p95_ms']:.1f} ms", "< 100 ms", part["p95_ms"] < SCRUB_MS))
        lines.append(line("    p50 · slowest", f"{part['p50_ms']:.1f} · {part['max_ms']:.1f} ms"))
    part = result["race"]
    title = f"race of {len(part['lanes'])} lanes over {part['prompts']} prompts: frame p95"
    lines.append(line(title, f"{part['p95_ms']:.1f} ms", "≤ 33 ms", part["p95_ms"] <= FRAME_MS))
    lines.append(line("    p50 · p99 · fps", f"{part['p50_ms']:.1f} · {part['p99_ms']:.1f} ms · {part['fps']:.0f}"))
    part = result["timeline"]
    title = f"timeline: pan and zoom over {part['row_steps']:,} row-steps: frame p95"
    lines.append(line(title, f"{part['p95_ms']:.1f} ms", "≤ 33 ms", part["p95_ms"] <= FRAME_MS))
    worst = f"{part['p50_ms']:.1f} · {part['p99_ms']:.1f} · {part['max_ms']:.1f} ms"
    lines.append(line("    p50 · p99 · slowest", worst))
    lines.append(line("    to take in one step of 64 rows", f"{part['feed_us']:.0f} µs"))
    for name, goal in (("limited", True), ("free", None)):
        part = result["throughput"][name]
        title = f"engine, {part['threads']} torch thread{'s' if part['threads'] != 1 else ''}: with window ÷ headless"
        met = part["ratio"] >= 0.95 if goal else None
        lines.append(line(title, f"{100 * part['ratio']:.1f} %", "≥ 95 %" if goal else "", met))
        both = f"{part['window_median']:,.0f} ÷ {part['headless_median']:,.0f} tok/s"
        low, high = part["ratio_quartiles"]
        spread = f"    median of {len(part['window'])} pairs; half of them {100 * low:.0f}–{100 * high:.0f} %"
        lines.append(line(spread, both))
    paint = result["first_paint"]
    lines.append(line("first paint after the command", f"{paint['median_s']:.2f} s", "< 1 s", paint["median_s"] < 1.0))
    lines.append(line("    from a cold start", f"{paint['cold_s']:.2f} s"))
    if machine["load"] > BUSY:
        lines.insert(1, "the machine was busy with something else: these figures tell less than they could")
    torch = paint["torch"] or result["torch_in_window"]
    lines.append(
        line("torch in the window's process", "imported" if torch else "not imported", "not imported", not torch)
    )
    return "\n".join(lines)


def main(*, json_output: bool = False, rounds: int = 3, panels: str = "usual") -> int:
    """`batchscope bench --ui`: prints the table, or all figures as JSON. Returns the exit code."""
    try:
        result = ui_bench(rounds=rounds, panels=panels)
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1) if json_output else render(result))
    return 0
