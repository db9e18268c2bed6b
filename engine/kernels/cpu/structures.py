"""The structures of the compiled kernels: each is one of `native/`, named in the file that its kernel is in."""

from ctypes import CFUNCTYPE, c_float, c_int, c_long, c_void_p
from ctypes import Structure as CStructure
from typing import Any, ClassVar

from engine.kernels.products.coding import Coding


def _places(*names: str) -> list[tuple[str, type]]:
    return [(name, c_void_p) for name in names]


def _sizes(*names: str) -> list[tuple[str, type]]:
    return [(name, c_long) for name in names]


class Part(CStructure):
    _fields_ = [*_sizes("rows", "next", "done"), ("half", c_int), ("failed", c_int)]


class Structure(CStructure):
    """What one call of a kernel gets. `work` is the kernel's name, `writes` are the places that it writes to, the first
    of its fields after `part`; the other places are read."""

    work: ClassVar[str]
    writes: ClassVar[int] = 1
    part: Part

    @classmethod
    def places(cls) -> list[str]:
        """The names of what points to tensors, those that are written to first."""
        return [name for name, kind, *_ in cls._fields_ if kind is c_void_p]


class Attention(Structure):
    work = "decode_attention"
    _fields_ = [
        ("part", Part),
        *_places("out", "q", "k", "v", "tables", "starts", "lengths", "sinks"),
        *_sizes("kv_heads", "group", "head_dim", "block", "window"),
        *(("scale", c_float), ("softcap", c_float), ("kind", c_int)),
    ]


class Store(Structure):
    work, writes = "store_kv", 2
    _fields_ = [
        ("part", Part),
        *_places("k_cache", "v_cache", "k", "v", "blocks", "offsets"),
        *(*_sizes("kv_heads", "head_dim", "block", "k_stride", "v_stride"), ("kind", c_int)),
    ]


class Norm(Structure):
    work = "rms_norm"
    _fields_ = [
        *(("part", Part), *_places("out", "x", "weight")),
        *(*_sizes("width", "together", "x_stride"), ("eps", c_float), ("rounding", c_int)),
    ]


class Integers(Structure):
    work, writes = "to_integers", 2
    _fields_ = [
        *(("part", Part), *_places("out", "scales", "x")),
        *(*_sizes("width", "x_stride"), ("outliers", c_float)),
    ]


class Gate(Structure):
    work = "act_mul"
    _fields_ = [
        *(("part", Part), *_places("out", "gate", "up")),
        *(*_sizes("columns", "gate_stride", "up_stride"), ("tanh", c_int)),
    ]


class Rotation(Structure):
    work = "rotate"
    _fields_ = [
        *(("part", Part), *_places("out", "x", "cos", "sin")),
        *_sizes("heads", "tokens", "head_dim", "rest", "x_batch", "x_head", "x_token", "table_batch", "table_token"),
        *(("second", c_int), ("table_half", c_int), ("neighbours", c_int)),
    ]


class Angles(Structure):
    work, writes = "angles", 2
    _fields_ = [
        *(("part", Part), *_places("cos", "sin", "positions", "frequencies")),
        *(*_sizes("width"), ("scale", c_float), ("twice", c_int)),
    ]


class Greedy(Structure):
    work, writes = "greedy", 2
    _fields_ = [("part", Part), *_places("tokens", "logprobs", "logits"), *_sizes("vocabulary")]


class Allowed(Structure):
    work, writes = "allowed_choice", 5
    _fields_ = [
        *(("part", Part), *_places("tokens", "logprobs", "likeliest", "theirs", "refused", "logits", "rows", "bits")),
        *_sizes("vocabulary", "words", "choose"),
    ]


class Masked(Structure):
    work = "rule_out"
    _fields_ = [("part", Part), *_places("out", "x", "bits"), *_sizes("vocabulary", "words")]


class Draw(Structure):
    work = "draw"
    _fields_ = [
        *(("part", Part), *_places("tokens", "logits", "temperatures", "floors", "noises", "places", "bits")),
        *_sizes("vocabulary", "words"),
    ]


class Scales(CStructure):
    _fields_ = [*_places("steps", "table", "fine", "coarse", "first"), *_sizes("group")]


class Product(Structure):
    work = "product"
    _fields_ = [
        *(("part", Part), *_places("out", "x", "weight", "bias", "residual", "by"), ("scales", Scales)),
        *(*_sizes("columns", "depth", "x_stride", "out_stride", "residual_stride"), ("gate", c_int), ("coding", c_int)),
    ]

    @property
    def matrix(self) -> int:
        """How many weights it multiplies with."""
        return self.depth * self.columns

    @property
    def matrix_bytes(self) -> int:
        """Of these, scales included."""
        return _matrix_bytes(self)


