"""Which part of a checkpoint a rank of a split model holds. No torch.

A rank's module is the same architecture made narrower: fewer heads, a narrower MLP. Of matrices that write to these it
has some rows, of those that read from them some columns, whose products are then summed over the ranks. What is told
here by a tensor's name is checked when it is read: its part must have the shape that the narrower module expects.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.checkpoints.awq_settings import COLUMNS
from engine.checkpoints.tensor_part import Ranges, TensorPart
from engine.config.parallel import check_dividing, shares
from engine.config.specs import InvalidInput

WRITES = frozenset("q_proj k_proj v_proj gate_proj up_proj c_fc fc1 w1 w3".split())
READS = frozenset("o_proj down_proj c_proj fc2 w2".split())  # their outputs are summed
JOINED = frozenset("qkv_proj gate_up_proj".split())  # several that write, one after another
EXPERTS = "experts"  # modules of whose outputs each rank has a part too
ONE_EXPERT = re.compile(rf"(?:^|\.){EXPERTS}\.(\d+)\.")  # in the name of a tensor that one of them has by itself
WIDTHS = "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "mlp_only_intermediate_size"
OF_EXPERTS = "moe_intermediate_size", "intermediate_size"  # the first that there is, of a mixture
PACKED = frozenset("qweight qzeros scales".split())  # what AWQ has of a layer
INTERLEAVED = ("gpt_oss",)  # model types whose experts hold the columns of gate and up in turn, [experts, in, out]


UNSPLIT, UNPARTED = "pipeline_parallel, which parts no layer", "expert_parallel, which parts no expert"


@dataclass(frozen=True, slots=True)
class Split:
    """A model of so many heads split over ranks: what one of them holds. `experts`: how many a layer has, of which each
    holds some whole; 0 where it holds a part of each."""

    rank: int
    ranks: int
    heads: int
    kv_heads: int
    head_dim: int
    kind: str
    experts: int = 0

    @property
    def words(self) -> str:
        """The setting that made it."""
        return f"tensor_parallel={self.ranks}" + (" with expert_parallel=True" if self.experts else "")

    @property
    def own_experts(self) -> tuple[int, int]:
        """Those that this rank holds whole, from the first to before the last."""
        return self._share(self.experts)

    def held_as(self, name: str) -> str | None:
        """What this rank's module calls a tensor of the checkpoint; None for one of another rank's experts."""
        found = ONE_EXPERT.search(name) if self.experts else None
        if found is None:
            return name
        (begin, end), number = self.own_experts, int(found[1])
        return f"{name[: found.start(1)]}{number - begin}{name[found.end(1) :]}" if begin <= number < end else None

    def part(self, name: str, shape: Sequence[int]) -> TensorPart | None:
        """Of the checkpoint's tensor of that name; None for all of it. Raises InvalidInput for a norm over all heads,
        which of a part of them would be another."""
        module, _, leaf = name.rpartition(".")
        owner = module.rpartition(".")[2]
        self._check_whole(owner, shape)
        if self.experts and (ONE_EXPERT.search(name) or owner == EXPERTS):
            return TensorPart(0, (self.own_experts,)) if owner == EXPERTS else None
        if leaf in PACKED:
            return self._packed(name, shape)
        if leaf not in ("weight", "bias"):
            return self._bare(name, shape)
        if owner in WRITES:
            return TensorPart(0, (self._share(shape[0]),))
        if owner in JOINED:
            return TensorPart(0, self._joined(owner, shape[0]))
        if owner in READS:
            if leaf == "bias":  # added once
                return TensorPart(zero=True) if self.rank else None
            return TensorPart(1, (self._share(shape[1]),))
        return None

    def _check_whole(self, owner: str, shape: Sequence[int]) -> None:
        together = {heads * self.head_dim for heads in (self.heads, self.kv_heads)} - {self.head_dim}
        if owner in ("q_norm", "k_norm") and len(shape) == 1 and shape[0] in together:
            raise InvalidInput(
                f"{self.words}: this model norms all its heads together ({owner}), so they cannot be split; use 1"
            )

    def _packed(self, name: str, shape: Sequence[int]) -> TensorPart | None:
        """Of a layer that AWQ packed: inputs, or groups of them, by outputs, or words of them."""
        module, _, leaf = name.rpartition(".")
        owner = module.rpartition(".")[2]
        if owner in READS:
            return self._groups(name, 0, shape)
        each = 1 if leaf == "scales" else COLUMNS
        outputs = shape[1] * each
        whole = (self._share(outputs),) if owner in WRITES else self._joined(owner, outputs) if owner in JOINED else ()
        if any(edge % each for both in whole for edge in both):
            raise InvalidInput(
                f"{self.words}: the {outputs:,} outputs of {module} are AWQ, {COLUMNS} of them in a number, which "
                f"{self.ranks} ranks do not divide; use 1, or {UNSPLIT}"
            )
        return TensorPart(1, tuple((begin // each, end // each) for begin, end in whole)) if whole else None

    def _groups(self, name: str, axis: int, shape: Sequence[int]) -> TensorPart:
        """Of inputs, or of groups of them that share a scale."""
        if shape[axis] % self.ranks:
            unless = f"{UNPARTED}, or {UNSPLIT}" if EXPERTS in name else f"1, or {UNSPLIT}"
            raise InvalidInput(
                f"{self.words}: the inputs of {name} share a scale in groups, and {self.ranks} ranks do not divide "
                f"their number, {shape[axis]:,}; use {unless}"
            )
        return TensorPart(axis, (self._share(shape[axis]),))

    def _bare(self, name: str, shape: Sequence[int]) -> TensorPart | None:
        """Parameters that are no layer's weight."""
        module, _, leaf = name.rpartition(".")
        owner = module.rpartition(".")[2]
        if leaf == "sinks":
            return TensorPart(0, (self._share(shape[0]),))
        if owner != EXPERTS or self.kind not in INTERLEAVED:
            return None
        match leaf:
            case "gate_up_proj" | "gate_up_proj_bias":
                return TensorPart(len(shape) - 1, (self._share(shape[-1]),))
            case "gate_up_proj_blocks" | "gate_up_proj_scales":  # as MXFP4 has them, [experts, outputs, groups ...]
                return TensorPart(1, (self._share(shape[1]),))
            case "down_proj_blocks" | "down_proj_scales":
                return self._groups(name, 2, shape)
            case "down_proj":
                return TensorPart(1, (self._share(shape[1]),))
            case "down_proj_bias":
                return TensorPart(zero=True) if self.rank else None
        return None

    def _share(self, count: int, begin: int = 0) -> tuple[int, int]:
        return shares(count, self.rank, self.ranks, begin)

    def _joined(self, owner: str, rows: int) -> Ranges:
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        widths = (q, kv, kv) if owner == "qkv_proj" else (rows // 2, rows // 2)
        begins = [sum(widths[:i]) for i in range(len(widths))]
        return tuple(self._share(width, begin) for width, begin in zip(widths, begins))


def widths_of(config: Mapping[str, Any]) -> dict[str, int]:
    """What of a config counts the columns of MLPs."""
    return {name: value for name in WIDTHS if isinstance(value := config.get(name), int) and value}


def narrowed_widths(config: Mapping[str, Any], experts: int) -> dict[str, int]:
    """Those of them of which each rank has a part: not the experts', where these are whole."""
    widths = widths_of(config)
    whole = next((name for name in OF_EXPERTS if name in widths), None) if experts else None
    return {name: width for name, width in widths.items() if name != whole}


def check_split(config: Mapping[str, Any], ranks: int, heads: int, kv_heads: int, experts: int = 0) -> None:
    """Raises InvalidInput where heads, widths or whole experts do not divide by the ranks."""
    counts = {"attention heads": heads, "key and value heads": kv_heads} | ({"experts": experts} if experts else {})
    widths = {
        name.replace("_size", " columns").replace("_", " "): n for name, n in narrowed_widths(config, experts).items()
    }
    check_dividing(ranks, counts | widths)
