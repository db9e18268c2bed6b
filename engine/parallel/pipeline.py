"""A stage's part of a model: the same module, of which the other stages' layers, embedding and head are taken out."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from engine.config.parallel import Parallel
from engine.config.specs import InvalidInput
from engine.parallel.altered_class import altered, plain_again
from engine.parallel.board import Board
from engine.parallel.channel import Channel, lane_bytes
from engine.parallel.group import Ranked
from engine.parallel.shards import Shard, stored_tensors
from engine.parallel.stages import Anatomy, Stage


@dataclass(slots=True)
class Passage:
    """What goes through a stage's module: what the stage before handed on, `[sequences, tokens, hidden]`, where that is
    there already, and what its last layer made of it."""

    arrived: Tensor | None = None
    leaving: Tensor | None = None


class Elsewhere(nn.Module):
    """In the place of a layer that another stage has. Models look at some plain values of their layers."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        plain = {k: v for k, v in vars(layer).items() if isinstance(v, (str, int, bool)) and k != "training"}
        vars(self).update(plain)

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        return x


class Arrives(Elsewhere):
    """In that of the layer before this stage's first."""

    def __init__(self, layer: nn.Module, passage: Passage) -> None:
        super().__init__(layer)
        self._passage = passage

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        arrived = self._passage.arrived
        return x if arrived is None else arrived


class Leaves(Elsewhere):
    """In that of the layer after this stage's last."""

    def __init__(self, layer: nn.Module, passage: Passage) -> None:
        super().__init__(layer)
        self._passage = passage

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        self._passage.leaving = x
        return x


class Blank(nn.Module):
    """In that of the embedding: noise `[..., width]` where nothing arrived, for what is proved of a model alone."""

    def __init__(self, width: int, passage: Passage) -> None:
        super().__init__()
        self.width, self._passage, self.dtype = width, passage, torch.float32

    def forward(self, ids: Tensor) -> Tensor:
        made = torch.empty(*ids.shape, self.width, dtype=self.dtype, device=ids.device)
        if self._passage.arrived is not None:
            return made
        noise = torch.randn(made.shape, generator=torch.Generator().manual_seed(0))
        return made.copy_(noise)


class Headless(nn.Module):
    """In that of the head."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Pipeline(Ranked):
    """The ranks of a model that each have some of its layers. `passage` is that of this one's module."""

    recordable = capturable = True  # messages are between a stage's programs

    def __init__(self, parallel: Parallel, board: Board, stage: Stage, name: str) -> None:
        super().__init__(board, stage.rank, name)
        self.stage, self.passage = stage, Passage()
        self.micro_batches = parallel.micro_batches or stage.ranks

    def begin(self, step: int) -> None:
        super().begin(step)
        self.board.waits(self.rank, 0)

    def end(self) -> None:
        super().end()
        if not self.stage.first:  # whoever hangs now is behind it
            self.board.waits(self.rank, time.monotonic())

    @property
    def words(self) -> str:
        """The setting that made it."""
        return self.stage.words


class SharedPipeline(Pipeline):
    """On the processors of one machine: they hand on in memory that they share, a `channel` that is there once a runner
    is, which may be made anew."""

    channel: Channel

    def __init__(self, parallel: Parallel, board: Board, stage: Stage) -> None:
        super().__init__(parallel, board, stage, "shared memory")
        self._patience = parallel.timeout

    def open(self, tokens: int, widest: int) -> Channel:
        """On rank 0, for steps of so many tokens, each of which has up to `widest` values."""
        self.channel = Channel(self.board, self.rank, lane_bytes(tokens, widest), self._patience)
        return self.channel

    def join(self, lane: int, descriptor: int) -> None:
        """On the others: the channel that rank 0 opened."""
        self.channel = Channel(self.board, self.rank, lane, self._patience, descriptor)
        self.channel.handed_on()

    def begin(self, step: int) -> None:
        super().begin(step)
        self.channel.begin(step)

    def end(self) -> None:
        super().end()
        if self.stage.first:
            self.channel.ended()

    def largest(self, value: float, device: torch.device) -> float:
        """Each stage decides alone: what it hands on is the same, however it computes it."""
        return value


def module_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """That of a config's architecture."""
    found: Any = AutoModelForCausalLM._model_mapping[type(config)]
    return found[0] if isinstance(found, tuple) else found