def _matrix_bytes(call: Any) -> int:
    if not call.coding:
        return int(call.matrix) * (2 if call.part.half else 4)
    coding = Coding(call.coding)
    return int(call.matrix) * coding.bits // 8 + int(call.matrix) // call.scales.group * coding.scale_bytes


class Heads(Structure):
    work = "by_heads"
    _fields_ = [
        *(("part", Part), *_places("out", "x", "weight")),
        *_sizes("heads", "columns", "depth", "rest", "x_token", "x_head", "out_token", "out_head"),
    ]

    @property
    def matrix(self) -> int:
        """How many weights it multiplies with."""
        return int(self.heads * self.depth * self.columns)

    @property
    def matrix_bytes(self) -> int:
        return self.matrix * (2 if self.part.half else 4)


class Convolution(Structure):
    work, writes = "convolution", 2
    _fields_ = [
        *(("part", Part), *_places("out", "kept", "x", "weight", "bias", "slots", "positions")),
        *(*_sizes("channels", "taps", "x_stride"), ("silu", c_int)),
    ]


class Delta(Structure):
    work, writes = "delta_rule", 2
    _fields_ = [
        *(("part", Part), *_places("out", "states", "mixed", "gate", "write", "forget", "decay", "bias", "norm")),
        *_places("slots", "positions"),
        *(*_sizes("groups", "heads", "key", "value", "gate_stride", "write_stride", "forget_stride"), ("eps", c_float)),
    ]


class Route(Structure):
    work, writes = "route", 3
    _fields_ = [
        *(("part", Part), *_places("ids", "weights", "logits", "x", "columns", "bias")),
        *(*_sizes("experts", "each", "depth"), ("whole", c_int), ("weights_half", c_int)),
    ]

    @property
    def matrix(self) -> int:
        """How many weights it multiplies with."""
        return self.depth * self.experts

    @property
    def matrix_bytes(self) -> int:
        return self.matrix * (2 if self.part.half else 4)


class Sort(Structure):
    work, writes = "sort", 4
    _fields_ = [("part", Part), *_places("starts", "at", "tokens", "tally", "ids"), *_sizes("first", "experts", "each")]


class Experts(Structure):
    work = "experts"
    _fields_ = [
        *(("part", Part), *_places("out", "x", "weight", "bias", "starts"), ("scales", Scales)),
        *(*_sizes("experts", "columns", "depth"), ("gate", c_int), ("coding", c_int)),
    ]

    @property
    def matrix(self) -> int:
        """How many weights all experts have, whichever are read."""
        return int(self.experts * self.depth * self.columns)

    @property
    def matrix_bytes(self) -> int:
        return _matrix_bytes(self)


class Combine(Structure):
    work = "combine"
    _fields_ = [
        *(("part", Part), *_places("out", "x", "weights", "at")),
        *(*_sizes("each", "width"), ("weights_half", c_int)),
    ]


class Adapt(Structure):
    work = "adapt"
    _fields_ = [
        *(("part", Part), *_places("out", "x", "down", "up", "ids", "ends")),
        *_sizes("columns", "depth", "x_stride", "rank", "lanes", "layers"),
    ]


class Pointwise(Structure):
    work = "pointwise"
    _fields_ = [
        *(("part", Part), *_places("out", "a", "b")),
        *(*_sizes("columns", "a_stride", "b_stride"), ("by", c_float), ("kind", c_int)),
    ]


class Lookup(Structure):
    work = "lookup"
    _fields_ = [("part", Part), *_places("out", "table", "ids"), *_sizes("width")]


class Exchange(Structure):
    work = "exchange"
    _fields_ = [
        *(("part", Part), *_places("out", "x", "lanes")),
        *_sizes("rank", "ranks", "lane", "buffers", "buffer", "width", "total", "patience"),
        ("kind", c_int),
    ]


class Share(Structure):
    work = "share_rows"
    _fields_ = [("part", Part), *_places("out", "x"), *_sizes("rank", "ranks", "bytes")]


class Call(CStructure):
    _fields_ = [*_places("work", "part"), *_sizes("each", "counted", "kind", "ended")]


Meanwhile = CFUNCTYPE(None)
NOTHING = Meanwhile()


class Program(CStructure):
    _fields_ = [
        *(*_places("calls", "spent"), *_sizes("count", "tokens", "kept", "rank", "ranks", "begun")),
        *(("threads", c_int), ("meanwhile", Meanwhile)),
    ]
