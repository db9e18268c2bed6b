"""A runner made ready for a config: its pool sized, its graphs captured, its first steps played off the record."""

import contextlib
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from engine.config.specs import EngineConfig, InvalidInput
from engine.core.faults import Fault, device_lost, fault_of, memory_asked
from engine.core.prefill.handle import PrefillWorker
from engine.core.prefill.worker import layout_of
from engine.core.setup.activations import activation_bytes, computed_bytes
from engine.core.setup.host_memory import HostMemory, prepare_host_memory
from engine.core.setup.kv_budget import free_memory, pool_blocks, step_blocks
from engine.core.setup.rehearsal import Rehearsal
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.kernels.cpu.large_pages import LINE, SharedPages
from engine.memory.allocator import release_references
from engine.memory.rules import FASTEST, bucket_sizes, captured_tokens, gpu_needs
from engine.models.loading import LoadedModel
from engine.models.weights import Reporter
from engine.parallel.ranks import RankLost
from engine.runner import make_runner
from engine.runner.draft_model import DraftModel
from engine.runner.runner import Runner, on_gpu_path
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.host_memory import HostPool
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.speculation import Drafter
from engine.trace.records import Roof

Shape = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PreparedRunner:
    """`blocks` of the pool; `activations` of a step at the token budget and what `graphs` hold, in bytes; the `host`
    memory that preempted requests may have; the prefill `worker` of a mode that has one."""

    shape: Shape
    runner: Runner
    blocks: int
    activations: int
    graphs: int
    rehearsal: Rehearsal
    draft: DraftModel | None = None
    host: HostMemory = HostMemory()
    worker: PrefillWorker | None = None

    def scheduler(self, config: EngineConfig, drafter: Drafter | None = None) -> Scheduler:
        """One for it, with an empty pool."""
        pool = BlockPool(self.blocks, config.block_size)
        host = HostPool(self.host.blocks, config.block_size)
        return Scheduler(config, pool, drafter, host, self.host.cost, self.runner.states is not None)

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
        there = self.worker is None or self.worker.alive
        return config.paged and there and self.shape == shape_of(config)


def shape_of(config: EngineConfig) -> Shape:
    """What a runner, and what its steps take, depends on."""
    mode = "paged" if config.paged and not config.disaggregated else config.mode
    graphs = config.cuda_graphs, config.mixed_graphs, config.kv_dtype
    drafts = config.most_sampled, config.draft if config.speculation == "draft" else None
    pool = config.block_size, config.slots, config.token_budget, config.kv_memory
    return mode, *pool, *graphs, *drafts, config.preemption, config.swap_memory, config.offload_prefixes


def graph_needs(model: LoadedModel, config: EngineConfig, operations: float) -> int:
    """`gpu_needs` of a loaded model, for the steps that are captured of it."""
    card, slots = model.card, config.slots
    if not (config.paged and config.cuda_graphs):
        return gpu_needs(slots, card.layers, card.vocabulary)
    mixed, step = captured_tokens(card, config, operations), computed_bytes(model, slots, slots)
    if mixed:
        step = max(step, computed_bytes(model, mixed[-1], min(slots, mixed[-1])))
    return gpu_needs(slots, card.layers, card.vocabulary, step, len(mixed) + len(bucket_sizes(slots)))


def why_no_worker(model: LoadedModel) -> str:
    """What keeps a model's prompts from being computed in another process, "" where nothing does."""
    if on_gpu_path(model.device):
        return "it is for a CPU so far, where processes share the KV blocks"
    if model.devices > 1:
        return "this model is split over several devices already"
    if model.spec is None:
        return "the other process loads the model itself, and this one was handed over as it is"
    if not hasattr(os, "memfd_create"):
        return "processes share memory as Linux has it"
    return ""


def shared_bytes(model: LoadedModel, config: EngineConfig, blocks: int) -> int:
    """A file that has room for the pool, which each layer's K and V begin on a line of their own in."""
    pool = blocks * config.block_size * model.card_with(config.kv_dtype).kv_token_bytes
    return pool + 2 * LINE * len(model.layer_kv) + mmap.PAGESIZE


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
            runner, worker = self._with_worker(config, blocks, say)
            runner.capture(report)
            rehearsal = self._warm(runner, config, blocks, warm_up)
            if shape not in self._activations:
                self._activations[shape] = activation_bytes(rehearsal, model, config, self._roof)
            drafts = self._draft(draft, config, blocks, report, warm_up)
            recorded = runner.recorded_bytes + (drafts.runner.recorded_bytes if drafts else 0)
            activations = self._activations[shape] + recorded
            host = prepare_host_memory(runner, config, blocks, self._roof)
            return PreparedRunner(shape, runner, blocks, activations, 0, rehearsal, drafts, host, worker)
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

    def _with_worker(self, config: EngineConfig, blocks: int, say: Reporter) -> tuple[Runner, PrefillWorker | None]:
        """A runner, and where the mode has one a prefill worker over the same blocks."""
        model = self._model
        if not config.disaggregated:
            return make_runner(model, config, blocks), None
        if why := why_no_worker(model):
            raise InvalidInput(f"mode='disaggregated': {why}; use continuous or chunked")
        assert model.spec is not None
        if (free := free_memory(model.device)) < model.held_bytes:
            raise InvalidInput(
                f"mode='disaggregated': its other process holds the weights once more, {model.held_bytes:,} bytes, and "
                f"{free:,} are free; use continuous or chunked"
            )
        pages = SharedPages(shared_bytes(model, config, blocks))
        try:
            runner = make_runner(model, config, blocks, zeros=pages.zeros)
            worker = PrefillWorker(model.spec, config, blocks, pages, torch.get_num_threads())
            worker.ready(lambda: say("waiting for the prefill worker"), layout_of(runner.block_caches))
        except RankLost as error:
            raise InvalidInput(f"mode='disaggregated': {error}; use continuous or chunked") from error
        finally:
            pages.close()
        return runner, worker

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
