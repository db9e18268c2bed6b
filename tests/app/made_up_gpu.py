"""Generated traces as if they had run on a GPU that replays captured decode steps."""

from dataclasses import replace

from app.bench.synthetic import BLOCK, header
from engine.bench.trace.step_builder import Given
from engine.trace import Header, Kind, MemoryBreakdown, Record, Step

GRAPHS = (1, 2, 4, *range(8, 257, 8))  # rows for which decode steps are captured
GPU_MEMORY, GRAPH_BYTES = 80 << 30, 420 << 20


def gpu_header(streams: int, blocks: int, block_size: int = BLOCK, off: str = "") -> Header:
    """As `header`, of a model with 8 B parameters on a made-up GPU; `off`: why nothing was captured there."""
    plain = header(streams, blocks, block_size)
    shape: Given = {"layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "hidden": 4096}
    sizes: Given = {"parameters": 8_000_000_000, "weight_bytes": 16_060_522_496, "kv_token_bytes": 2 * 32 * 8 * 128 * 2}
    held: Given = {"context": 131_072, "dtype": "bfloat16", "device": "cuda:0", "load_seconds": 9.2}
    model = replace(plain.model, **shape, **sizes, **held)
    machine = replace(plain.machine, gpu="generated GPU", gpu_memory=GPU_MEMORY)
    pool, graphs = blocks * block_size * model.kv_token_bytes, 0 if off else GRAPH_BYTES
    activations, runtime, other = 1_240 << 20, 1_530 << 20, 610 << 20
    free = GPU_MEMORY - model.weight_bytes - pool - graphs - activations - runtime - other
    bill = MemoryBreakdown(GPU_MEMORY, model.weight_bytes, pool, activations, runtime, other, free, graphs)
    plain = replace(plain, graphs=() if off else GRAPHS, graphs_off=off)
    return replace(plain, model=model, machine=machine, bill=bill, depth=1)


def on_gpu(records: list[Record], off: str = "") -> list[Record]:
    """A generated trace as if it had run on the GPU of `gpu_header`: decode steps replay the next larger graph."""
    first = records[0]
    assert isinstance(first, Header)
    told = gpu_header(first.config.max_running, first.blocks, first.config.block_size, off)
    return [told, *(_replayed(record, told.graphs) if isinstance(record, Step) else record for record in records[1:])]


def _replayed(step: Step, graphs: tuple[int, ...]) -> Step:
    decodes = bool(step.rows) and bool((step.kind == Kind.DECODE).all())
    graph = next((rows for rows in graphs if rows >= step.rows), 0) if decodes else 0
    return replace(step, graph=graph, device=0.9 * (step.ended - step.started))
