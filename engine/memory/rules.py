"""How the engine shares out a memory: the rules that a load follows and that tell beforehand whether a model fits. No
torch."""

from engine.config.specs import EngineConfig
from engine.scheduler.block_pool import blocks_for
from engine.trace.records import ModelCard

CPU_SHARE = 0.25  # of the memory that is free once the weights are there
GPU_RESERVE, LEAST_RESERVE = 0.02, 256 << 20  # of a GPU's free memory, what stays free
DISPLAY_RESERVE = 1 << 30  # bytes, where a desktop draws with the GPU: its windows and browsers come and go
SEGMENT = 2 << 20  # to which CUDA's allocator rounds large tensors up
CAPTURE = 16 << 20  # what one captured graph takes beside its activations, at most
UNKNOWN_CONTEXT = 4096  # tokens that a request may have where the model does not say
CLOSE, APART, WIDE = 8, 256, 64  # captured batch sizes are 8 apart up to 256 rows, and 64 apart beyond
MOST = 1024  # rows of a captured decode step
MOST_TOKENS = 2048  # of a captured step with prompts
# Seconds a layer, about, in which the host launches a step with prompts, kernel by kernel: 640 µs beside an H200, on a
# virtual machine, and less on a desktop's faster cores.
LAUNCHED = 400e-6
FASTEST = 1e15  # operations a second of a GPU's matrix products, where they were not measured
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


def mixed_sizes(budget: int, layers: int, parameters: int, operations: float = FASTEST) -> tuple[int, ...]:
    """The numbers of tokens for which steps with prompts are captured, up to a step at the token budget: where a GPU of
    so many `operations` a second is done with a model of so many `parameters` a token before the host has launched its
    layers. Larger steps hide the host's time, and would be padded for nothing."""
    few = 16, 32, *range(64, 512, 64)
    sizes = (*few, *range(512, 1024, 128), *range(1024, MOST_TOKENS, 256))
    most = -(-min(budget, MOST_TOKENS) // 16) * 16
    worth = layers * LAUNCHED * operations / (2 * max(parameters, 1))
    return tuple(size for size in (*(size for size in sizes if size < most), most) if size <= worth)


def captured_tokens(card: ModelCard, config: EngineConfig, operations: float = FASTEST) -> tuple[int, ...]:
    """`mixed_sizes` of a loaded model, whose tokens go to some of its experts; none where they are switched off."""
    if not (config.paged and config.cuda_graphs and config.mixed_graphs):
        return ()
    experts = card.expert_parameters * card.active_experts / card.experts if card.experts else 0
    multiplied = card.body_parameters - card.expert_parameters + experts
    return mixed_sizes(config.token_budget, card.layers, round(multiplied), operations)


def gpu_needs(slots: int, layers: int, vocabulary: int, captured_step: int = 0, captures: int = 0) -> int:
    """Bytes that a GPU needs beside weights, pool and a step's activations: which tokens each slot has seen (a byte a
    token) and how often (4, once a request asks), what the allocator adds to each layer's K and V, and so many captured
    graphs, of steps that take `captured_step` bytes at the most: their memory is shared."""
    return 5 * slots * vocabulary + 2 * layers * SEGMENT + captured_step + captures * CAPTURE


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


def residual_bytes(tokens: int, hidden: int, item: int, sharing: int = 1) -> int:
    """Of a step of `tokens` tokens, the residual and its norm on each of so many ranks that share its rows."""
    return 2 * -(-tokens // sharing) * hidden * item
