"""Checks each launch of a kernel by Triton's interpreter, from now on, and runs its programs in any order.

Tensors are not copied for a launch, since they lie on the CPU: a kernel sees their own addresses.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from itertools import product
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from triton import language as tl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.jit import mangle_type

from tests.sanitizer import unwritten
from tests.sanitizer.launch import Fault, Launch

Builder, Executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
_running: list[Launch] = []  # one at most


@lru_cache(256)
def any_order(kernel: str, grid: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The programs of a grid, shuffled: the same way each time, and never left in the order of their numbers."""
    programs: list[tuple[int, ...]] = list(product(*map(range, grid)))
    mixed = programs[::-1]
    Random(f"{kernel} {grid}").shuffle(mixed)
    return mixed if mixed != programs else programs[::-1]


@lru_cache(4096)
def _pointer(position: int, dtype: torch.dtype, mangled: str) -> Any:
    """The type of a pointer to a parameter's tensor. Whatever is computed from the pointer has this very object."""
    return tl.str_to_ty(mangled, None)


_mangled: dict[torch.dtype, str] = {}


def _pointer_to(position: int, tensor: Tensor) -> Any:
    dtype = tensor.dtype
    if dtype not in _mangled:
        _mangled[dtype] = mangle_type(tensor)
    return _pointer(position, dtype, _mangled[dtype])


def _call(self: Any, *given: Any, **named: Any) -> None:
    names = self.arg_names
    named = {name: value for name, value in named.items() if name in names}
    bound = named if not given and len(named) == len(names) else inspect.getcallargs(self.fn, *given, **named)
    assert all(value.is_cpu for value in bound.values() if isinstance(value, Tensor)), "the interpreter runs on a CPU"
    for hook in self.pre_run_hooks:
        hook(**bound)
    scope = interpreter._patch_lang(self.fn)
    try:
        tensors: dict[int, tuple[str, Tensor]] = {}
        args: dict[str, Any] = {}
        for position, name in enumerate(names):
            value = bound[name]
            if isinstance(value, Tensor):
                kind = _pointer_to(position, value)
                tensors[id(kind)] = name, value
                handle = interpreter.TensorHandle(np.array([value.data_ptr()], np.uint64), kind)
                args[name] = tl.tensor(handle, kind)
            else:
                args[name] = value if name in self.constexprs else interpreter._implicit_cvt(value)
        grid = self.grid(args) if callable(self.grid) else self.grid
        grid = (*grid, *(1,) * (3 - len(grid)))
        builder = interpreter.interpreter_builder
        builder.set_grid_dim(*grid)
        programs = any_order(self.fn.__name__, grid)
        launch = Launch(self.fn.__name__, tensors, len(programs))
        _running.append(launch)
        try:
            for program in programs:
                builder.grid_idx = program
                launch.begin(program)
                self.fn(**args)
            launch.end()
        except Exception as error:
            raise _fault_of(error) or InterpreterError(repr(error)) from error
        finally:
            _running.remove(launch)
    finally:
        scope.restore()


def _fault_of(error: BaseException | None) -> Fault | None:
    while error is not None and not isinstance(error, Fault):
        error = error.__cause__
    return None if error is None else Fault(*error.args)


_load, _store = Builder.create_masked_load, Builder.create_masked_store
_rmw, _cas = Builder.create_atomic_rmw, Builder.create_atomic_cas


def _checked_load(self: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
    launch = _running[-1]
    launch.load(pointers, mask.data)
    found = _load(self, pointers, mask, *rest, **named)
    launch.loaded(pointers, mask.data, found.data)
    return found


def _checked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
    _running[-1].store(pointers, mask.data, value.data)
    return _store(self, pointers, value, mask, *rest)


def _checked_rmw(self: Any, op: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
    _running[-1].atomic(pointers, mask.data, sem.name, scope.name)
    return _rmw(self, op, pointers, value, mask, sem, scope)


def _checked_cas(self: Any, pointers: Any, compared: Any, value: Any, sem: Any, scope: Any) -> Any:
    _running[-1].atomic(pointers, None, sem.name, scope.name)
    return _cas(self, pointers, compared, value, sem, scope)


def _checked_atomic_load(self: Any, pointers: Any, mask: Any, sem: Any, scope: Any) -> Any:
    _running[-1].atomic(pointers, mask.data, sem.name, scope.name)
    return _load(self, pointers, mask, None, None, True)


def _checked_atomic_store(self: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
    _running[-1].atomic(pointers, mask.data, sem.name, scope.name)
    return _store(self, pointers, value, mask, None)


def _checked_barrier(self: Any) -> None:
    _running[-1].barrier()


Executor.__call__ = _call
Builder.create_masked_load, Builder.create_masked_store = _checked_load, _checked_store
Builder.create_atomic_rmw, Builder.create_atomic_cas = _checked_rmw, _checked_cas
Builder.create_atomic_load, Builder.create_atomic_store = _checked_atomic_load, _checked_atomic_store
Builder.create_barrier = _checked_barrier
unwritten.begin()
