"""What the window costs: milliseconds a frame, tokens a second lost, time to the first paint."""

import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import qasync

from app import storage
from app.bench.first_paint import first_paint
from app.bench.frames import FrameMeter, Replayer
from app.bench.headless import Headless, bench_workload
from app.bench.panels import large_pool, made_up, scrub
from app.bench.race import race_frames
from app.bench.synthetic import synthetic_trace
from app.bench.timeline import ROW_STEPS, timeline_frames
from app.window.main_window import MainWindow
from app.window.start.application import make_application, settle, unattended_window, until
from engine import EngineConfig, EngineProcess, ModelSpec, SamplingParams, Submission, measure
from engine.trace import TraceWriter
from engine.workloads import demo_workload

FRAME_MS = 33.0
SCRUB_MS = 100.0
BUSY = 0.5  # load average before the bench, from which on the table warns
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """`workload` is slots, requests and tokens of a throughput round, of which there are four pairs a round. `panels`:
    the "usual" ones are open, or "all", and then over the largest pool that is drawn."""

    seconds: float = 10.0
    rounds: int = 3
    streams: int = 256
    tokens_per_second: float = 30_000
    workload: tuple[int, int, int] = (64, 64, 96)
    window: tuple[int, int] = (1600, 1000)
    panels: str = "usual"
    source: str = "demo"

    @property
    def everything(self) -> bool:
        return self.panels == "all"


