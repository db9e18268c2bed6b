"""An engine put together: once a load the model and what is measured for it, once a config what steps and plans."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.config.specs import EngineConfig, ModelSpec
from engine.core import machine
from engine.core.prefill.handle import PrefillWorker
from engine.core.setup.card import card_of
from engine.core.setup.drafts import Drafts
from engine.core.setup.kv_budget import rank_token_bytes
from engine.core.setup.memory_breakdown import bill_of
from engine.core.setup.refusals import refuse_for_states, refuse_narrow, refuse_undivided
from engine.core.setup.roof import roof_of
from engine.core.setup.run_machine import machine_of
from engine.core.setup.runner_factory import PreparedRunner, RunnerFactory
from engine.core.setup.thread_choice import fastest_threads
from engine.decoding.constraints import Grammars
from engine.memory.allocator import keep_freed_memory
from engine.models.loading import LoadedModel, Report, load
from engine.models.weights import Reporter
from engine.parallel.group import Group
from engine.parallel.interconnect import measure_interconnect
from engine.runner.runner import on_gpu_path
from engine.scheduler.ngram_drafter import NgramDrafter
from engine.scheduler.scheduler import Scheduler
from engine.trace.records import Header, Interconnect, MemoryBreakdown, ModelCard, Roof


@dataclass(frozen=True, slots=True)
class Assembled:
    """What an engine has under one config, its pool empty. `depth`: how many steps may be in flight while the next is
    planned; `draft`: the model that drafts; `roof`: that of as many threads as a step has."""

    config: EngineConfig
    prepared: PreparedRunner
    scheduler: Scheduler
    depth: int
    draft: ModelCard | None
    bill: MemoryBreakdown
    roof: Roof | None


class Assembly:
    """Loads `spec`, on the thread on which the steps will run: each thread that computes has an OpenMP team of its own,
    and two teams on the same cores halve each other's speed. Its arguments are those of `Engine`."""

    def __init__(
        self,
        spec: ModelSpec | LoadedModel,
        progress: Report | None,
        cancelled: threading.Event | None,
        threads: int | None,
        most_threads: int | None,
    ) -> None:
        keep_freed_memory()
        most = threads or min(torch.get_num_threads(), most_threads or torch.get_num_threads())
        split = 1 if isinstance(spec, LoadedModel) else spec.parallel.ranks
        torch.set_num_threads(most if threads else max(1, most // split))
        self.model = model = spec if isinstance(spec, LoadedModel) else load(spec, progress, cancelled)
        if model.device.index is not None:
            torch.cuda.set_device(model.device)  # of this thread
        self.detokenizers = model.detokenizers
        self.grammars = Grammars(model.tokenizer, model.card.vocabulary, model.eos)
        self._runtime = max(0, machine.resident() - model.held_bytes)
        self._threads, self._threads_why = torch.get_num_threads(), "" if threads is None else "as asked"
        if model.devices > 1:
            self._threads_why = f"each of {model.devices} ranks" if threads is None else "as asked, on each rank"
        elif threads is None and model.device.type == "cpu":
            self._threads, self._threads_why = fastest_threads(model, self.detokenizers)
        say = Reporter(progress, cancelled)
        say("measuring this machine")
        self.roof = roof_of(model, self._threads)
        self._interconnect = _interconnect(model)
        self._drafts, self._make_runner = Drafts(model), RunnerFactory(model, self.detokenizers, self.roof)
        self._prepared: PreparedRunner | None = None

    def serves(self, config: EngineConfig) -> bool:
        """Whether the runner there is serves under `config` too; otherwise nobody else may keep it."""
        return self._prepared is not None and self._prepared.serves(config)

    def __call__(self, config: EngineConfig, say: Reporter | None = None) -> Assembled:
        """An empty pool and a scheduler, over a runner that is warmed up. Raises InvalidInput for a config that does
        not fit, and DeviceLost."""
        say = say or Reporter(None, None)
        asked = self._drafts.asked(config)
        alone = self.model.devices == 1
        if not alone:
            refuse_undivided(config, on_gpu_path(self.model.device))
        refuse_narrow(config, self.model.card.windows)
        refuse_for_states(config, self.model.card.state_layers)
        ahead = int(self.model.device.type == "cuda" and config.speculation is None and alone)
        if not self.serves(config):
            self._let_go()  # the old cache is given back before a draft is loaded, or the new one is made
        roof = self.roof
        if self.model.device.type == "cpu" and (threads := self._threads_of(config)) != torch.get_num_threads():
            torch.set_num_threads(threads)
        if config.disaggregated and self._threads > 1:
            roof = roof_of(self.model, torch.get_num_threads())
        draft = self._drafts(asked, say)
        prepared = self._prepared = self._prepared or self._make_runner(config, say, draft)
        card = draft.card_with(config.kv_dtype) if draft is not None else None
        bill = self._bill(config, prepared, card)
        prepared.warm_up(config.token_budget)
        drafter = NgramDrafter() if config.speculation == "ngram" else prepared.draft
        depth = config.depth if config.depth is not None else ahead
        return Assembled(config, prepared, prepared.scheduler(config, drafter), depth, card, bill, roof)

    def close(self) -> None:
        """Ends the other processes, where there are any."""
        self._let_go()
        self.model.close()

    def _let_go(self) -> None:
        if self._prepared is not None and self._prepared.worker is not None:
            self._prepared.worker.close()
        self._prepared = None

    def _bill(self, config: EngineConfig, prepared: PreparedRunner, draft: ModelCard | None) -> MemoryBreakdown:
        token_bytes = self.model.card_with(config.kv_dtype).kv_token_bytes + (draft.kv_token_bytes if draft else 0)
        if self.model.ranks is not None and self.model.device.type == "cuda":  # what rank 0's card has
            token_bytes = rank_token_bytes(self.model, config, draft)[0]
        pool = prepared.blocks * config.block_size * token_bytes
        drafts, states = draft.weight_bytes if draft else 0, self.model.card.states_of(config)
        worker = prepared.worker.weight_bytes if prepared.worker is not None else 0
        return bill_of(self.model, pool, prepared.activations, self._runtime, prepared.graphs, drafts, worker, states)

    def _ranks(
        self, config: EngineConfig, blocks: int, draft: ModelCard | None, worker: PrefillWorker | None
    ) -> dict[str, Any]:
        """What a header tells of them; rank 0 has a draft's keys and values too. A prefill worker is told as rank 1:
        it holds the whole model, and the blocks are the other's."""
        model = self.model
        if worker is not None:
            tokens = blocks * config.block_size * model.card_with(config.kv_dtype).kv_token_bytes
            return {
                "rank_devices": ("cpu", "cpu"),
                "rank_weights": (model.held_bytes, worker.weight_bytes),
                "rank_kv": (tokens, 0),
                "ranks_meet": "shared memory",
            }
        if model.ranks is None or model.group is None:
            return {}
        weights = (model.held_bytes, *model.ranks.weight_bytes)
        tokens, each = blocks * config.block_size, rank_token_bytes(model, config, draft)
        return {
            "rank_devices": model.ranks.devices,
            "rank_weights": weights,
            "rank_kv": tuple(tokens * kv for kv in each),
            "ranks_meet": model.group.name,
            "sequence_parallel": model.ranks.parallel.sequence,
            "expert_parallel": model.ranks.parallel.experts,
            "rank_layers": model.stage_layers,
            "micro_batches": model.ranks.parallel.micro_batches,
            "interconnect": self._interconnect,
        }

    def _threads_of(self, config: EngineConfig) -> int:
        """How many a step's computation has: of two processes each has half of them, or one."""
        return max(1, self._threads // (1 + config.disaggregated))

    def header(self, parts: Assembled) -> Header:
        """The first record of a trace that begins now."""
        why = "each of 2 processes" if parts.config.disaggregated else self._threads_why
        runner, ledger = parts.prepared.runner, parts.scheduler.ledger
        return Header(
            model=self.model.card_with(parts.config.kv_dtype),
            config=parts.config,
            machine=machine_of(self.model, self._threads_of(parts.config), why),
            versions=machine.versions(),
            created=time.time(),
            blocks=ledger.pool.total,
            depth=parts.depth,
            roof=parts.roof,
            bill=parts.bill,
            graphs=runner.graphs,
            graphs_off=runner.graphs_off,
            mixed_graphs=runner.mixed_graphs,
            mixed_off=runner.mixed_off,
            draft=parts.draft,
            host_blocks=ledger.host.total,
            swap_rate=parts.prepared.host.rate,
            kernels=runner.kernels,
            **self._ranks(parts.config, ledger.pool.total, parts.draft, parts.prepared.worker),
        )


def _interconnect(model: LoadedModel) -> Interconnect | None:
    """How fast the ranks exchange; None of one device, and of stages, which hand on once a micro-batch. Raises
    RankLost."""
    if model.ranks is None or not isinstance(model.group, Group):
        return None
    model.ranks.measure("interconnect")
    try:
        found = measure_interconnect(model.group, model.device, model.dtype)
    except Exception as error:
        raise model.ranks.lost(error) from error
    cards = [card_of(torch.device(device)) for device in model.ranks.devices[:2]]
    link = cards[0].linked_by(cards[1]) if cards[0] is not None and cards[1] is not None else ""
    return replace(found, way=link) if link else found
