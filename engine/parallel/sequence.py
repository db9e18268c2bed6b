"""Sequence parallelism: between its blocks a layer computes a rank's share of the rows, not all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.config.specs import InvalidInput
from engine.parallel.group import Group
from engine.parallel.layers import Summed

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 5e-3}  # of logits, relative to the largest


class Rows:
    """Of the forward that is under way: how many rows all ranks have together."""

    def __init__(self) -> None:
        self.count = 0


class Shared(nn.Module):
    """An embedding of which each rank looks up its share of the rows."""

    def __init__(self, part: nn.Module, group: Group, rows: Rows) -> None:
        super().__init__()
        self.part, self.group, self.rows = part, group, rows

    @property
    def weight(self) -> Tensor:
        found: Tensor = self.part.weight  # type: ignore[assignment]
        return found

    def forward(self, ids: Tensor) -> Tensor:
        self.rows.count = ids.shape[1]
        found: Tensor = self.part(self.group.share(ids))
        return found


class Block(nn.Module):
    """Attention or MLP of a layer: it is given a share of the rows and computes a part of what comes of all; of the sum
    over the ranks it gives back the share."""

    def __init__(self, part: nn.Module, group: Group, rows: Rows) -> None:
        super().__init__()
        self.part, self.group, self.rows = part, group, rows

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = self.group.rows(args[0], self.rows.count), *args[1:]
        else:
            kwargs["hidden_states"] = self.group.rows(kwargs["hidden_states"], self.rows.count)
        out = self.part(*args, **kwargs)
        if isinstance(out, tuple):
            return self.group.sum_share(out[0]), *out[1:]
        return self.group.sum_share(out)


class Together(nn.Module):
    """The last norm, after which the ranks' shares come together."""

    def __init__(self, part: nn.Module, group: Group, rows: Rows) -> None:
        super().__init__()
        self.part, self.group, self.rows = part, group, rows

    def forward(self, x: Tensor) -> Tensor:
        return self.group.rows(self.part(x), self.rows.count)


def share_rows(module: PreTrainedModel, group: Group, logits: Callable[[], Tensor]) -> None:
    """Has a module whose ranks `meet` share rows between its blocks. `logits` are those of a short prompt: where they
    are not as before, or the module is not made of such blocks, raises InvalidInput on all ranks. They are the same to
    the bit where norms are our kernels; torch's may round a few rows another way than many."""
    kind = module.config.get_text_config().model_type
    refusal = f"sequence_parallel=True: model type {kind!r} cannot share its rows"
    before, rows = logits(), Rows()
    _divide(module, group, rows, refusal)
    try:
        after = logits()
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:  # a model's own code, misled
        raise InvalidInput(f"{refusal}: {str(error).splitlines()[0][:200]}; use tensor_parallel alone") from error
    off = (after - before).abs().max() / before.abs().max() if after.shape == before.shape else torch.inf
    if not group.largest(float(off), module.device) <= TOLERANCE[module.dtype]:
        raise InvalidInput(f"{refusal}: so computed, its logits differ; use tensor_parallel alone")


def _divide(module: PreTrainedModel, group: Group, rows: Rows, refusal: str) -> None:
    met = {name: part for name, part in module.named_modules() if isinstance(part, Summed)}
    blocks = Counter(_block_of(name) for name in met)
    if "" in blocks:
        raise InvalidInput(f"{refusal}: its layers have no blocks of their own; use tensor_parallel alone")
    several = [name for name, count in blocks.items() if count > 1]
    if several:
        what = several[0].rpartition(".")[2]
        raise InvalidInput(
            f"{refusal}: its {what!r} adds up the ranks' parts more than once; use tensor_parallel alone"
        )
    layers = module.get_submodule(next(iter(blocks)).rpartition(".")[0].rpartition(".")[0])
    body = next((part for part in module.modules() if layers in part.children()), None)
    if not isinstance(getattr(body, "norm", None), nn.Module) or len(layers) * 2 != len(blocks):
        raise InvalidInput(f"{refusal}: it is no row of alike layers with a norm at the end; use tensor_parallel alone")
    assert body is not None
    for name, part in met.items():
        module.set_submodule(name, part.part)
    for name in blocks:
        module.set_submodule(name, Block(module.get_submodule(name), group, rows))
    body.norm = Together(body.norm, group, rows)
    module.set_input_embeddings(Shared(module.get_input_embeddings(), group, rows))


def _block_of(name: str) -> str:
    """Of a meeting place: "model.layers.3.mlp" of "model.layers.3.mlp.down_proj"; "" where it is in none."""
    parts = name.split(".")
    at = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts))
    return ".".join(parts[: at + 2]) if at + 2 < len(parts) else ""
