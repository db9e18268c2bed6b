"""A plugin for pytest that makes Triton's interpreter quicker where it alone runs.

An operation of the language decides by the types of what it is given, never by values, what becomes of it: casts,
broadcasts, the operation itself. It decides once for the same types; after that only what it then asked of the
interpreter's builder is done again, which is a few calls of NumPy (`_Steps`).

The language is patched once, not again at each launch and each call of a device function (1.5 ms each), which Triton
does for kernels that compile in between. The type of a block, and what a value says of its type, are made once for all
values of it, not anew for each. An integer operation that needs more bits than it has fails, by one look at its result
in 64 bits: Triton's own check is of no effect unless its options say `debug`, and takes thirty times as long.

Products of tiles are summed in 64 bits: in 32, which order a processor's library takes depends on the tile's shape, and
what two kernels compute alike would differ in its last bits.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

Handle, Builder = interpreter.TensorHandle, interpreter.InterpreterBuilder
_patch = interpreter._patch_lang
_patched: set[tuple[bool, bool]] = set()
_seen: set[int] = set()  # globals of modules
_kept = SimpleNamespace(restore=lambda: None)


def _patch_once(fn: Any) -> Any:
    if id(fn.__globals__) not in _seen:
        _seen.add(id(fn.__globals__))
        by_name = list(fn.__globals__.values())
        languages = any(v is interpreter.tl for v in by_name), any(v is interpreter.tl.core for v in by_name)
        if languages not in _patched:
            _patched.add(languages)
            _patch(fn)
    return _kept


_of_numpy = cache(interpreter._get_np_dtype)


def _numpy_dtype(dtype: Any) -> Any:
    element = dtype.scalar  # of a block; pointers, which have no hash, are their own
    return np.dtype("uint64") if element.is_ptr() else _of_numpy(element)


_blocks: dict[tuple[int, tuple[int, ...]], Any] = {}  # by their element's type, which each keeps alive
_make_block = core.block_type.__init__


def _block(cls: Any, element_ty: Any, shape: Any) -> Any:
    sizes = getattr(shape, "values", shape)  # of a list, or of a tuple of the language
    key = id(element_ty), tuple([size.value if type(size) is core.constexpr else size for size in sizes])
    if key not in _blocks:
        made = object.__new__(cls)
        _make_block(made, element_ty, shape)
        made.sizes = key[1]
        _blocks[key] = made
    return _blocks[key]


_of_type: dict[int, dict[str, Any]] = {}  # what a tensor says of its type, which is kept alive with it
_make_tensor = core.tensor.__init__


def _tensor(self: Any, handle: Any, type: Any) -> None:
    if id(type) in _of_type:
        self.__dict__.update(_of_type[id(type)])
        self.handle = handle
    else:
        _make_tensor(self, handle, type)
        _of_type[id(type)] = {name: value for name, value in vars(self).items() if name != "handle"}


class _Step(NamedTuple):
    """One call of the builder, and what it made."""

    name: str
    call: Callable[..., Any]
    given: tuple[Any, ...]
    made: Any

    def handles(self) -> list[Any]:
        return [each for each in _flat(self.given) if isinstance(each, Handle)]


class _Noting:
    """The interpreter's builder; while an operation decides, `steps` has what it asks for."""

    steps: list[_Step] | None

    def __init__(self, builder: Any) -> None:
        self._builder, self.steps = builder, None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._builder, name)
        if self.steps is None or not callable(call) or name.endswith("_ty"):
            return call

        def noted(*given: Any) -> Any:
            made = call(*given)
            if self.steps is not None:
                self.steps.append(_Step(name, call, given, made))
            return made

        return noted


Handle.__post_init__ = lambda self: None  # a check of Triton's own


class _Unknown(Exception):
    """What an operation does cannot be told from what it asked of the builder."""


