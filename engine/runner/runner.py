"""What every runner does with a step: prepare, forward, sample. How rows and cache are laid out is its own."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from engine.config.specs import EngineConfig
from engine.decoding.constraints.masks import Masks
from engine.models.attention import Batch, Timer, current_device
from engine.models.loading import LoadedModel
from engine.parallel.board import RankTimes
from engine.parallel.group import Ranked
from engine.parallel.ranks import Ranks
from engine.runner.attention_watch import Watch
from engine.runner.host_blocks import HostBlocks, PinnedBlocks, PlainBlocks
from engine.runner.launched_step import Clock, LaunchedStep, Sampled, to_device
from engine.runner.prompt_scores import scored
from engine.runner.sampling.adjustments import masks_of
from engine.runner.sampling.sampler import Greedy, Sampler
from engine.runner.state_pool import StatePool
from engine.scheduler.plan import Row, StepPlan
from engine.scheduler.request import Branch
from engine.trace.records import Kernels

if TYPE_CHECKING:  # its kernels need Triton, which a CPU's path leaves alone
    from engine.kernels.cpu.large_pages import Populating
    from engine.runner.sampling.gpu_sampler import DeviceSampler


@dataclass(slots=True)
class Inputs:
    """A step laid out: `compute` does what there is to compute for the `sampling` rows, in their order.

    `slots` and `drawn_at` int32 `[tokens drawn]` are their rows' slots and their positions, where the device has them
    already. `graph` is the size of the graph that `compute` replays. `overlaps`: it calls the runner's `meanwhile`.
    `watch` is told what drawn tokens attend to.
    """

    sampling: list[Row]
    compute: Callable[[Timer | None], Computed]
    slots: Tensor | None = None
    drawn_at: Tensor | None = None
    graph: int = 0
    overlaps: bool = False
    watch: Watch | None = None


class Computed(NamedTuple):
    """The logits `[tokens drawn or more, vocabulary]`, one after another of the sampling rows, these first.

    After them come, of a plan that has any, those of the `scored` positions, which is then no replayed step.

    `greedy` tells the tokens that would be chosen greedily and their log-probabilities, where that is known by then;
    `drawn` int32 `[2, tokens drawn or more]` are tokens and their log-probabilities, where the step itself has sampled.
    """

    logits: Tensor
    greedy: Greedy | None = None
    drawn: Tensor | None = None


def nothing() -> None:
    """For a step beside which there is nothing to do."""


class Runner(ABC):
    """One model and its KV cache. A sampled token is also kept on the device by slot, so that the next step can be
    launched before it is read.

    `graphs` are the numbers of rows for which decode steps are captured, as CUDA graphs or, on a CPU, as one program
    for all of them; `graphs_off` says why there are none; empty where there are, or where there could not be any.
    `mixed_graphs` and `mixed_off` likewise, of the numbers of tokens for which steps with prompts are captured.
    `recorded_bytes`: what such a program computes in; `kernels`: what it spends time in, None without one.
    `host_blocks`: where blocks of preempted requests and of offloaded prefixes are copied to. `populating`: the thread
    that takes the cache's memory from the system, on a CPU. `overlaps`: it has something done on the launching thread
    while other threads compute, or other ranks read their plan. `watches`: it tells what tokens attend to of requests
    that ask for it. `draws`: it samples, as no other rank of a split model does. `states`: those of layers that keep
    one, by slot; None of models without such layers.
    """

    def __init__(self, model: LoadedModel, config: EngineConfig) -> None:
        self.model = model
        self.k_caches: list[Tensor] = []  # by layer, `[blocks, ...]`; none where the cache has no blocks
        self.v_caches: list[Tensor] = []
        self.graphs: tuple[int, ...] = ()
        self.graphs_off = ""
        self.mixed_graphs: tuple[int, ...] = ()
        self.mixed_off = ""
        self.recorded_bytes = 0
        self.kernels: Kernels | None = None
        self.host_blocks: HostBlocks | None = None
        self.populating: Populating | None = None
        self.overlaps, self.watches = False, model.group is None
        self._meanwhile: Callable[[], None] = nothing
        self._device = model.device
        kept = model.states
        self.states = None if kept is None else StatePool(kept, config.slots, self._device)
        self._last_token = torch.zeros(config.max_running + 1, dtype=torch.long, device=self._device)
        self._owners: list[Branch | None] = [None] * config.max_running
        self._sampler: Sampler | DeviceSampler  # where it draws
        self.draws = model.group is None or model.group.rank == 0
        self._routing = model.routing if self.draws else None
        if not self.draws:
            return
        if on_gpu_path(model.device):
            from engine.runner.sampling.gpu_sampler import DeviceSampler

            self._sampler = DeviceSampler(config.max_running, model.card.vocabulary, self._device)
        else:
            self._sampler = Sampler(config.max_running, model.card.vocabulary, self._device)

    def capture(self, report: Callable[[int, int], None]) -> None:  # noqa: B027
        """Captures what is replayed later; `report` hears how many captures are done, of how many. May raise what
        `report` raises."""

    def reset(self) -> None:
        """Forgets what it knows of slots: after a step that failed, and before other branches come. The cache's content
        stays."""
        self._owners = [None] * len(self._owners)

    def forget_drawn(self) -> None:  # noqa: B027
        """Takes the tokens drawn so far from the device for none but `fed` rows: branches went on with others."""

    @property
    def block_caches(self) -> list[Tensor]:
        """All that is kept a block of the pool, each `[blocks, ...]`: what is K and V at once, once."""
        return list({id(cache): cache for cache in (*self.k_caches, *self.v_caches)}.values())

    def keep_host_blocks(self, count: int) -> None:
        """Takes host memory for so many blocks."""
        if self.model.ranks is not None:
            self.model.ranks.keep_host_blocks(count)
        kind = PinnedBlocks if on_gpu_path(self._device) else PlainBlocks
        self.host_blocks = kind(self.block_caches, count)

    def _swap(self, plan: StepPlan) -> None:
        """Blocks go to host memory before any that come back: these may lie where those lay."""
        if self.host_blocks is not None:
            if plan.swap_out:
                self.host_blocks.out(plan.swap_out)
            if plan.swap_in:
                self.host_blocks.back(plan.swap_in)

    def _watched(self, rows: Sequence[Row]) -> bool:
        """Whether what some of the drawn tokens attend to is to be told."""
        return self.watches and True in [row.branch.request.watched for row in rows]

    @abstractmethod
    def _prepare(self, plan: StepPlan) -> Inputs:
        """Lays out the step's rows, and the cache for them."""

    def launch(self, plan: StepPlan, meanwhile: Callable[[], None] = nothing) -> LaunchedStep:
        """Starts a step; returns before the device is done (on a CPU, when it is). `meanwhile` is called while it
        computes, on a CPU without compiled kernels or with other ranks before; it must not raise."""
        begun, self._meanwhile = Clock(), meanwhile
        launched, on_gpu = LaunchedStep(plan, begun), self._device.type == "cuda"
        ranks, group = self.model.ranks, self.model.group
        if ranks is None or group is None:
            self._launch(launched, on_gpu)
            return launched
        launched.number = ranks.step(plan, self.there if on_gpu_path(self._device) else None)
        if not on_gpu:  # the others read the plan meanwhile
            meanwhile()
            self._meanwhile = nothing
        group.begin(launched.number)
        try:
            self._launch(launched, on_gpu)
        except Exception as error:
            if group.within:  # where the others are in it, nobody can say
                raise ranks.leave(error) from error
            raise
        launched.times, launched.check = partial(_rank_times, ranks, group), partial(_check_ranks, ranks, group)
        return launched

    def there(self, row: Row) -> bool:
        """Whether a row's last token is on the device, and other ranks need not be sent it."""
        return row.fed

    def _launch(self, launched: LaunchedStep, on_gpu: bool) -> None:
        plan, begun = launched.plan, launched.started
        with torch.inference_mode(), current_device(self._device):
            moves = bool(plan.swap_out or plan.swap_in or plan.copies)
            if on_gpu and moves:
                launched.mark()
            if plan.swap_out or plan.swap_in:
                self._swap(plan)
                launched.swapping = Clock() - begun
            inputs = self._prepare(plan)
            branches, previous, masks = [row.branch for row in drawn_rows(inputs.sampling)], None, None
            if True in [branch.ruled for branch in branches]:
                previous = self._sampler.adjust.previous(branches, self._last_token)
                masks = masks_of(branches, self.model.card.vocabulary)  # found meanwhile
            timer = None if on_gpu else Timer()
            if not (inputs.overlaps or on_gpu):
                self._meanwhile()
            prepared = Clock()
            if on_gpu and not moves:
                launched.mark()
            if (routing := self._routing) is not None:  # what fills a graph up is no token of the step
                routing.begin(sum(row.count for row in plan.rows) if inputs.graph else None)
            try:
                computed = inputs.compute(timer)
                if plan.scored:
                    at = len(branches)
                    launched.keep_scores(scored(computed.logits[at:], plan.scored, self._tensor))
                    computed = computed._replace(logits=computed.logits[:at])
            except BaseException:
                if masks is not None:
                    masks.leave()
                raise
            forwarded, meanwhile, self._meanwhile = Clock(), self._meanwhile, nothing
            if self.model.group is not None:
                self.model.group.end()
            if timer is not None:
                launched.attention, launched.kernels = timer.seconds, timer.kernels
            if routing is not None:
                launched.keep_routing(routing.counts)
            if inputs.watch is not None:
                launched.keep_attention(inputs.watch.told())
            launched.graph = inputs.graph
            self._begin(plan.rows)
            if inputs.sampling:
                launched.keep(self._sample(computed, inputs, branches, previous, masks))
            if on_gpu:
                launched.mark()
        done = Clock()
        launched.seconds = {"prepare": prepared - begun, "forward": forwarded - prepared, "sample": done - forwarded}
        if on_gpu:  # which has its work by now
            meanwhile()

    def follow(self, plan: StepPlan) -> None:
        """The same step on another rank, which draws no tokens."""
        with torch.inference_mode(), current_device(self._device):
            if plan.swap_out or plan.swap_in:
                self._swap(plan)
            self._prepare(plan).compute(None)

    def _logits(self, ids: Tensor, positions: Tensor, keep: Tensor | int, batch: Batch, timer: Timer | None) -> Tensor:
        """The model's logits `[kept tokens, vocabulary]`, each token's by its adapter, where `_adapt` was told of any.
        `ids` and `positions` are `[sequences, tokens]`; `keep` are the indices of the tokens whose logits are wanted,
        or how many at the end of each sequence (0: all)."""
        states = self.model.states
        with nullcontext() if states is None else states.of(getattr(batch, "states", None)):
            out = self.model.module(
                input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=keep, batch=batch, timer=timer
            )
        return out.logits.flatten(0, 1)

    def _adapt(self, ids: Tensor | None) -> None:
        """The tokens that are computed next go through these adapters, int64 `[tokens]` as `Adapters.ids`."""
        if self.model.adapters is not None:
            self.model.adapters.ids = ids

    def _begin(self, rows: Sequence[Row]) -> None:
        """Tells the sampler of the branches that are new in their slot."""
        new = [row.branch for row in rows if self._owners[row.slot] is not row.branch]
        for branch in new:
            self._owners[branch.slot] = branch
            self._sampler.begin(branch)
        if new and not isinstance(self._sampler, Sampler):
            from engine.runner.sampling.gpu_sampler import parameter_words

            words = [word for branch in new for word in parameter_words(branch)]
            there = self._tensor(words, torch.int32).view(len(new), -1)
            self._sampler.parameters.index_copy_(0, self._tensor([branch.slot for branch in new]), there)

    def _sample(
        self, computed: Computed, inputs: Inputs, branches: list[Branch], previous: Tensor | None, masks: Masks | None
    ) -> Sampled:
        """`branches`: that of each token drawn."""
        logits, greedy, drawn = computed
        if isinstance(self._sampler, Sampler):
            sampled = self._sampler(logits, branches, positions_drawn(inputs.sampling), greedy, previous, masks)
            self._last_token.numpy()[[branch.slot for branch in branches]] = sampled.tokens.numpy()
            return sampled
        if drawn is not None:
            return self._sampler.told(logits, drawn, branches, self._last_token, previous, masks)
        slots, positions = inputs.slots, inputs.drawn_at
        if slots is None or positions is None:
            slots = self._tensor([branch.slot for branch in branches], torch.int32)
            positions = self._tensor(positions_drawn(inputs.sampling), torch.int32)
        return self._sampler(logits, slots, positions, branches, self._last_token, previous, masks)

    def _copy_blocks(self, copies: Sequence[tuple[int, int]], *caches: Tensor) -> None:
        """Copy-on-write: each pair's second block gets what the first one holds, in every layer."""
        if copies:
            sources, targets = (self._tensor(blocks) for blocks in zip(*copies, strict=True))
            for cache in caches:
                cache[targets] = cache[sources]

    def _token_ids(self, ids: Sequence[int], fed: Sequence[tuple[int, int]]) -> Tensor:
        """The ids on the device; `fed` are places among them and the slots whose last tokens belong there: they were
        sampled but not read yet."""
        token_ids = self._tensor(ids)
        if fed:
            places, slots = zip(*fed, strict=True)
            token_ids[self._tensor(places)] = self._last_token[self._tensor(slots)]
        return token_ids

    def _tensor(self, values: Sequence[int], dtype: torch.dtype = torch.long) -> Tensor:
        return to_device(values, self._device, dtype)