def anatomy_of(config: PreTrainedConfig) -> Anatomy:
    """Of a module as the config makes it. Raises InvalidInput for one whose layers cannot be told."""
    with torch.device("meta"):
        module = module_class(config)(copy.deepcopy(config))
    count = int(config.get_text_config().num_hidden_layers)
    lists = [
        name
        for name, part in module.named_modules()
        if isinstance(part, nn.ModuleList) and len(part) == count and name.count(".") <= 2
    ]
    names: dict[int, str] = {id(part): name for name, part in module.named_modules()}
    embedding, head = module.get_input_embeddings(), module.get_output_embeddings()
    if len(lists) != 1 or id(embedding) not in names or id(head) not in names:
        raise InvalidInput(
            f"pipeline_parallel: the layers of model type {config.model_type!r} are not one list between an embedding "
            "and a head, so stages cannot have some of them; use 1"
        )
    tied = f"{names[id(head)]}.weight" in module.all_tied_weights_keys
    return Anatomy(lists[0], count, names[id(embedding)], names[id(head)], tied)


def shortened(config: PreTrainedConfig) -> PreTrainedConfig:
    """The config of a stage's module: no two of its weights are one, since it has either the embedding or the head."""
    changed = copy.deepcopy(config)
    changed.tie_word_embeddings = changed.get_text_config().tie_word_embeddings = False
    return changed


def stage_class(cls: type[PreTrainedModel], stage: Stage, passage: Passage) -> type[PreTrainedModel]:
    """The architecture's class, whose modules have this stage's parts alone; `settle` makes them plain again."""
    return altered(cls, lambda module: cut(module, stage, passage))


def cut(module: PreTrainedModel, stage: Stage, passage: Passage) -> None:
    """Takes out of a whole module what other stages have."""
    anatomy = stage.anatomy
    layers: Any = module.get_submodule(anatomy.layers)
    embedding: Any = module.get_submodule(anatomy.embedding)
    for i, layer in enumerate(layers):
        if i == stage.begin - 1:
            layers[i] = Arrives(layer, passage)
        elif i == stage.end:
            layers[i] = Leaves(layer, passage)
        elif i not in stage.layers:
            layers[i] = Elsewhere(layer)
    if not stage.first:
        module.set_submodule(anatomy.embedding, Blank(int(embedding.weight.shape[1]), passage))
    if not stage.last:
        module.set_submodule(anatomy.head, Headless())


def settle(module: PreTrainedModel, stage: Stage) -> None:
    """After its weights are read: it is one of its architecture's class again, and its parts know its dtype."""
    plain_again(module)
    if not stage.first:
        blank: Any = module.get_submodule(stage.anatomy.embedding)
        blank.dtype = module.dtype


def read_stage(files: list[Path], stage: Stage, before: Callable[[str], None]) -> dict[str, Shard]:
    """The stage's tensors by the names that its module has for them; `before` hears which one is read and may raise."""
    return {
        held: Shard(stored, None, lambda name=name: before(name))  # type: ignore[misc]
        for name, stored in stored_tensors(files)
        for held in stage.held_as(name)
    }


def refuse_inseparable(module: PreTrainedModel, pipeline: Pipeline, kind: str) -> None:
    """Raises InvalidInput where a later stage computes with more than what the one before handed on: its embedding, of
    which it has none."""
    stage, passage = pipeline.stage, pipeline.passage
    if stage.first:
        return
    embedding: Any = module.get_submodule(stage.anatomy.embedding)
    there: Any = {"dtype": module.dtype, "device": module.device}
    passage.arrived = torch.full((1, 2, embedding.width), 1e-3, **there)
    forward = embedding.forward
    embedding.forward = lambda ids: torch.full((*ids.shape, embedding.width), torch.nan, **there)
    try:
        with torch.inference_mode():
            ids, positions = torch.zeros(1, 2, dtype=torch.long), torch.arange(2)[None]
            ids, positions = ids.to(module.device), positions.to(module.device)
            logits = module(input_ids=ids, position_ids=positions, use_cache=False, batch=Passed()).logits
    finally:
        embedding.forward, passage.arrived = forward, None
    made = logits if stage.last else passage.leaving
    if made is None or not made.isfinite().all():
        raise InvalidInput(
            f"{stage.words}: the layers of model type {kind!r} compute with more than what the layer before hands on, "
            "so they cannot be on several devices; use 1"
        )


class Passed:
    """A batch that attends to nothing: for what is not to depend on it."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Any) -> Tensor:
        return torch.zeros_like(query).transpose(1, 2).contiguous()