# Words of what is not the same each time, or does something besides.
IMPURE = "load", "store", "atomic", "program", "barrier", "print", "assert", "assume", "fits"
SPREADS = "create_splat", "create_broadcast"
BY_ELEMENT = {
    *("check_fits create_addptr create_select create_idiv create_sdiv create_srem create_urem create_ashr".split()),
    *(f"create_{name}" for name in "add sub mul fadd fsub fmul fdiv shl lshr and or xor".split()),
    *(f"create_{name}" for name in "minsi minui maxsi maxui minnumf maxnumf minimumf maximumf".split()),
    *(f"create_icmp{name}" for name in "SLE SLT SGE SGT ULE ULT UGE UGT EQ NE".split()),
    *(f"create_fcmp{name}" for name in "OLT OGT OLE OGE OEQ ONE ULT UGT ULE UGE UEQ UNE".split()),
}


def _constant(noted: list[_Step]) -> set[int]:
    """Which handles are made of nothing that is given."""
    found: set[int] = set()
    for step in noted:
        pure = isinstance(step.made, Handle) and not any(word in step.name for word in IMPURE)
        if pure and all(id(each) in found for each in step.handles()):
            found.add(id(step.made))
    return found


def _spread(noted: list[_Step], out: Any) -> dict[int, Any]:
    """Which handles need not be made, since NumPy spreads what they are made of where they are used."""
    of = {id(step.made): step.handles()[0] for step in noted if step.name in SPREADS}
    for each in _flat((out,)):
        of.pop(id(getattr(each, "handle", None)), None)

    def source(handle: Any) -> Any:
        while id(handle) in of:
            handle = of[id(handle)]
        return handle

    while True:
        needed: set[int] = set()
        for step in noted:
            spread = [each for each in step.handles() if id(each) in of]
            if not spread or id(step.made) in of:
                continue
            alike = step.name in BY_ELEMENT
            if alike and step.made is not None:
                shapes = (source(each).data.shape for each in step.handles())
                alike = np.broadcast_shapes(*shapes) == step.made.data.shape
            if not alike:
                needed |= {id(each) for each in spread}
        if not needed:
            return of
        for each in needed:
            del of[each]


class _Steps:
    """What an operation asks of the builder for arguments of some types, and what it returns."""

    def __init__(self, handles: list[Any], noted: list[_Step], out: Any):
        """`handles`: of the arguments, beside what was `noted` for them."""
        constant, spread = _constant(noted), _spread(noted, out)
        places, found = {id(handle): place for place, handle in enumerate(handles)}, len(handles)
        self._steps: list[tuple[Callable[..., Any], list[Any], list[tuple[int, int]]]] = []
        for step in noted:
            if id(step.made) in constant or id(step.made) in spread:
                continue
            given, at = [*step.given], list[tuple[int, int]]()
            for i, each in enumerate(given):
                while id(each) in spread and id(each) not in constant:
                    each = spread[id(each)]
                if id(each) in places:
                    at.append((i, places[id(each)]))
                given[i] = None if id(each) in places else each
            if any(isinstance(each, Handle) and id(each) not in constant for each in _flat(given)):
                raise _Unknown
            self._steps.append((step.call, given, at))
            for each in step.made if isinstance(step.made, tuple) else (step.made,):
                if isinstance(each, Handle):
                    places[id(each)] = found
                found += 1
        self._out = self._template(out, places, constant)

    def _template(self, out: Any, places: dict[int, int], constant: set[int]) -> Any:
        if type(out) is core.tensor:
            if id(out.handle) in places:
                return places[id(out.handle)], out.type
            if id(out.handle) in constant:
                return out.handle, out.type
        elif type(out) is tuple:
            return [self._template(each, places, constant) for each in out]
        elif out is None:
            return None
        raise _Unknown

    def __call__(self, handles: list[Any]) -> Any:
        for call, template, at in self._steps:
            given = template.copy()
            for i, place in at:
                given[i] = handles[place]
            made = call(*given)
            if type(made) is tuple:
                handles.extend(made)
            else:
                handles.append(made)
        return _filled(self._out, handles)


