"""A plugin for pytest that makes Triton's interpreter quicker where it alone runs.

An operation of the language decides by the types of what it is given, never by values, what becomes of it: casts,
broadcasts, the operation itself. It decides once for the same types; after that only what it then asked of the
interpreter's builder is done again, which is a few calls of NumPy: a function is written of them (`_Written`).

The language is patched once, not again at each launch and each call of a device function (1.5 ms each), which Triton
does for kernels that compile in between. The type of a block, and what a value says of its type, are made once for all
values of it, not anew for each. An integer operation that needs more bits than it has fails, by one look at its result
in 64 bits: Triton's own check is of no effect unless its options say `debug`, and takes thirty times as long.

Of a large tile all addresses are looked at at once.

Products of tiles are summed in 64 bits: in 32, which order a processor's library takes depends on the tile's shape, and
what two kernels compute alike would differ in its last bits.
"""

import ctypes
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
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


# What a tensor says of its type, and a number of that and of what its handle says: equal ones are decided alike.
_said: dict[tuple[int, int], dict[str, Any]] = {}  # by the addresses of both, which are kept alive
_alive: list[Any] = []
_numbers = count()
_make_tensor = core.tensor.__init__


def _tensor(self: Any, handle: Any, type: Any) -> None:
    of = getattr(handle, "dtype", None)
    said = _said.get((id(type), id(of)))
    if said is None:
        _make_tensor(self, handle, type)
        said = {name: value for name, value in vars(self).items() if name != "handle"}
        said["alike"] = next(_numbers)
        _said[id(type), id(of)] = said
        _alive.append(of)
    self.__dict__.update(said)
    self.handle = handle


def _handle(self: Any, data: Any, dtype: Any) -> None:
    """With none of the attributes that a compiler would read, and no check of Triton's own."""
    self.data, self.dtype = data, dtype


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


class _Unknown(Exception):
    """What an operation does cannot be told from what it asked of the builder."""


# Words of what is not the same each time, or does something besides.
IMPURE = "load", "store", "atomic", "program", "barrier", "print", "assert", "assume", "fits"
# Of which the builder has a meaning of its own for bits.
WRAP = {f"create_{name}" for name in "add sub mul shl lshr srem urem sdiv udiv".split()}
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


def _of_numpy_alone(name: str) -> tuple[str, Any]:
    """How the builder's method asks NumPy, and for what: ("binary_op", np.add). Nothing where it does otherwise."""
    code = getattr(getattr(Builder, name), "__code__", None)
    names = () if code is None or code.co_name != "<lambda>" else code.co_names
    if names == ("cast_impl",):
        return "cast_impl", None
    return (names[0], getattr(np, names[2])) if len(names) == 3 and names[1] == "np" else ("", None)


def _bits(dtype: Any) -> int:
    return 64 if dtype.is_ptr() else max(8, dtype.primitive_bitwidth)


@cache
def _compiled(source: str) -> Any:
    """Most operations are written alike, but for constants. No line is taken for a kernel's: it is of this file."""
    return compile(source, __file__, "exec")


