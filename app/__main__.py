"""The command line: batchscope [window] · run · bench · doctor."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import (
    DTYPES,
    MODES,
    QUANTIZATIONS,
    RUN_SUFFIX,
    EngineConfig,
    InvalidInput,
    LoadProgress,
    ModelSpec,
    Prompt,
    Run,
    SamplingParams,
    Trace,
    TraceWriter,
    Workload,
    demo_workload,
    measure,
    read_prompts,
    table,
)


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
    _model_options(top)
    _engine_options(top)
    top.add_argument("--in-process", action="store_true", help="keep the engine beside the window, for debugging")
    top.set_defaults(command=open_window)
    commands = top.add_subparsers(title="commands", metavar="")

    run = commands.add_parser("run", help="send prompts to the engine without a window and print the metrics")
    _model_options(run)
    _engine_options(run)
    _sampling_options(run)
    run.add_argument("--prompts", type=Path, metavar="FILE", help="one prompt a line, UTF-8 (default: 64 demo stories)")
    run.add_argument("--raw", action="store_true", help="send the lines as plain text, without the chat template")
    run.add_argument("--repeat", type=_whole, default=1, metavar="N", help="send every prompt N times")
    run.add_argument("--texts", action="store_true", help="print the answers too")
    run.add_argument("--out", type=Path, metavar="FILE", help=f"write the run to FILE ({RUN_SUFFIX}) as it grows")
    run.add_argument("--json", action="store_true", help="print metrics and answers as JSON")
    run.set_defaults(command=run_prompts)

    bench = commands.add_parser("bench", help="measure this engine, its peers and the bound; --ui: the window's cost")
    bench.add_argument("--ui", action="store_true", help="measure the window: frames, first paint, what it costs")
    bench.add_argument("--prompts", type=_whole, nargs="+", default=[24, 64], metavar="N", help="batch sizes")
    bench.add_argument("--rounds", type=_whole, default=3, help="how often each side is measured")
    bench.add_argument("--threads", type=_whole, help="torch threads (default: the best for each)")
    bench.add_argument("--json", action="store_true", help="print all numbers as JSON")
    bench.set_defaults(command=run_bench)

    doctor = commands.add_parser("doctor", help="what machine, GPU, libraries and models are here")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.set_defaults(command=run_doctor)
    return top


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return value


def _model_options(to: argparse.ArgumentParser) -> None:
    to.add_argument("--model", default="demo", help="demo, a model folder or a hub id (default: demo)")
    to.add_argument("--quantization", default="none", metavar="KIND", help=f"one of {', '.join(QUANTIZATIONS)}")
    to.add_argument("--dtype", default="auto", choices=DTYPES)
    to.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    to.add_argument("--revision", help="branch, tag or commit of a model on the hub")
    to.add_argument("--trust-remote-code", action="store_true", help="run Python code that the model brings")


def _engine_options(to: argparse.ArgumentParser) -> None:
    default = EngineConfig()
    to.add_argument("--mode", default=default.mode, help=f"one of {', '.join(MODES)}")
    to.add_argument("--max-running", type=int, default=default.max_running, help="requests that run at once")
    to.add_argument("--token-budget", type=int, help="most tokens a step computes (default: 2048)")
    to.add_argument("--block-size", type=int, default=default.block_size, help="tokens a KV block holds")
    to.add_argument("--kv-memory", type=_bytes, metavar="SIZE", help="KV pool, e.g. 512M or 4G (default: what is free)")
    to.add_argument("--depth", type=int, help="steps launched ahead: 0 or 1 (default: 1 on a GPU, else 0)")
    to.add_argument("--seed", type=int, default=0)
    to.add_argument("--threads", type=_whole, help="torch threads on a CPU")


def _sampling_options(to: argparse.ArgumentParser) -> None:
    default = SamplingParams()
    to.add_argument("--max-tokens", type=int, default=default.max_tokens)
    to.add_argument("--temperature", type=float, default=0.8, help="0 is greedy")
    to.add_argument("--top-p", type=float, default=0.95)
    to.add_argument("--top-k", type=int, default=default.top_k)
    to.add_argument("--min-p", type=float, default=default.min_p)
    to.add_argument("--repetition-penalty", type=float, default=default.repetition_penalty)
    to.add_argument("--stop", action="append", default=[], help="end before this text; may be given several times")
    to.add_argument("--ignore-eos", action="store_true", help="go on to max tokens")


def _bytes(text: str) -> int:
    """A size such as 512M or 4G in bytes."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    try:
        return int(float(number) * unit)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 4G") from None


