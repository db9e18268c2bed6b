"""`batchscope run`: prompts through the engine, and the metrics."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.cli.shared import memory
from app.cli.shared.options import (
    config_of,
    engine_options,
    in_turn,
    model_options,
    price_of,
    price_option,
    quiet,
    refuse_workload_options,
    sampled,
    sampling_of,
    sampling_options,
    slo_of,
    slo_options,
    spec_of,
    whole,
    workload_of,
    workload_options,
)
from app.cli.shared.progress import Bar
from app.interrupts import heard
from engine import InvalidInput, Lane, ModelSpec, Trace, Workload, measure
from engine.compare import compare, lane_name, table
from engine.core import import_engine
from engine.decoding import grammars_missing
from engine.trace import RUN_SUFFIX, Notice, RequestView, SampleView, Slo, TraceWriter, formulas
from engine.workloads import Arrival, as_prompt, demo_workload, read_prompts, unwrapped


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "send prompts to the engine without a window and print the metrics"
    form = argparse.RawDescriptionHelpFormatter
    run = commands.add_parser("run", help=does, formatter_class=form, epilog=f"what is printed:\n{formulas()}")
    told = "is sent, and its answer printed; several run together (default: 64 demo stories)"
    run.add_argument("prompt", nargs="*", metavar="PROMPT", help=told)
    model_options(run, sends=True)
    engine_options(run)
    sampling_options(run)
    run.add_argument("--prompts", type=Path, metavar="FILE", help="one prompt a line, UTF-8")
    run.add_argument("--raw", action="store_true", help="send the prompts as plain text, without the chat template")
    run.add_argument("--repeat", type=whole, default=1, metavar="N", help="send every prompt N times")
    workload_options(run, None)
    slo_options(run)
    price_option(run)
    run.add_argument("--texts", action="store_true", help="print the answers too")
    run.add_argument("--out", type=Path, metavar="FILE", help=f"write the run to FILE ({RUN_SUFFIX}) as it grows")
    forms = run.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print metrics and answers as JSON")
    forms.add_argument("--csv", action="store_true", help="print the metrics as CSV")
    run.set_defaults(command=run_prompts)


def run_prompts(options: argparse.Namespace) -> int:
    """Everything is checked before the model is loaded, so that a mistake costs no wait."""
    spec, config, params, slo = spec_of(options), config_of(options), sampling_of(options), slo_of(options)
    price = price_of(options)
    given = {"--prompts": options.prompts, "--workload": options.workload, "PROMPT": options.prompt}
    if len(named := [name for name, value in given.items() if value]) > 1:
        raise InvalidInput(f"{' and '.join(named)}: give one of them")
    if not all(prompt.strip() for prompt in options.prompt):
        raise InvalidInput("PROMPT is empty; write what the model is to go on from")
    if not options.workload:
        refuse_workload_options(options)
    workload = sampled(workload_of(options, spec), options) if options.workload else None
    if workload is not None:
        workload = replace(workload, arrivals=workload.arrivals * options.repeat)
    if options.prompts:
        told = read_prompts(options.prompts, params, chat=True, model_folder=spec.source) * options.repeat
        workload = Workload(options.prompts.name, told)
    elif options.prompt:
        asked = tuple(Arrival(0.0, as_prompt(prompt, True), params) for prompt in options.prompt)
        workload = Workload("prompts", asked * options.repeat)
    held = any(each.params.constrained for each in workload.arrivals) if workload else params.constrained
    if held and (why := grammars_missing()):
        raise InvalidInput(f"regex, choices, json_schema: {why}")
    if workload is not None:
        workload = in_turn(workload, options)
        spec = Lane(config, spec).adapted(workload).spec
    if options.out is not None and options.out.exists():
        raise InvalidInput(f"{options.out} exists; choose another name, or delete it first")
    with Bar(quiet(options)) as bar:
        with heard():
            engine_type = import_engine()
        with engine_type(spec, config, progress=bar.loading, threads=options.threads) as engine:
            for record in engine.trace.since(0):
                if isinstance(record, Notice):  # of the load
                    print(f"batchscope: {record.text}", file=sys.stderr)
            if workload is None:
                workload = in_turn(demo_workload(64 * options.repeat).with_params(params), options)
            if (options.prompts or options.prompt) and (options.raw or not engine.card.chat):
                plain = (replace(a, prompt=unwrapped(a.prompt)) for a in workload.arrivals)
                workload = replace(workload, arrivals=tuple(plain))
            run = engine.run(workload)
            writer = TraceWriter(run.trace, options.out) if options.out else None
            try:
                bar.follow(run)
                trace = run.result()
            except KeyboardInterrupt:
                run.cancel()
                raise
            finally:
                engine.close()
                if writer is not None:
                    writer.close()
                _print(run.trace, options, spec, slo, price)
                if writer is not None and writer.error:
                    print(f"batchscope: {writer.error}", file=sys.stderr)
                elif writer is not None and not (options.json or options.csv):
                    print(f"\nrun written to {options.out}")
    failed = any(v.error for v in trace.requests.values())
    return 1 if failed or (writer is not None and writer.error) else 0


def _asked(view: RequestView) -> str:
    return view.messages[-1]["content"] if view.messages else view.prompt


def _answer(view: RequestView, sample: SampleView) -> dict[str, Any]:
    told: dict[str, Any] = {"request": view.request, "sample": sample.branch, "prompt": _asked(view)}
    told |= {"text": sample.text, "finish_reason": sample.reason, "error": sample.error}
    ttft = sample.token_times[0] - view.submitted if sample.token_times else None
    return told | {"token_ids": sample.tokens.tolist(), "ttft": ttft, "score": sample.score}


def _scored(sample: SampleView) -> str:
    """Its text, with the score that a beam search gave it."""
    return sample.text if sample.score is None else f"({sample.score:.4f}) {sample.text}"


def _print(trace: Trace, options: argparse.Namespace, spec: ModelSpec, slo: Slo, price: float) -> None:
    metrics = measure(trace, slo, price=price)
    views = list(trace.requests.values())
    if options.json:
        answers = [_answer(v, sample) for v in views for sample in v.samples]
        said = {"metrics": metrics.to_json(), "memory": memory.as_json(trace.header), "answers": answers}
        print(json.dumps(said, indent=1))
        return
    header = trace.header
    if options.csv:
        print(compare([lane_name(Lane(header.config, spec))], [[metrics]]).csv(), end="")
        return
    if options.texts or options.prompt:
        for v in views:
            print(f"[{v.request}] {_asked(v)}")
            print(*(_scored(sample) for sample in v.samples), sep="\n", end="\n\n")
    model = header.model
    print(f"{model.name} · {model.dtype} · {model.device} · {header.config.mode} · {header.machine.cpu}\n")
    print(f"{memory.as_text(header)}\n")
    print(table(metrics))
    for v in views:
        if v.error:
            print(f"request {v.request}: {v.error}", file=sys.stderr)