class _Written:
    """The function of what an operation asks of the builder for arguments of some types: of their handles it makes
    what the operation returns. NumPy is asked for by itself where that is all a method does."""

    def __init__(self, handles: list[Any], noted: list[_Step], out: Any):
        """`handles`: of the arguments, beside what was `noted` for them."""
        self._constant, self._spread = _constant(noted), _spread(noted, out)
        self._names = {id(handle): f"a{place}" for place, handle in enumerate(handles)}
        self._known = dict[str, Any]()  # of the function's globals
        self._data = set[str]()  # handles whose data has a name
        self._bare = dict[str, Any]()  # data whose handle is not made yet, by the handle's name, with its type
        given = ", ".join(self._names.values())
        self._lines: list[str] = []
        for step in noted:
            if id(step.made) not in self._constant and id(step.made) not in self._spread:
                self._write(step)
        self._lines.append(f"return {self._returned(out)}")
        source = f"def operation({given}):\n" + "".join(f"    {line}\n" for line in self._lines)
        exec(_compiled(source), self._known)
        self.function: Callable[..., Any] = self._known["operation"]

    def _constant_name(self, value: Any) -> str:
        name = f"k{len(self._known)}"
        self._known[name] = value
        return name

    def _source(self, handle: Any) -> Any:
        while id(handle) in self._spread and id(handle) not in self._constant:
            handle = self._spread[id(handle)]
        return handle

    def _value(self, given: Any) -> str:
        """An argument of the builder's."""
        given = self._source(given)
        name = self._names.get(id(given))
        if name is None:
            for each in _flat((given,)):
                if isinstance(each, Handle) and id(each) not in self._constant:
                    raise _Unknown
            return self._constant_name(given)
        if name in self._bare:
            self._lines.append(f"{name} = new({self._constant_name(Handle)})")
            self._lines.append(f'{name}.__dict__ = {{"data": d{name}, "dtype": {self._bare.pop(name)}}}')
            self._known["new"] = object.__new__
        return name

    def _data_of(self, handle: Any) -> str:
        handle = self._source(handle)
        name = self._names.get(id(handle))
        if name is None:
            if id(handle) not in self._constant:
                raise _Unknown
            return self._constant_name(handle.data)
        if name not in self._data:
            self._data.add(name)
            self._lines.append(f"d{name} = {name}.data")
        return f"d{name}"

    def _name(self, made: Any) -> str:
        name = f"m{len(self._names)}"
        self._names[id(made)] = name
        return name

    def _write(self, step: _Step) -> None:
        expression = self._expression(step)
        if expression is None:
            given = ", ".join([self._value(each) for each in step.given])
            made = [self._name(each) for each in _flat((step.made,)) if isinstance(each, Handle)]
            call = f"{self._constant_name(step.call)}({given})"
            self._lines.append(f"{', '.join(made)} = {call}" if made else call)
        elif step.made is None:
            self._lines.append(expression)
        else:
            name = self._name(step.made)
            self._lines.append(f"d{name} = {expression}")
            self._data.add(name)
            self._bare[name] = self._constant_name(step.made.dtype)
            if _of_numpy_alone(step.name)[0] in ("binary_op", "ternary_op") and "cmp" not in step.name:
                dtype = step.made.dtype
                wanted = self._constant_name(_numpy_dtype(dtype))
                self._lines.append(f"if d{name}.itemsize > {_bits(dtype) // 8}: d{name} = d{name}.astype({wanted})")

    def _expression(self, step: _Step) -> str | None:
        """What the data of a step's result is, None where a step has to be asked of the builder."""
        how, of_numpy = _of_numpy_alone(step.name)
        function = None if of_numpy is None else self._constant_name(of_numpy)
        if how == "binary_op":
            a, b = map(self._data_of, step.given)
            if step.name in WRAP:  # bits are added as numbers are
                both, call = self._constant_name(np.dtype(bool)), self._constant_name(step.call)
                lhs, rhs = (
                    f"{self._constant_name(Handle)}({d}, {self._constant_name(each.dtype)})"
                    for d, each in zip((a, b), step.given)
                )
                return (
                    f"{function}({a}, {b}) if {a}.dtype is not {both} or {b}.dtype is not {both}"
                    f" else {call}({lhs}, {rhs}).data"
                )
            return f"{function}({a}, {b})"
        if how in ("unary_op", "ternary_op"):
            return f"{function}({', '.join(map(self._data_of, step.given))})"
        if how == "cast_impl":
            source, to = step.given[0].dtype.scalar, step.given[1].scalar
            if core.bfloat16 in (source, to):
                return None
            return f"{self._data_of(step.given[0])}.astype({self._constant_name(_numpy_dtype(to))})"
        if step.name == "create_addptr":
            pointer, offset = step.given
            bits = pointer.get_element_ty().primitive_bitwidth
            wide = self._constant_name(np.dtype(np.uint64))
            return f"{self._data_of(pointer)} + {max(1, bits // 8)} * {self._data_of(offset)}.astype({wide})"
        if step.name == "create_expand_dims":
            arg, axis = step.given
            return f"{self._data_of(arg)}[{self._constant_name((*(slice(None),) * axis, None))}]"
        if step.name == "check_fits":
            lhs, rhs, of, name = step.given
            given = self._data_of(lhs), self._data_of(rhs), self._constant_name(of), self._constant_name(name)
            return f"{self._constant_name(_fits)}({', '.join(given)})"
        return None

    def _returned(self, out: Any) -> str:
        if type(out) is core.tensor:
            handle = self._value(out.handle)
            self._known["new"] = object.__new__
            said = vars(core.tensor(out.handle, out.type)) | {"handle": None}
            items = [
                f'"{name}": {handle if name == "handle" else self._constant_name(each)}' for name, each in said.items()
            ]
            name = f"t{len(self._lines)}"
            self._lines += [
                f"{name} = new({self._constant_name(core.tensor)})",
                f"{name}.__dict__ = {{{', '.join(items)}}}",
            ]
            return name
        if type(out) is tuple:
            return f"({''.join([self._returned(each) + ', ' for each in out])})"
        if out is None:
            return "None"
        raise _Unknown


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _add_key(values: Any, key: list[Any], handles: list[Any]) -> None:
    """Adds to the key of arguments whose operation is decided alike, and their handles."""
    for value in values:
        kind = type(value)
        if kind is _TENSOR:
            key.append(value.alike)
            handles.append(value.handle)
            continue
        if kind is _CONSTEXPR:
            value, kind = value.value, type(value.value)
            key.append(_CONSTEXPR)
            if kind is _TENSOR:
                key.append(value.alike)
                handles.append(value.handle)
                continue
        if kind is tuple or kind is list:
            key += kind, len(value)
            _add_key(value, key, handles)
        elif kind is slice:
            key.append((kind, value.start, value.stop, value.step))
        elif isinstance(value, core.dtype):
            key.append((kind, id(value)))
        else:
            key.append((kind, value))


