"""A runner made ready for a config: its pool sized, its graphs captured, its first steps played off the record."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from engine.config.specs import EngineConfig, InvalidInput
from engine.core.faults import Fault, device_lost, fault_of, memory_asked
from engine.core.setup.activations import activation_bytes, computed_bytes
from engine.core.setup.host_memory import HostMemory, prepare_host_memory
from engine.core.setup.kv_budget import free_memory, pool_blocks, step_blocks
from engine.core.setup.rehearsal import Rehearsal
from engine.decoding.detokenizer import DetokenizerFactory
from engine.memory.allocator import release_references
from engine.memory.rules import FASTEST, bucket_sizes, captured_tokens, gpu_needs
from engine.models.loading import LoadedModel
from engine.models.weights import Reporter
from engine.runner import make_runner
from engine.runner.draft_model import DraftModel
from engine.runner.runner import Runner
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.speculation import Drafter
from engine.scheduler.swapping import Swapping
from engine.trace.records import Roof

Shape = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PreparedRunner:
    """`blocks` of the pool; `activations` of a step at the token budget and what `graphs` hold, in bytes; the `host`
    memory that preempted requests may have."""

    shape: Shape
    runner: Runner
    blocks: int
    activations: int
    graphs: int
    rehearsal: Rehearsal
    draft: DraftModel | None = None
    host: HostMemory = HostMemory()

    def scheduler(self, config: EngineConfig, drafter: Drafter | None = None) -> Scheduler:
        """One for it, with an empty pool."""
        pool = BlockPool(self.blocks, config.block_size)
        return Scheduler(config, pool, drafter, Swapping(pool, self.host.blocks, self.host.cost))

    def warm_up(self, token_budget: int) -> None:
        """On a GPU the whole step at the budget, so that its allocator has taken already what such a step takes."""
        rows, length = self.rehearsal.fill(token_budget)
        if rows and self.runner.model.device.type == "cuda":
            with contextlib.suppress(torch.OutOfMemoryError):
                self.rehearsal.prefill(rows, length)
        self.runner.reset()
        if self.draft is not None:
            self.draft.runner.reset()

    def serves(self, config: EngineConfig) -> bool:
        """True where the runner can be used again under `config` as it is: captures take seconds on a GPU, a fifth of
        one on a CPU."""
        return config.paged and self.shape == shape_of(config)


def shape_of(config: EngineConfig) -> Shape:
    """What a runner, and what its steps take, depends on."""
    mode = "paged" if config.paged else config.mode
    graphs = config.cuda_graphs, config.mixed_graphs, config.kv_dtype
    drafts = config.most_sampled, config.draft if config.speculation == "draft" else None
    pool = config.block_size, config.slots, config.token_budget, config.kv_memory
    return mode, *pool, *graphs, *drafts, config.preemption, config.swap_memory


def graph_needs(model: LoadedModel, config: EngineConfig, operations: float) -> int:
    """`gpu_needs` of a loaded model, for the steps that are captured of it."""
    card, slots = model.card, config.slots
    if not (config.paged and config.cuda_graphs):
        return gpu_needs(slots, card.layers, card.vocabulary)
    mixed, step = captured_tokens(card, config, operations), computed_bytes(model, slots, slots)
    if mixed:
        step = max(step, computed_bytes(model, mixed[-1], min(slots, mixed[-1])))
    return gpu_needs(slots, card.layers, card.vocabulary, step, len(mixed) + len(bucket_sizes(slots)))


class RunnerFactory:
    """Makes runners of one model. `roof` tells how long playing a step takes on a CPU."""

    def __init__(self, model: LoadedModel, detokenizers: DetokenizerFactory, roof: Roof | None) -> None:
        self._model, self._detokenizers, self._roof = model, detokenizers, roof
        self._activations: dict[Shape, int] = {}

    def __call__(self, config: EngineConfig, say: Reporter, draft: LoadedModel | None = None) -> PreparedRunner:
        """`say` hears that kernels are compiled, and how many graphs are captured, of how many, and may raise. Raises
        InvalidInput where the memory does not suffice, and DeviceLost."""
        try:
            return self._prepare(config, say, draft)
        except InvalidInput:
            raise
        except Exception as found:
            ranks = self._model.ranks
            error = found if ranks is None else ranks.meant(found)
            match fault_of(error, self._model.device):
                case Fault.DEVICE:
                    raise device_lost(error) from error
                case Fault.MEMORY:
                    asked = memory_asked(error)
                    release_references(error)
                    raise InvalidInput(
                        f"a KV cache and a step of {config.token_budget:,} tokens do not fit beside the weights "
                        f"({asked}): use a smaller token_budget, max_running or kv_memory"
                    ) from None
                case Fault.STEP:
                    raise

    def _prepare(self, config: EngineConfig, say: Reporter, draft: LoadedModel | None) -> PreparedRunner:
        model, shape = self._model, shape_of(config)
        report, warm_up = partial(say, "capturing graphs"), partial(say, "warming up")
        if model.device.type != "cuda":
            blocks = pool_blocks(model, config, draft=draft)
            runner = make_runner(model, config, blocks)
            runner.capture(report)
            rehearsal = self._warm(runner, config, blocks, warm_up)
            if shape not in self._activations:
                self._activations[shape] = activation_bytes(rehearsal, model, config, self._roof)
            drafts = self._draft(draft, config, blocks, report, warm_up)
            recorded = runner.recorded_bytes + (drafts.runner.recorded_bytes if drafts else 0)
            activations = self._activations[shape] + recorded
            host = prepare_host_memory(runner, config, blocks, self._roof)
            return PreparedRunner(shape, runner, blocks, activations, 0, rehearsal, drafts, host)
        if shape not in self._activations:
            self._activations[shape] = self.profile(config, say)
        activations = self._activations[shape]
        operations = self._roof.operations if self._roof is not None else FASTEST
        needed = activations + graph_needs(model, config, operations)
        if draft is not None:
            needed += graph_needs(draft, config, operations) + computed_bytes(draft, config.token_budget, config.slots)
        blocks = pool_blocks(model, config, needed, draft)
        runner = make_runner(model, config, blocks, operations)
        before = free_memory(model.device)
        runner.capture(report)
        graphs = max(0, before - free_memory(model.device)) if runner.graphs else 0
        drafts = self._draft(draft, config, blocks, report, warm_up, operations)
        host = prepare_host_memory(runner, config, blocks, self._roof)
        rehearsal = self._warm(runner, config, blocks, warm_up)
        return PreparedRunner(shape, runner, blocks, activations, graphs, rehearsal, drafts, host)

    def _draft(
        self,
        draft: LoadedModel | None,
        config: EngineConfig,
        blocks: int,
        report: Callable[[int, int], None],
        glance: Callable[[], None],
        operations: float = FASTEST,
    ) -> DraftModel | None:
        if draft is None:
            return None
        alone = replace(config, speculation=None, draft=None)
        runner = make_runner(draft, alone, blocks, operations)
        runner.capture(report)
        self._warm(runner, alone, blocks, glance)
        runner.reset()
        return DraftModel(runner, config.token_budget)

    def profile(self, config: EngineConfig, say: Reporter) -> int:
        """Bytes that a step at the token budget takes, played over a pool that is just large enough for it."""
        blocks = step_blocks(config, self._model.card.context)
        runner = make_runner(self._model, config, blocks)
        rehearsal = self._warm(runner, config, blocks, partial(say, "compiling kernels for this GPU, once"))
        return activation_bytes(rehearsal, self._model, config, self._roof)

    def _warm(self, runner: Runner, config: EngineConfig, blocks: int, glance: Callable[[], None]) -> Rehearsal:
        """So that first-use costs are not in anybody's time to first token. `glance` is called between steps, and may
        raise."""
        rehearsal = Rehearsal(runner, config, blocks, runner.model.card.context, self._detokenizers)
        if runner.model.device.type == "cuda":
            rehearsal.meet_all_kernels(glance)
        else:
            glance()
            rehearsal.play(2, 2)
        return rehearsal