def _filled(out: Any, handles: list[Any]) -> Any:
    if type(out) is tuple:
        place, of = out
        return core.tensor(handles[place] if type(place) is int else place, of)
    return None if out is None else tuple([_filled(each, handles) for each in out])


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _key(values: Any, handles: list[Any], types: list[Any]) -> tuple[Any, ...]:
    """Of arguments whose operation is decided alike; their handles, and the types that it names, are added."""
    key: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is core.constexpr:
            value, kind = value.value, type(value.value)
            key.append(core.constexpr)
        if kind is core.tensor:
            key.append(id(value.type))
            types.append(value.type)
            for place, other in enumerate(handles):
                if other is value.handle:  # given twice: as a place it would stand for both
                    key.append((place,))
            handles.append(value.handle)
        elif kind is tuple or kind is list:
            key.append((kind, *_key(value, handles, types)))
        elif kind is slice:
            key.append((kind, value.start, value.stop, value.step))
        elif isinstance(value, core.dtype):
            types.append(value)
            key.append((kind, id(value)))
        else:
            key.append((kind, value))
    return tuple(key)


_semantic = interpreter.interpreter_semantic
_builder = _semantic.builder = _Noting(interpreter.interpreter_builder)


@contextmanager
def deciding_anew() -> Iterator[None]:
    """Each operation decides by itself, as without this plugin."""
    _builder.steps = []
    try:
        yield
    finally:
        _builder.steps = None


@cache
def _deciding_once(member: Any) -> Any:
    known: dict[tuple[Any, ...], tuple[_Steps | None, list[Any]]] = {}

    def operation(*given: Any, **named: Any) -> Any:
        named.pop("_semantic", None)
        if _builder.steps is not None:  # a part of one that decides
            return member(*given, **named, _semantic=_semantic)
        handles: list[Any] = []
        types: list[Any] = []  # kept, since the key has their addresses
        try:
            key = _key((*given, *named.items()) if named else given, handles, types)
            steps, _ = known[key]
        except TypeError:  # an argument has no hash
            steps = None
        except KeyError:
            return decide(key, handles, types, given, named)
        if steps is None:
            return member(*given, **named, _semantic=_semantic)
        return steps(handles)

    def decide(key: Any, handles: list[Any], types: list[Any], given: Any, named: Any) -> Any:
        noted = _builder.steps = []
        try:
            out = member(*given, **named, _semantic=_semantic)
        finally:
            _builder.steps = None
        try:
            known[key] = _Steps(handles, noted, out), types
        except _Unknown:
            known[key] = None, types
        return out

    return operation


def _patch_attr(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
    scope.set_attr(owner, name, _deciding_once(member))


_NUMPY = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _check_fits(self: Any, lhs: Any, rhs: Any, of: Any, name: str) -> None:
    wide = _NUMPY[name](lhs.data, rhs.data, dtype=np.int64)
    least, most = np.minimum.reduce(wide, axis=None), np.maximum.reduce(wide, axis=None)
    fits = of.get_int_min_value() <= least and most <= of.get_int_max_value()
    assert fits, f"int{of.int_bitwidth} overflow detected for operation {name}"


def _check_overflow(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
    if lhs.dtype.int_bitwidth < 64:
        self.builder.check_fits(lhs.handle, rhs.handle, lhs.dtype, binary_op.__name__)


def _expanded(self: Any, arg: Any, axis: int) -> Any:
    shape = arg.data.shape
    return Handle(arg.data.reshape((*shape[:axis], 1, *shape[axis:])), arg.dtype.scalar)


_dot = Builder.create_dot


def _summed_exactly(self: Any, a: Any, b: Any, d: Any, *given: Any) -> Any:
    if a.data.dtype.kind != "f":  # of what else there is NumPy has no type
        return _dot(self, a, b, d, *given)
    product = np.matmul(a.data, b.data, dtype=np.float64).astype(d.data.dtype)
    return Handle(product + d.data, d.dtype.scalar)


interpreter._patch_lang = _patch_once
interpreter._patch_attr = _patch_attr
interpreter._get_np_dtype = _numpy_dtype
Builder.create_dot = _summed_exactly
Builder.check_fits = _check_fits
Builder.create_expand_dims = _expanded
core.block_type.__new__ = staticmethod(_block)  # type: ignore[assignment]
core.block_type.__init__ = lambda *_: None  # type: ignore[misc,assignment]
core.tensor.__init__ = _tensor  # type: ignore[misc]
TritonSemantic.binary_op_sanitize_overflow_impl = _check_overflow