def _types(values: Any) -> Iterator[Any]:
    """Those that a key has the addresses of."""
    for value in _flat(values):
        value = value.value if type(value) is _CONSTEXPR else value
        if isinstance(value, core.dtype):
            yield value
        elif isinstance(value, list | tuple):
            yield from _types(value)


def _apart(values: Any, seen: set[int]) -> Any:
    """The arguments, none of which has the handle of another: as a place it would stand for both."""
    return [_apart_one(value, seen) for value in values]


def _apart_one(value: Any, seen: set[int]) -> Any:
    if type(value) is _TENSOR:
        if id(value.handle) in seen:
            return _TENSOR(Handle(value.handle.data, value.handle.dtype), value.type)
        seen.add(id(value.handle))
    elif type(value) is tuple or type(value) is list:
        return type(value)(_apart(value, seen))
    return value


_semantic = interpreter.interpreter_semantic
_TENSOR, _CONSTEXPR = core.tensor, core.constexpr
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
    known: dict[tuple[Any, ...], Callable[..., Any] | None] = {}
    kept: list[Any] = []  # types whose addresses are in keys

    def operation(*given: Any, **named: Any) -> Any:
        if named:
            named.pop("_semantic", None)
        if _builder.steps is not None:  # a part of one that decides
            return member(*given, **named, _semantic=_semantic)
        if len(given) == 2 and not named and type(given[0]) is _TENSOR and type(given[1]) is _TENSOR:  # as most are
            a, b = given
            function = known.get((a.alike, b.alike))
            if function is not None:
                return function(a.handle, b.handle)
        key: list[Any] = []
        handles: list[Any] = []
        _add_key(given, key, handles)
        if named:
            key += named
            _add_key(named.values(), key, handles)
        try:
            function = known[tuple(key)]
        except TypeError:  # an argument has no hash
            function = None
        except KeyError:
            return decide(tuple(key), given, named)
        if function is None:
            return member(*given, **named, _semantic=_semantic)
        return function(*handles)

    def decide(key: Any, given: Any, named: Any) -> Any:
        seen = set[int]()
        given, named = _apart(given, seen), dict(zip(named, _apart(named.values(), seen)))
        handles: list[Any] = []
        _add_key((*given, *named.values()), [], handles)
        noted = _builder.steps = []
        try:
            out = member(*given, **named, _semantic=_semantic)
        finally:
            _builder.steps = None
        kept.extend(_types((*given, *named.values())))
        try:
            known[key] = _Written(handles, noted, out).function
        except _Unknown:
            known[key] = None
        return out

    return operation


