"""Puts the adapters of a spec into a loaded model: read, checked against its layers, beside the products these are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from engine.checkpoints.adapters import WEIGHTS, AdapterInfo, Pair, inspect_adapter
from engine.checkpoints.tensor_part import Cut, TensorPart
from engine.config.specs import InvalidInput
from engine.kernels.cpu.adapters import MOST_LANES
from engine.models.adapters.adapted import Adapted, Adapters
from engine.models.fusion.products import INDEX, PRODUCT
from engine.models.latent import Absorbed
from engine.models.packed_linear import JoinedLinear, JoinedProduct, PackedLinear
from engine.models.states import KEEPS
from engine.parallel.pipeline import Pipeline

Layers = list[tuple[str, Any]]  # with their paths


@dataclass(frozen=True, slots=True)
class Held:
    """What this module holds of an adapter's pair for one of its layers: all of it, or, where the layer is a part of
    the checkpoint's, that `part` of B's rows (axis 0) or of A's columns (axis 1)."""

    pair: Pair
    part: TensorPart | None

    @property
    def size(self) -> tuple[int, int]:
        """Inputs and outputs."""
        whole = self.pair.outputs, self.pair.inputs
        outputs, inputs = whole if self.part is None else self.part.shape_of(whole)
        return inputs, outputs

    def of(self, tensor: Tensor, axis: int) -> Tensor:
        """B (axis 0) or A (axis 1), as far as it is held."""
        if self.part is None or self.part.axis != axis:
            return tensor
        return torch.cat([tensor.narrow(axis, begin, end - begin) for begin, end in self.part.ranges], axis)


def install(
    module: nn.Module, given: Sequence[str], dtype: torch.dtype, device: torch.device, cut: Cut | Pipeline | None = None
) -> Adapters:
    """Adapters as `ModelSpec.adapters` has them, held in `dtype`; with `cut`, this rank's part of them, or with heads
    repeated. Raises InvalidInput for what does not fit the model."""
    infos = [inspect_adapter(each) for each in given]
    adapters = Adapters(tuple(info.name for info in infos), tuple(info.rank for info in infos))
    held = [_held(info, cut) for info in infos]
    for info, own in zip(infos, held, strict=True):
        _check(module, info, own)
    files = [safe_open(info.folder / WEIGHTS, "pt") for info in infos]
    for layers, put in _products(module, {path for own in held for path in own}):
        rank = max(own[path].pair.rank for own in held for path, _ in layers if path in own)
        if rank * len(layers) > MOST_LANES:
            highest = next(
                info.name for info, own in zip(infos, held) for path, _ in layers if _rank(own, path) == rank
            )
            names = ", ".join(path.rpartition(".")[2] for path, _ in layers)
            most = MOST_LANES // len(layers)
            raise InvalidInput(f"adapter {highest}: of {names} its rank is {rank:,}; {most:,} at most are computed")
        widths = [int(layer.out_features) for _, layer in layers]
        down = torch.zeros(len(infos), rank * len(layers), int(layers[0][1].in_features))
        up = torch.zeros(len(infos), sum(widths), rank)
        for number, (info, own, file) in enumerate(zip(infos, held, files, strict=True)):
            for place, (path, _) in enumerate(layers):
                if (mine := own.get(path)) is not None:
                    pair = mine.pair
                    a, b = (mine.of(_tensor(info, file, path, letter), axis) for axis, letter in ((1, "A"), (0, "B")))
                    down[number, place * rank : place * rank + pair.rank] = a
                    begin = sum(widths[:place])
                    up[number, begin : begin + widths[place], : pair.rank] = b * pair.scale
        down, up = (x.to(dtype=dtype).to(device) for x in (down, up))
        for info, *both in zip(infos, down, up, strict=True):
            if not all(bool(x.isfinite().all()) for x in both):
                where = f"{layers[0][0]} has values, times its scale, that {dtype} cannot hold"
                raise InvalidInput(f"adapter {info.name}: {where}; use another precision, or train it again")
        put(Adapted(adapters, down, up, widths))
    return adapters


