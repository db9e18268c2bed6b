"""Puts the adapters of a spec into a loaded model: read, checked against its layers, beside the products these are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from engine.checkpoints.adapters import WEIGHTS, AdapterInfo, inspect_adapter
from engine.config.specs import InvalidInput
from engine.kernels.cpu.adapters import MOST_LANES
from engine.models.adapters.adapted import Adapted, Adapters
from engine.models.fusion.products import INDEX, PRODUCT
from engine.models.packed_linear import JoinedLinear, JoinedProduct, PackedLinear

Layers = list[tuple[str, Any]]  # with their paths


def install(module: nn.Module, given: Sequence[str], dtype: torch.dtype, device: torch.device) -> Adapters:
    """Adapters as `ModelSpec.adapters` has them, held in `dtype`. Raises InvalidInput for what does not fit the
    model."""
    infos = [inspect_adapter(each) for each in given]
    adapters = Adapters(tuple(info.name for info in infos), tuple(info.rank for info in infos))
    for info in infos:
        _check(module, info)
    files = [safe_open(info.folder / WEIGHTS, "pt") for info in infos]
    for layers, put in _products(module, {path for info in infos for path in info.pairs}):
        rank = max(info.pairs[path].rank for info in infos for path, _ in layers if path in info.pairs)
        if rank * len(layers) > MOST_LANES:
            raise InvalidInput(f"adapters: a rank of {rank} is too high; {MOST_LANES // 3} at most")
        widths = [int(layer.out_features) for _, layer in layers]
        down = torch.zeros(len(infos), rank * len(layers), int(layers[0][1].in_features))
        up = torch.zeros(len(infos), sum(widths), rank)
        for number, (info, file) in enumerate(zip(infos, files, strict=True)):
            for place, (path, _) in enumerate(layers):
                if (pair := info.pairs.get(path)) is not None:
                    a, b = (_tensor(info, file, path, letter) for letter in "AB")
                    down[number, place * rank : place * rank + pair.rank] = a
                    begin = sum(widths[:place])
                    up[number, begin : begin + widths[place], : pair.rank] = b * pair.scale
        down, up = (x.to(dtype=dtype).to(device) for x in (down, up))
        put(Adapted(adapters, down, up, widths))
    return adapters


def _check(module: nn.Module, info: AdapterInfo) -> None:
    embeddings = {id(part) for part in (module.get_output_embeddings(), module.get_input_embeddings())}  # type: ignore[operator]
    made_for = f"; it was made for {info.base}" if info.base else ""
    for path, pair in info.pairs.items():
        try:
            layer: Any = module.get_submodule(path)
        except AttributeError:
            raise InvalidInput(f"adapter {info.name}: the model has no layer {path}{made_for}") from None
        if id(layer) in embeddings:
            raise InvalidInput(
                f"adapter {info.name}: {path} is the output layer or the embedding, which stays as it is"
            )
        size = getattr(layer, "in_features", None), getattr(layer, "out_features", None)
        if size != (pair.inputs, pair.outputs):
            has = "is no linear layer" if None in size else f"is of {size[0]} by {size[1]}"
            raise InvalidInput(
                f"adapter {info.name}: it is of {pair.inputs} by {pair.outputs} at {path}, which {has} here{made_for}"
            )


def _tensor(info: AdapterInfo, file: Any, path: str, letter: str) -> Tensor:
    names = (f"base_model.model.{path}.lora_{letter}{middle}.weight" for middle in ("", ".default"))
    there = set(file.keys())
    found: Tensor = file.get_tensor(next(name for name in names if name in there)).float()
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