def _patch_attr(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
    scope.set_attr(owner, name, _deciding_once(member))


_NUMPY = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_PYTHON = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


def _fits(lhs: Any, rhs: Any, of: Any, name: str) -> None:
    if lhs.size == rhs.size == 1:
        least = most = _PYTHON[name](lhs.item(), rhs.item())
    else:
        wide = _NUMPY[name](lhs, rhs, dtype=np.int64)
        least, most = np.minimum.reduce(wide, axis=None), np.maximum.reduce(wide, axis=None)
    fits = of.get_int_min_value() <= least and most <= of.get_int_max_value()
    assert fits, f"int{of.int_bitwidth} overflow detected for operation {name}"


def _check_fits(self: Any, lhs: Any, rhs: Any, of: Any, name: str) -> None:
    _fits(lhs.data, rhs.data, of, name)


def _check_overflow(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
    if lhs.dtype.int_bitwidth < 64:
        self.builder.check_fits(lhs.handle, rhs.handle, lhs.dtype, binary_op.__name__)


_dot = Builder.create_dot


def _summed_exactly(self: Any, a: Any, b: Any, d: Any, *given: Any) -> Any:
    if a.data.dtype.kind != "f":  # of what else there is NumPy has no type
        return _dot(self, a, b, d, *given)
    product = np.matmul(a.data, b.data, dtype=np.float64).astype(d.data.dtype)
    return Handle(product + d.data, d.dtype.scalar)


_load = Builder.create_masked_load
MANY = 128  # elements that NumPy gathers in less time than Triton's loop over addresses


def _gathered(self: Any, pointers: Any, mask: Any, other: Any, *how: Any, **named: Any) -> Any:
    addresses, within = pointers.data, mask.data
    if addresses.size < MANY:
        return _load(self, pointers, mask, other, *how, **named)
    of = pointers.get_element_ty()
    dtype = np.dtype(_numpy_dtype(of))
    found = np.zeros(addresses.shape, dtype) if other is None else other.data.copy()
    assert (found.dtype, found.shape) == (dtype, within.shape)
    chosen = addresses[within]
    if chosen.size:
        first = chosen.min()
        at = (chosen - first).view(np.int64)
        assert np.bitwise_or.reduce(at) % dtype.itemsize == 0, "elements lie across each other"
        memory = (ctypes.c_char * (int(at.max()) + dtype.itemsize)).from_address(int(first))
        found[within] = np.frombuffer(memory, dtype)[at >> (dtype.itemsize.bit_length() - 1)]
    return Handle(found, of)


interpreter._patch_lang = _patch_once
interpreter._patch_attr = _patch_attr
interpreter._get_np_dtype = _numpy_dtype
Builder.create_dot = _summed_exactly
Builder.check_fits = _check_fits
Builder.create_masked_load = _gathered
Handle.__init__, Handle.set_attr = _handle, lambda self, key, value: None
core.block_type.__new__ = staticmethod(_block)  # type: ignore[assignment]
core.block_type.__init__ = lambda *_: None  # type: ignore[misc,assignment]
core.tensor.__init__ = _tensor  # type: ignore[misc]
TritonSemantic.binary_op_sanitize_overflow_impl = _check_overflow
