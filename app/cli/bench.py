"""`batchscope bench`: this engine, its peers and the bound; the window's cost; quantizations."""

from __future__ import annotations

import argparse
import sys

from app.cli.shared.options import whole
from engine.config import QUANTIZATIONS, InvalidInput


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser("bench", help="measure this engine, its peers and the bound; --ui: the window's cost")
    bench.add_argument("--ui", action="store_true", help="measure the window: frames, first paint, what it costs")
    bench.add_argument("--panels", choices=("usual", "all"), default="usual", help="with --ui: which panels are open")
    bench.add_argument("--prompts", type=whole, nargs="+", default=[24, 64], metavar="N", help="batch sizes")
    bench.add_argument("--rounds", type=whole, default=3, help="how often each side is measured")
    bench.add_argument("--threads", type=whole, help="torch threads (default: the best for each)")
    dtypes = ("float32", "bfloat16")
    bench.add_argument("--dtype", choices=dtypes, default="float32", help="of the model that is measured")
    what = "an engine of another environment too, by its Python: vllm=/path/to/python, llamacpp=..."
    bench.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help=what)
    names = ("all", *QUANTIZATIONS)
    what = f"measure a model of 100 M parameters in these instead: all, or of {', '.join(QUANTIZATIONS)}; with "
    what += "--parallel, the model that is split in this one"
    bench.add_argument("--quantization", nargs="+", choices=names, metavar="NAME", help=what)
    what = "with --quantization: of a mixture of experts, 320 M parameters"
    bench.add_argument("--mixture", action="store_true", help=what)
    what = "measure each technique on its workload, beside the run without it; or those named, of speculation, beams, "
    what += "kv, swap, offload, constrained, compression, adapters"
    bench.add_argument("--techniques", nargs="*", metavar="NAME", help=what)
    what = "measure our server beside transformers serve and llama.cpp's, and what HTTP costs"
    bench.add_argument("--serve", action="store_true", help=what)
    what = "with --serve: then N requests whose clients go away at any moment (default: 10,000; minutes)"
    bench.add_argument("--soak", type=whole, nargs="?", const=10_000, metavar="N", help=what)
    what = "measure one device and a model split over two ranks side by side, communication apart"
    bench.add_argument("--parallel", action="store_true", help=what)
    bench.add_argument("--json", action="store_true", help="print all numbers as JSON")
    bench.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    if options.soak and not options.serve:
        raise InvalidInput(f"soak={options.soak}: give --serve with it")
    if options.mixture and not options.quantization:
        raise InvalidInput("mixture: give --quantization with it")
    if options.ui:
        from app.bench.run import main as measure_window

        return measure_window(json_output=options.json, rounds=options.rounds, panels=options.panels)
    if options.serve:
        from engine.bench.serving.run import run as measure_server

        return measure_server(options.rounds, options.threads, options.soak, options.json, _say)
    if options.parallel:
        from engine.bench.parallel.run import run as measure_ranks

        names = options.quantization or ["none"]
        if len(names) > 1 or "all" in names:
            raise InvalidInput(f"quantization={' '.join(names)}: give one with --parallel")
        return measure_ranks(options.rounds, options.threads, options.dtype, options.json, *names)
    if options.techniques is not None:
        from engine.bench.techniques.run import run as measure_techniques

        return measure_techniques(options.techniques, options.rounds, options.threads, options.json)
    if options.quantization:
        from engine.bench.cpu import quantized

        chosen = QUANTIZATIONS if "all" in options.quantization else options.quantization
        shape, experts = (quantized.MIXTURE, quantized.EXPERTS) if options.mixture else (quantized.SHAPE, None)
        found = quantized.run(chosen, options.rounds, options.threads, shape=shape, experts=experts)
        print(found.json() if options.json else found.text())
        return 0
    import torch

    from engine.bench.cpu import run as cpu
    from engine.bench.cpu.outside import OutsidePeer

    report = cpu.run(
        prompts=tuple(options.prompts),
        rounds=options.rounds,
        threads=options.threads,
        dtype=getattr(torch, options.dtype),
        outside=[OutsidePeer.parse(peer) for peer in options.peer],
    )
    print(report.json() if options.json else report.text())
    return 0


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