def _rank_times(ranks: Ranks, group: Ranked, step: int) -> RankTimes | None:
    """What a step that is over took each rank."""
    group.settle(step)
    return ranks.times(step)


def _check_ranks(ranks: Ranks, group: Ranked) -> None:
    """Raises RankLost where what the device brings was not computed by all."""
    try:
        group.check()
    except RuntimeError as error:
        raise ranks.lost(error) from error


def each_adapter(rows: Sequence[Row]) -> list[int]:
    """Of each token that is computed the number of its adapter, 0 for none."""
    return [row.branch.adapter for row in rows for _ in range(row.count)]


def single(rows: Sequence[Row]) -> bool:
    """Whether each draws one token."""
    return [row.samples for row in rows].count(1) == len(rows)


def drawn_rows(sampling: Sequence[Row]) -> Sequence[Row]:
    """The row of each token that is drawn: rows whose drafts are verified come several times."""
    if single(sampling):
        return sampling
    return [row for row in sampling for _ in range(row.samples)]


def positions_drawn(sampling: Sequence[Row]) -> list[int]:
    """The position of each."""
    if single(sampling):
        return [row.first + row.count for row in sampling]
    return [at for row in sampling for at in row.drawn_at]


def on_gpu_path(device: torch.device) -> bool:
    """True on a GPU, and with Triton's interpreter on: then the GPU's kernels run on CPU tensors, so that its path is
    tested without one."""
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