def ui_bench(settings: Settings, report: Report) -> dict[str, Any]:
    """Measures the real window offscreen and returns the figures; `render` makes them a table. `report` is told what
    goes on."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    machine = {"cores": os.cpu_count(), "cpu": platform.machine(), "load": os.getloadavg()[0]}
    result: dict[str, Any] = {"machine": machine, "settings": asdict(settings)}
    report("first paint: starting the window six times")
    result["first_paint"] = first_paint()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BATCHSCOPE_DATA"] = folder  # what a person keeps is left alone, to the end of the process
        application = make_application()
        report(f"timeline: pan and zoom over {ROW_STEPS:,} row-steps")
        result["timeline"] = timeline_frames()
        result |= qasync.run(_in_window(settings, report))
        del application
    result["torch_in_window"] = "torch" in sys.modules
    return result


async def _in_window(settings: Settings, report: Report) -> dict[str, Any]:
    result: dict[str, Any] = {}
    source, rounds, streams, rate = settings.source, settings.rounds, settings.streams, settings.tokens_per_second
    threads = max(1, (os.cpu_count() or 2) - 1)
    async with unattended_window(settings.window) as window:
        window.page.complete()
        if settings.everything:
            window.page.layout_of.everything()
        meter = FrameMeter(window.bridge)
        await asyncio.sleep(0.5)
        settle()
        report(f"replay: {streams} streams at {rate:,.0f} tok/s")
        result["replay"] = await _replay(window, meter, settings)
        report(f"live: {streams} streams of {source}")
        result["live"] = await _live(window, meter, settings, threads)
        if settings.everything:
            report("scrubbing: all panels at random moments")
            result["scrub"] = await scrub(window, streams, rate, settings.seconds)
        report("race: four lanes on the Compare page")
        result["race"] = await race_frames(window, meter, source)
        result["throughput"] = {}
        for name, limit in (("limited", threads), ("free", None)):
            report(f"throughput: {4 * rounds} pairs with the window and without it, {limit or 'all'} threads")
            result["throughput"][name] = await _throughput(window, settings, limit)
    return result


async def _replay(window: MainWindow, meter: FrameMeter, settings: Settings) -> dict[str, Any]:
    make = made_up if settings.everything else synthetic_trace
    player = Replayer(make(settings.streams, settings.tokens_per_second, settings.seconds + 1.5))
    window.bridge.show(player.trace)
    player.start()
    try:
        await asyncio.sleep(1.0)
        meter.start()
        await asyncio.sleep(settings.seconds)
        frames = meter.stop()
        behind = window.bridge.behind
    finally:
        player.stop()
    return {**frames, "records_behind": behind}


async def _live(window: MainWindow, meter: FrameMeter, settings: Settings, threads: int) -> dict[str, Any]:
    bridge, source, streams = window.bridge, settings.source, settings.streams
    config = EngineConfig(max_running=streams, token_budget=max(2048, streams))
    if settings.everything:
        config = large_pool(config, source)
    engine = await asyncio.to_thread(EngineProcess, ModelSpec(source), config, threads=threads)
    writer = TraceWriter(engine.trace, storage.new_run_file(source))
    try:
        bridge.show(engine.trace)
        most = min(1024, engine.card.context - 64)
        params = SamplingParams(max_tokens=most, temperature=0.8, ignore_eos=True, seed=1)
        prompts = demo_workload(streams, params).arrivals
        await asyncio.to_thread(engine.submit_many, [Submission(a.prompt, a.params) for a in prompts])
        decoding = await until(lambda: sum(len(v.tokens) > 0 for v in bridge.requests.values()) >= streams, 120)
        tokens = sum(len(v.tokens) for v in bridge.requests.values())
        meter.start()
        begun = time.perf_counter()
        await until(lambda: len(bridge.open) < streams, settings.seconds)
        spent = time.perf_counter() - begun
        frames = meter.stop()
        given = sum(len(v.tokens) for v in bridge.requests.values()) - tokens
        engine.cancel()
        await until(lambda: not bridge.open, 10)
    finally:
        await asyncio.to_thread(engine.close)
        await asyncio.to_thread(writer.close)
    return {**frames, "all_decoding": decoding, "tokens_per_second": given / spent}


async def _throughput(window: MainWindow, settings: Settings, threads: int | None) -> dict[str, Any]:
    bridge, source = window.bridge, settings.source
    running, requests, tokens = settings.workload
    config = EngineConfig(max_running=running)
    engine = await asyncio.to_thread(EngineProcess, ModelSpec(source), config, threads=threads)
    headless: Headless | None = None
    beside, alone = [], []

    async def with_window() -> float:
        run = await asyncio.to_thread(engine.run, bench_workload(requests, tokens))
        writer = TraceWriter(run.trace, storage.new_run_file(source))
        bridge.show(run.trace)
        await until(lambda: run.done, 600)
        await asyncio.to_thread(writer.close)
        return measure(run.result(timeout=0)).output_throughput

    try:
        headless = Headless(source, running, requests, tokens, threads)
        await with_window()  # a warm-up of each, not counted
        headless.round()
        for i in range(4 * settings.rounds):
            for side in ("window", "alone") if i % 2 == 0 else ("alone", "window"):
                if side == "window":
                    beside.append(await with_window())
                else:
                    alone.append(headless.round())
    finally:
        await asyncio.to_thread(engine.close)
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


def _line(name: str, value: str, goal: str = "", met: bool | None = None) -> str:
    mark = "" if met is None else "   yes" if met else "   NO"
    return f"{name:<56}{value:>24}   {goal:<12}{mark}".rstrip()


def _frames(title: str, part: dict[str, Any], others: str) -> list[str]:
    """Of what is drawn, two lines: the slowest twentieth against its goal, and `others`."""
    p95 = part["p95_ms"]
    rest = f"{part['p50_ms']:.1f} · {part['p99_ms']:.1f} " + (
        f"ms · {part['fps']:.0f}" if others == "fps" else f"· {part['max_ms']:.1f} ms"
    )
    return [
        _line(f"{title}: frame p95", f"{p95:.1f} ms", f"≤ {FRAME_MS:.0f} ms", p95 <= FRAME_MS),
        _line(f"    p50 · p99 · {others}", rest),
    ]


def render(result: dict[str, Any]) -> str:
    """The figures as the table that `batchscope bench --ui` prints."""
    machine, settings = result["machine"], result["settings"]
    wide, high = settings["window"]
    said = f"{settings['panels']} panels open, {machine['cores']} cores, load {machine['load']:.1f} before"
    lines = [f"window {wide} × {high}, offscreen, {said}"]
    if machine["load"] > BUSY:
        lines.append("the machine was busy with something else: these figures tell less than they could")
    lines += ["", _line("", "measured", "goal")]
    for name, words in (("replay", f"replay of {settings['tokens_per_second']:,.0f} tok/s"), ("live", "live")):
        lines += _frames(f"{settings['streams']} streams, {words}", result[name], "fps")
    lines.append(_line("    engine beside it", f"{result['live']['tokens_per_second']:,.0f} tok/s"))
    if "scrub" in result:
        part = result["scrub"]
        title = f"scrubbing: all panels at a random one of {part['steps']:,} steps, p95"
        lines.append(_line(title, f"{part['p95_ms']:.1f} ms", "< 100 ms", part["p95_ms"] < SCRUB_MS))
        lines.append(_line("    p50 · slowest", f"{part['p50_ms']:.1f} · {part['max_ms']:.1f} ms"))
    race, timeline = result["race"], result["timeline"]
    lines += _frames(f"race of {len(race['lanes'])} lanes over {race['prompts']} prompts", race, "fps")
    lines += _frames(f"timeline: pan and zoom over {timeline['row_steps']:,} row-steps", timeline, "slowest")
    lines.append(_line("    to take in one step of 64 rows", f"{timeline['feed_us']:.0f} µs"))
    for name, goal in (("limited", True), ("free", None)):
        part = result["throughput"][name]
        title = f"engine, {part['threads']} torch thread{'s' if part['threads'] != 1 else ''}: with window ÷ headless"
        met = part["ratio"] >= 0.95 if goal else None
        lines.append(_line(title, f"{100 * part['ratio']:.1f} %", "≥ 95 %" if goal else "", met))
        both = f"{part['window_median']:,.0f} ÷ {part['headless_median']:,.0f} tok/s"
        low, high = part["ratio_quartiles"]
        spread = f"    median of {len(part['window'])} pairs; half of them {100 * low:.0f}–{100 * high:.0f} %"
        lines.append(_line(spread, both))
    paint = result["first_paint"]
    lines.append(_line("first paint after the command", f"{paint['median_s']:.2f} s", "< 1 s", paint["median_s"] < 1.0))
    lines.append(_line("    from a cold start", f"{paint['cold_s']:.2f} s"))
    torch = paint["torch"] or result["torch_in_window"]
    found = "imported" if torch else "not imported"
    return "\n".join([*lines, _line("torch in the window's process", found, "not imported", not torch)])


def main(*, json_output: bool = False, rounds: int = 3, panels: str = "usual") -> int:
    """`batchscope bench --ui`: prints the table, or all figures as JSON. Returns the exit code."""
    try:
        settings = Settings(rounds=rounds, panels=panels)
        result = ui_bench(settings, lambda line: print(line, file=sys.stderr, flush=True))
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1) if json_output else render(result))
    return 0
