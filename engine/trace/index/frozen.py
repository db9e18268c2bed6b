"""Objects as JSON and arrays, and back: what readers made of a run's records.

Only what `kinds` names is made again, by its name there and without its constructor; nothing in the bytes is code, or
says what to import. References are kept: one object stays one, and circles are allowed.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from importlib import import_module
from typing import Any, NamedTuple, get_args

import numpy as np

from engine.trace.column import Array
from engine.trace.records import Record, decode, encode

FEW = 8  # numbers that are not worth an array
DTYPES = frozenset("biuf")  # of arrays: numbers of fixed size
_RECORDS = get_args(Record)
_INT64 = range(-(1 << 63), 1 << 63)

Kinds = Mapping[str, type]


class Adapter(NamedTuple):
    """How one class is kept otherwise than by its attributes: `pack` gives what is kept, `unpack` fills an instance."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any, Any], None]


Adapters = Mapping[type, Adapter]


def kinds_in(modules: Iterable[str]) -> dict[str, type]:
    """The classes that these modules define, by the names under which they are kept."""
    found = (each for name in modules for each in vars(import_module(name)).values() if isinstance(each, type))
    named = {f"{each.__module__}:{each.__qualname__}": each for each in found}
    wanted = tuple(f"{name}:" for name in modules)
    return {name: each for name, each in named.items() if name.startswith(wanted)}


class Freezer:
    """`freeze` gives a JSON value, and adds to `arrays`. An object may say with `__frozen__` what attributes it has."""

    def __init__(self, kinds: Kinds, adapters: Adapters) -> None:
        self._names = {cls: name for name, cls in kinds.items()}
        self._adapters = adapters
        self.arrays: list[Array] = []
        self._nodes: list[Any] = []
        self._numbers: dict[int, int] = {}  # of objects by identity
        self._alive: list[Any] = []  # so that no identity is given twice

    def freeze(self, root: Any) -> dict[str, Any]:
        """Raises TypeError at what is neither plain nor of `kinds`."""
        top = self._value(root)
        while len(self._nodes) < len(self._alive):
            self._nodes.append(self._node(self._alive[len(self._nodes)]))
        return {"root": top, "nodes": self._nodes}

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is tuple:
            return ["t", [self._value(each) for each in value]]
        if isinstance(value, Enum):
            return ["e", self._name(kind), value.value]
        if isinstance(value, np.generic):
            return ["n", self._array(np.array([value]))]
        if kind is bytes:
            return ["b", self._array(np.frombuffer(value, np.uint8))]
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._alive)
            self._alive.append(value)
        return ["@", number]

    def _node(self, value: Any) -> list[Any]:
        kind = type(value)
        if kind in (dict, Counter):
            return ["d" if kind is dict else "c", self._items(list(value)), self._items(list(value.values()))]
        if kind is list:
            return ["l", self._items(value)]
        if kind is set:
            return ["s", self._items(sorted(value))]
        if kind is deque:
            return ["q", self._items(list(value)), value.maxlen]
        if kind is array:
            return ["a", value.typecode, self._array(np.frombuffer(value, value.typecode))]
        if isinstance(value, np.ndarray):
            return ["A", self._array(value)]
        if kind in _RECORDS:
            name, data = encode(value)
            return ["r", name, self._array(np.frombuffer(data, np.uint8))]
        if kind in self._adapters:
            return ["h", self._name(kind), self._value(self._adapters[kind].pack(value))]
        state = state_of(value)
        return ["o", self._name(kind), list(state), [self._value(each) for each in state.values()]]

    def _items(self, values: list[Any]) -> list[Any]:
        types = set(map(type, values)) if len(values) > FEW else set()
        if types == {float}:
            return ["n", self._array(np.array(values, np.float64))]
        if types == {int} and min(values) in _INT64 and max(values) in _INT64:
            return ["n", self._array(np.array(values, np.int64))]
        return ["v", [self._value(each) for each in values]]

    def _array(self, values: Array) -> int:
        if values.dtype.kind not in DTYPES:
            raise TypeError(f"an array of {values.dtype} cannot be kept")
        self.arrays.append(values)
        return len(self.arrays) - 1

    def _name(self, cls: type) -> str:
        if cls not in self._names:
            raise TypeError(f"{cls.__module__}.{cls.__qualname__} is not among the kinds that are kept")
        return self._names[cls]


