"""Fuses the small operations of a loaded model: norms, the gates of its MLPs, rotary embeddings, each one launch; and
joins the products of one input.

It knows no model's name. Every distinct part is proved by itself on random inputs, then the whole model on a short
prompt; what is not proved stays as transformers computes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.models.attention import Options
from engine.models.fusion.gated_products import gated_mlps
from engine.models.fusion.kernels import kernels_for
from engine.models.fusion.kinds import fuse_part
from engine.models.fusion.parts import FusedPart, LeftAlone, Setting
from engine.models.fusion.placing import PutOff, put_off
from engine.models.fusion.products import alone, join, joinable
from engine.models.fusion.residuals import fused_layers

PROMPT = 8  # tokens of the whole model's proof
# Root mean square of a token's logits' difference, relative, its median over the tokens: one that a mixture of experts
# sends elsewhere at a tie differs a lot and proves nothing. A wrong rotation or norm gives about 1.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
UNUSED = "it is not called with what it was proved for"


@dataclass(slots=True)
class Fusion:
    """What was fused: the number of parts by the name of their class and of the kernel. `left`: those that look as if
    they could have been, with why they were not. `undone`: why the whole model was put back as it was."""

    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    undone: str = ""
    _swapped: list[tuple[nn.Module, FusedPart]] = field(default_factory=list)

    @property
    def fused(self) -> Counter[tuple[str, str]]:
        return Counter((fused.cls.__name__, fused.kernel) for _, fused in self._swapped)

    @property
    def text(self) -> str:
        """One line for a log."""
        done = ", ".join(f"{kernel} of {count} {name}" for (name, kernel), count in self.fused.items()) or "nothing"
        left = "".join(f"; {count} {name} left as they are: {why}" for (name, why), count in self.left.items())
        return f"fused: {done}{left}" + (f"; all put back: {self.undone}" if self.undone else "")

    def undo(self) -> None:
        """Puts every part back as it was."""
        for part, fused in reversed(self._swapped):  # some were swapped twice
            part.__class__ = fused.own
        self._swapped.clear()

    def swap(self, part: nn.Module, fused: FusedPart) -> None:
        self._swapped.append((part, fused))
        part.__class__ = fused.cls

    def put_back_unused(self) -> None:
        """Puts back the parts whose kernel was not launched."""
        for part, fused in self._swapped:
            if not fused.use.served:
                part.__class__ = fused.own
                self.left[fused.own.__name__, UNUSED] += 1
        self._swapped = [(part, fused) for part, fused in self._swapped if fused.use.served]


class Causal:
    """Ordinary causal attention within one sequence: the whole model's proof needs no cache."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        return nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=options.scale, enable_gqa=True
        ).transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Placed(Causal):
    """The same over a paged cache of one block, to which a kernel brings keys and values."""

    setting: Setting

    def place(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options, later: PutOff) -> Tensor:
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        k_cache, v_cache = k.new_zeros(2, 1, len(k), *k.shape[1:])
        slots = torch.arange(len(k), device=k.device)
        assert self.setting.kernels.place_kv is not None
        q = self.setting.kernels.place_kv(q, k, v, (later.cos[0], later.sin[0]), later.norms, (k_cache, v_cache), slots)
        query, key, value = (x.transpose(0, 1)[None] for x in (q, k_cache[0], v_cache[0]))
        return self.attend(layer, query, key, value, options)


