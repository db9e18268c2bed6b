"""`python -m engine.bench.gpu`: the GPU tests, then decode speed against what the memory's bandwidth allows,
of a small model, and of a large one dense and quantized.

Needs torch, transformers, triton and numpy. The results are also written as JSON to tests/benchmarks/results.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from engine import machine
from engine.bench.decode_steps import decode_steps
from engine.bench.gpu_quantized import large_models
from engine.bench.subject import Case, Lengths, Shape, make_case, plain_tokenizer
from engine.config import EngineConfig
from engine.engine import Engine
from engine.models.loading import wrap

BATCHES = (1, 8, 64, 256)
LARGE_BATCHES = (1, 8)
PROMPT, NEW = 256, 128  # tokens of each request
HEADINGS = f"{'batch':>6} {'context':>8} {'step ms':>9} {'tok/s':>10} {'bound ms':>9} {'× bound':>8}"
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "tests" / "benchmarks" / "results"


@dataclass(frozen=True, slots=True)
class Decode:
    """Steady decoding of `batch` requests. `bound` is the seconds in which a step's bytes can be read at all."""

    batch: int
    context: int
    seconds: float
    bound: float
    steps: int

    @property
    def text(self) -> str:
        return (
            f"{self.batch:6} {self.context:8} {self.seconds * 1e3:9.2f} {self.batch / self.seconds:10,.0f} "
            f"{self.bound * 1e3:9.2f} {self.seconds / self.bound:8.2f}"
        )


def copy_bandwidth(size: int = 1 << 30, rounds: int = 10) -> float:
    """Bytes read and written a second by a copy on the device."""
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    seconds = []
    for _ in range(rounds + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return 2 * size / median(seconds[2:])


def random_qwen3() -> PreTrainedModel:
    """A random model of Qwen3-0.6B's shape, bfloat16, on the GPU."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        hidden_size=1024,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=3072,
        vocab_size=151_936,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        return Qwen3ForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)


def measure(engine: Engine, batch: int, bandwidth: float) -> Decode:
    """Two runs, the first to warm up. A step reads all weights once and the K and V of every context."""
    vocabulary = Shape(vocabulary=engine.card.vocabulary)
    case = Case(make_case(batch, vocabulary, Lengths(PROMPT, PROMPT)).prompts, (NEW,) * batch)
    for _ in range(2):
        trace = engine.run(case.workload()).result()
    periods = [timing.period for timing in decode_steps(trace.steps, batch)]
    context = PROMPT + NEW // 2
    read = engine.card.weight_bytes + batch * context * engine.card.kv_token_bytes
    return Decode(batch, context, median(periods), read / bandwidth, len(periods))


def decode_large(bandwidth: float) -> dict[str, Any]:
    """Prints and returns the decoding of a model of Llama-3.1-8B's shape, dense and quantized, and each one's tokens a
    second against the dense one's."""
    print("\nRandom model of Llama-3.1-8B's shape, computing in bfloat16")
    print(f"{'':>6} {'weights GB':>10} {HEADINGS} {'× dense':>8}")
    found: dict[str, Any] = {}
    dense: dict[int, float] = {}
    for name, module in large_models():
        if isinstance(module, str):
            print(f"{name:>6} not measured: {module}", flush=True)
            found[name] = {"absent": module}
            continue
        model = wrap(module, plain_tokenizer(module.config.vocab_size), f"random Llama 8B, {name}", name)
        del module
        config = EngineConfig(max_running=max(LARGE_BATCHES), prefix_caching=False, kv_memory=2 << 30)
        decodes = []
        with Engine(model, config) as engine:
            for batch in LARGE_BATCHES:
                decode = measure(engine, batch, bandwidth)
                times = dense.setdefault(batch, decode.seconds) / decode.seconds
                print(f"{name:>6} {model.card.weight_bytes / 1e9:10.2f} {decode.text} {times:8.2f}", flush=True)
                decodes.append({**asdict(decode), "times_dense": times})
        found[name] = {"weight_bytes": model.card.weight_bytes, "decode": decodes}
        del model, engine
    return found


def run_tests() -> int | None:
    """pytest's exit status over tests/gpu, or None where either is missing."""
    folder = ROOT / "tests" / "gpu"
    if not folder.is_dir() or importlib.util.find_spec("pytest") is None:
        return None
    return subprocess.run([sys.executable, "-m", "pytest", "-q", str(folder)], cwd=ROOT, check=False).returncode


def main() -> int:
    if not torch.cuda.is_available():
        print("No CUDA GPU is usable here, so there is nothing to measure; on a CPU use `batchscope bench`.")
        return 2
    tests = run_tests()
    gpu = torch.cuda.get_device_properties(0)
    bandwidth = copy_bandwidth()
    print(f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB; copies {bandwidth / 1e12:.2f} TB/s; {machine.versions()}")
    model = wrap(random_qwen3(), plain_tokenizer(151_936), "random Qwen3-0.6B")
    card = model.card
    print(f"{card.parameters / 1e6:.0f} M parameters in {card.dtype}; prompts of {PROMPT}, {NEW} new tokens each")
    print(HEADINGS)
    decodes = []
    with Engine(model, EngineConfig(max_running=max(BATCHES), prefix_caching=False)) as engine:
        for batch in BATCHES:
            decodes.append(measure(engine, batch, bandwidth))
            print(decodes[-1].text, flush=True)
    del model, engine
    torch.cuda.empty_cache()
    large = decode_large(bandwidth)
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = gpu.name.lower().replace(" ", "-")
    path = RESULTS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    values = {
        "gpu": gpu.name,
        "versions": machine.versions(),
        "tests_exit_status": tests,
        "copy_bytes_per_second": bandwidth,
        "weight_bytes": card.weight_bytes,
        "kv_token_bytes": card.kv_token_bytes,
        "decode": [asdict(decode) for decode in decodes],
        "large": large,
    }
    path.write_text(json.dumps(values, indent=1) + "\n")
    print(f"Written to {path.relative_to(ROOT)}")
    return 1 if tests else 0


if __name__ == "__main__":
    sys.exit(main())
