"""How the engine shares out a memory: the rules that a load follows and that tell beforehand whether a model fits. No
torch."""

from engine.scheduler.block_pool import blocks_for

CPU_SHARE = 0.25  # of the memory that is free once the weights are there
GPU_RESERVE, LEAST_RESERVE = 0.02, 256 << 20  # of a GPU's free memory, what stays free
DISPLAY_RESERVE = 1 << 30  # bytes, where a desktop draws with the GPU: its windows and browsers come and go
SEGMENT = 2 << 20  # to which CUDA's allocator rounds large tensors up
CAPTURE = 16 << 20  # what one captured graph takes beside its activations, at most
UNKNOWN_CONTEXT = 4096  # tokens that a request may have where the model does not say
CLOSE, APART, WIDE = 8, 256, 64  # captured batch sizes are 8 apart up to 256 rows, and 64 apart beyond
MOST = 1024  # rows of a captured decode step
LOGITS = 3  # float32 copies of the logits that sampling holds at a time


def pool_share(free: int, kind: str, needed: int = 0, display: bool = False) -> int:
    """Bytes of `free` that a KV pool may take on a device of this kind ("cpu" or "cuda"): on a GPU all but what else is
    `needed` and a reserve, larger where it drives a `display`."""
    if kind != "cuda":
        return int(free * CPU_SHARE)
    least = DISPLAY_RESERVE if display else LEAST_RESERVE
    return max(0, free - needed - max(int(free * GPU_RESERVE), least))


def bucket_sizes(most: int) -> tuple[int, ...]:
    """The numbers of rows for which decode steps are captured as CUDA graphs, so that a step of up to `most` finds one
    that is not much larger."""
    few = [n for n in (1, 2, 4) if n < most]
    top = min(most, MOST)
    close = range(CLOSE, min(top, APART) + CLOSE, CLOSE) if top > 4 else [top]
    return tuple(sorted({*few, *close, *range(APART + WIDE, top + WIDE, WIDE)}))


def gpu_needs(slots: int, layers: int, vocabulary: int, decode_step: int = 0) -> int:
    """Bytes that a GPU needs beside weights, pool and a step's activations: which tokens each slot has seen, what the
    allocator adds to each layer's K and V, and captured graphs, where decode steps of `decode_step` bytes at the most
    are captured."""
    graphs = decode_step + len(bucket_sizes(slots)) * CAPTURE if decode_step else 0
    return slots * vocabulary + 2 * layers * SEGMENT + graphs


def pool_size(share: int, block_bytes: int, slots: int, context: int, block_size: int) -> int:
    """Blocks of the pool: what so many running requests could ever fill, within `share` bytes."""
    return min(slots * blocks_for(context or UNKNOWN_CONTEXT, block_size), share // block_bytes)


def kv_capacity(blocks: int, block_size: int, length: int) -> int:
    """How many requests of `length` tokens a pool of so many blocks holds at once."""
    return blocks // blocks_for(length, block_size) if length > 0 else 0


def step_bytes(tokens: int, rows: int, hidden: int, head_dim: int, mlp: int, vocabulary: int, item: int) -> int:
    """What a step of `tokens` tokens in `rows` requests takes beyond weights and pool, estimated from shapes: the gated
    MLP of one layer, `mlp` wide, while the embeddings, the layer's input, the residual, its norm, the rotary angles and
    three intermediate tensors are alive; or the logits and what sampling copies of them, where those are more."""
    layer = tokens * (4 * hidden + 2 * head_dim + 3 * (mlp or 4 * hidden)) * item
    return max(layer, rows * vocabulary * (item + 4 * LOGITS))