def state_of(value: Any) -> dict[str, Any]:
    """An object's attributes, as far as it has them and they are kept."""
    own = getattr(value, "__frozen__", None)
    if own is not None:
        return dict(own())
    slots = [name for cls in type(value).__mro__ for name in vars(cls).get("__slots__", ())]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}


class Thawer:
    """The inverse, of what `freeze` gave and the `arrays` beside it, which what is made looks into."""

    def __init__(self, kinds: Kinds, adapters: Adapters, arrays: list[Array]) -> None:
        self._kinds, self._adapters, self._arrays = kinds, adapters, arrays
        self._made: list[Any] = []

    def thaw(self, told: dict[str, Any]) -> Any:
        """Raises ValueError at what `freeze` cannot have given."""
        try:
            nodes = told["nodes"]
            self._made = [self._shell(node) for node in nodes]
            for made, node in zip(self._made, nodes):
                self._fill(made, node)
            for made, node in zip(self._made, nodes):  # these read what they are given, which is whole by now
                if node[0] == "h":
                    self._adapters[self._kinds[node[1]]].unpack(made, self._value(node[2]))
            return self._value(told["root"])
        except ValueError:
            raise
        except Exception as error:  # a damaged tree can be anything
            raise ValueError(f"no index: {type(error).__name__} {error}") from error

    def _shell(self, node: list[Any]) -> Any:
        match node:
            case ["d", _, _]:
                return {}
            case ["c", _, _]:
                return Counter()
            case ["l", _]:
                return []
            case ["s", _]:
                return set()
            case ["q", _, most]:
                return deque(maxlen=most)
            case ["a", str(code), int(number)]:
                return array(code, self._numbers(number).tobytes())
            case ["A", int(number)]:
                return self._numbers(number)
            case ["r", str(name), int(number)]:
                return decode(name, self._numbers(number).tobytes())
            case ["o", str(name), _, _] | ["h", str(name), _]:
                return object.__new__(self._kinds[name])
            case _:
                raise ValueError(f"no index: a node {str(node)[:80]}")

    def _fill(self, made: Any, node: list[Any]) -> None:
        match node:
            case ["d" | "c", keys, values]:
                made.update(dict(zip(self._items(keys), self._items(values), strict=True)))
            case ["l" | "q", items, *_]:
                made.extend(self._items(items))
            case ["s", items]:
                made.update(self._items(items))
            case ["o", _, names, values]:
                for name, value in zip(names, values, strict=True):
                    object.__setattr__(made, name, self._value(value))
            case _:
                pass

    def _items(self, told: list[Any]) -> list[Any]:
        match told:
            case ["n", int(number)]:
                return list(self._numbers(number).tolist())
            case ["v", list(values)]:
                return [self._value(each) for each in values]
            case _:
                raise ValueError("no index: items of no kind")

    def _value(self, told: Any) -> Any:
        if not isinstance(told, list):
            return told
        match told:
            case ["@", int(number)] if number >= 0:
                return self._made[number]
            case ["t", list(values)]:
                return tuple(self._value(each) for each in values)
            case ["e", str(name), value]:
                return self._kinds[name](value)
            case ["n", int(number)]:
                return self._numbers(number)[0]
            case ["b", int(number)]:
                return self._numbers(number).tobytes()
            case _:
                raise ValueError("no index: a value of no kind")

    def _numbers(self, number: int) -> Array:
        if not 0 <= number < len(self._arrays):
            raise ValueError(f"no index: array {number} of {len(self._arrays)}")
        return self._arrays[number]