def _rank(own: dict[str, Held], path: str) -> int:
    return own[path].pair.rank if path in own else 0


def _held(info: AdapterInfo, cut: Cut | Pipeline | None) -> dict[str, Held]:
    """By the path of its layer what of an adapter this module has."""
    if isinstance(cut, Pipeline):
        stage, names = cut.stage, {path: f"{path}.weight" for path in info.pairs}
        own = {  # what no stage has is no layer of the model
            path
            for path, name in names.items()
            if stage.held_as(name) or stage.anatomy.layer_of(name) >= stage.anatomy.count
        }
        return {path: Held(info.pairs[path], None) for path in own}
    return {
        path: Held(pair, None if cut is None else cut.part(f"{path}.weight", (pair.outputs, pair.inputs)))
        for path, pair in info.pairs.items()
    }


def _check(module: nn.Module, info: AdapterInfo, own: dict[str, Held]) -> None:
    embeddings = {id(part) for part in (module.get_output_embeddings(), module.get_input_embeddings())}  # type: ignore[operator]
    made_for = f"; it was made for {info.base}" if info.base else ""
    stateful = tuple(f"{name}." for name, part in module.named_modules() if vars(part).get(KEEPS))
    for path, held in own.items():
        try:
            layer: Any = module.get_submodule(path)
        except AttributeError:
            raise InvalidInput(f"adapter {info.name}: the model has no layer {path}{made_for}") from None
        if id(layer) in embeddings:
            raise InvalidInput(
                f"adapter {info.name}: {path} is the output layer or the embedding, which stays as it is"
            )
        if path.startswith(stateful):
            raise InvalidInput(
                f"adapter {info.name}: it changes {path}, of a layer that keeps a state, which stays as it is"
            )
        if isinstance(layer, Absorbed):
            raise InvalidInput(
                f"adapter {info.name}: it changes {path}, which makes keys and values of latents, and those are kept "
                "as they are: use kv_heads=all"
            )
        size = getattr(layer, "in_features", None), getattr(layer, "out_features", None)
        if size != held.size:
            has = "is no linear layer" if None in size else f"is of {size[0]} by {size[1]}"
            raise InvalidInput(
                f"adapter {info.name}: it is of {held.size[0]} by {held.size[1]} at {path}, which {has} here{made_for}"
            )


def _tensor(info: AdapterInfo, file: Any, path: str, letter: str) -> Tensor:
    pair = info.pairs[path]
    found: Tensor = file.get_tensor(pair.a if letter == "A" else pair.b).float()
    if not found.isfinite().all():
        raise InvalidInput(f"adapter {info.name}: {letter} of {path} has values that are NaN or infinite")
    return found


def _products(module: nn.Module, paths: set[str]) -> list[tuple[Layers, Callable[[Adapted], None]]]:
    """The layers of these paths by the product that they are part of, all of its layers with it, and what puts
    something beside that."""
    joined: dict[JoinedProduct, list[tuple[str, Any]]] = {}
    found: list[tuple[Layers, Callable[[Adapted], None]]] = []
    for path, part in module.named_modules():
        product = part.product if isinstance(part, JoinedLinear) else getattr(type(part), PRODUCT, None)
        if product is not None:
            joined.setdefault(product, []).append((path, part))
        elif path in paths:
            found.append(([(path, part)], _putter(part)))
    for product, layers in joined.items():
        if not paths.isdisjoint(path for path, _ in layers):
            layers.sort(key=lambda one: int(getattr(one[1], "index", getattr(type(one[1]), INDEX, 0))))
            found.append((layers, partial(setattr, product, "adapted")))
    return found


def _putter(part: Any) -> Callable[[Adapted], None]:
    """Of a layer that is no part of a joined product."""
    if isinstance(part, PackedLinear):
        return partial(setattr, part, "adapted")

    def put(adapted: Adapted) -> None:
        own = type(part)

        def forward(self: nn.Module, x: Tensor) -> Tensor:
            return adapted.add(own.forward(self, x), x)

        part.__class__ = type(own.__name__, (own,), {"forward": forward, "__module__": own.__module__})

    return put