def fuse(module: PreTrainedModel) -> Fusion:
    """Fuses what can be proved of a model that our attention serves, in place. Other models of its classes are not
    touched, nor are gradients: where they are asked for, transformers' own code runs. Where no kernels of ours run,
    nothing is fused. Raises nothing of a proof."""
    setting = Setting(module.dtype, module.device)
    fusion = Fusion()
    if kernels_for(setting.device.type, setting.dtype) is None:
        return fusion
    with torch.inference_mode():
        try:
            before = short_logits(module)
            _swap_all(module, setting, fusion)
            if setting.kernels.on_gpu:
                _join_all(module, setting, fusion)
            if fusion.fused:
                fusion.undone = _difference(module, setting, before)
                fusion.put_back_unused()
        except Exception as error:  # a model's own code ran: whatever it raises, it runs unfused as before
            fusion.undone = f"the model's proof failed: {type(error).__name__}: {error}"[:300]
        if fusion.undone:
            fusion.undo()
        elif fusion.fused and setting.kernels.on_gpu:
            _swap_proved(list(fused_layers(module, setting)), module, setting, fusion, before)
            late = [found for part in module.modules() for found in put_off(part, setting)]
            _swap_proved(late, module, setting, fusion, before)
            _swap_proved(list(gated_mlps(module, setting)), module, setting, fusion, before)
    if setting.device.type == "cuda":
        torch.cuda.empty_cache()
    return fusion


def _swap_all(module: nn.Module, setting: Setting, fusion: Fusion) -> None:
    known: dict[Hashable, FusedPart | str | None] = {}
    for part in list(module.modules())[1:]:
        likeness = _likeness(part)
        if likeness not in known:
            try:
                known[likeness] = fuse_part(part, setting)
            except LeftAlone as why:
                known[likeness] = str(why)
        found = known[likeness]
        if isinstance(found, FusedPart):
            fusion.swap(part, found)
        elif found is not None:
            fusion.left[type(part).__name__, found] += 1


def _join_all(module: nn.Module, setting: Setting, fusion: Fusion) -> None:
    for look in (joinable, alone):
        for part in list(module.modules()):
            for linears in look(part, setting):
                try:
                    for linear, fused in zip(linears, join(linears, setting)):
                        fusion.swap(linear, fused)
                except LeftAlone as why:
                    fusion.left[type(part).__name__, str(why)] += 1


def _swap_proved(
    found: list[tuple[nn.Module, FusedPart]], module: PreTrainedModel, setting: Setting, fusion: Fusion, before: Tensor
) -> None:
    """All of them or none, proved by the whole model."""
    for part, fused in found:
        part.__class__ = fused.cls
    try:
        why = _difference(module, setting, before) if found else ""
    except Exception as error:  # a model's own code
        why = f"the proof failed: {type(error).__name__}: {error}"[:300]
    for part, fused in found:
        part.__class__ = fused.own
        if why:
            fusion.left[fused.own.__name__, why] += 1
        else:
            fusion.swap(part, fused)


def _difference(module: PreTrainedModel, setting: Setting, before: Tensor) -> str:
    """How far the model's logits are from those before it was fused, where that is too far; else ""."""
    # NaN where either is not finite.
    difference = float(((short_logits(module, Placed(setting)) - before).norm(dim=-1) / before.norm(dim=-1)).median())
    near = difference <= TOLERANCE[setting.dtype]
    return "" if near else f"the model's logits differ by {difference:.2g} of their spread"


def _likeness(part: nn.Module) -> Hashable:
    """What parts share that one proof serves: class, settings, and the kinds of all that they are made of."""
    settings = frozenset(
        (name, value)
        for name, value in vars(part).items()
        if isinstance(value, (bool, int, float, str)) and name != "layer_idx"
    )
    made_of = tuple(type(child) for child in part.modules())
    held = tuple((tuple(weight.shape), weight.dtype) for weight in part.parameters())
    return type(part), settings, made_of, held, "forward" in vars(part)


def short_logits(module: PreTrainedModel, batch: Causal | None = None) -> Tensor:
    """The logits `[tokens, vocabulary]` of a short prompt, float32, each token's around zero."""
    vocabulary = int(module.config.get_text_config().vocab_size)
    ids = torch.randint(min(vocabulary, 1000), (1, PROMPT), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(PROMPT, device=module.device)[None]
    out = module(input_ids=ids.to(module.device), position_ids=positions, use_cache=False, batch=batch or Causal())
    logits = out.logits[0].float()
    return logits - logits.mean(-1, keepdim=True)