def _spec(options: argparse.Namespace) -> ModelSpec:
    return ModelSpec(
        options.model, options.quantization, options.dtype, options.device, options.revision, options.trust_remote_code
    )


def _config(options: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        mode=options.mode,
        max_running=options.max_running,
        token_budget=options.token_budget or max(EngineConfig().token_budget, options.max_running),
        block_size=options.block_size,
        kv_memory=options.kv_memory,
        depth=options.depth,
        seed=options.seed,
    )


def _params(options: argparse.Namespace) -> SamplingParams:
    return SamplingParams(
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        stop=tuple(options.stop),
        ignore_eos=options.ignore_eos,
    )


def open_window(options: argparse.Namespace) -> int:
    """The window; where there is no display, the demo in an offscreen one."""
    spec, config = _spec(options), _config(options)
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        from app.offscreen import play_demo

        return play_demo(spec, config)
    from app.main_window import open_window as show

    return show(spec, config, in_process=options.in_process)


def run_prompts(options: argparse.Namespace) -> int:
    """Everything is checked before the model is loaded, so that a mistake costs no wait."""
    spec, config, params = _spec(options), _config(options), _params(options)
    lines = read_prompts(options.prompts) * options.repeat if options.prompts else None
    with _Bar(options.json) as bar:
        from engine import Engine

        with Engine(spec, config, progress=bar.loading, threads=options.threads) as engine:
            if lines is None:
                workload = demo_workload(64 * options.repeat).with_params(params)
            else:
                chat = engine.card.chat and not options.raw
                prompts: list[Prompt] = [[{"role": "user", "content": x}] if chat else x for x in lines]
                workload = Workload.at_once(options.prompts.name, prompts, params)
            run = engine.run(workload)
            writer = TraceWriter(run.trace, options.out) if options.out else None
            try:
                bar.follow(run)
                trace = run.result()
            except KeyboardInterrupt:
                run.cancel()
                trace = run.trace
                raise
            finally:
                engine.close()
                if writer is not None:
                    writer.close()
                    if writer.error:
                        print(f"batchscope: {writer.error}", file=sys.stderr)
                _print_run(run.trace, options)
    failed = [v for v in trace.requests.values() if v.error]
    return 1 if failed else 0


def _print_run(trace: Trace, options: argparse.Namespace) -> None:
    metrics = measure(trace)
    views = list(trace.requests.values())
    if options.json:
        answers = [
            {
                "request": v.request,
                "prompt": v.messages[-1]["content"] if v.messages else v.prompt,
                "text": v.text,
                "finish_reason": v.reason,
                "error": v.error,
                "token_ids": v.tokens,
                "ttft": v.ttft,
            }
            for v in views
        ]
        print(json.dumps({"metrics": metrics.to_json(), "answers": answers}, ensure_ascii=False, indent=1))
        return
    if options.texts:
        for v in views:
            print(f"[{v.request}] {v.messages[-1]['content'] if v.messages else v.prompt}\n{v.text}\n")
    header = trace.header
    model = header.model
    print(f"{model.name} · {model.dtype} · {model.device} · {header.config.mode} · {header.machine.cpu}")
    print(table(metrics))
    for v in views:
        if v.error:
            print(f"request {v.request}: {v.error}", file=sys.stderr)
    if options.out:
        print(f"\nrun written to {options.out}")


class _Bar:
    """A progress bar on stderr, for the load and then for the run; silent where stderr is no terminal."""

    def __init__(self, quiet: bool) -> None:
        from tqdm import tqdm

        self._bar: Any = tqdm(total=1, disable=True if quiet else None, leave=False, unit="B", unit_scale=True)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def loading(self, progress: LoadProgress) -> None:
        self._bar.set_description_str(progress.stage, refresh=False)
        self._bar.total, self._bar.n = progress.total or 1, progress.done
        self._bar.refresh()

    def follow(self, run: Run) -> None:
        """Returns when the run is over."""
        self._bar.unit = " requests"
        while not run.done:
            self._bar.total, self._bar.n = run.total, run.finished
            tokens = sum(len(v.tokens) for v in run.trace.requests.values())
            self._bar.set_description_str(f"{tokens:,} tokens", refresh=False)
            self._bar.refresh()
            run.wait(0.2)


def run_bench(options: argparse.Namespace) -> int:
    if options.ui:
        from app.bench import main as measure_window

        return measure_window(json_output=options.json, rounds=options.rounds)
    from engine.bench import cpu

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
