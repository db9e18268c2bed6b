"""A plugin for pytest that makes Triton's interpreter quicker where it alone runs.

The language is patched once, not again at each launch and each call of a device function (1.5 ms each), which Triton
does for kernels that compile in between. With NO_OVERFLOW_CHECKS set, integer operations are not done again in 64 bits.
"""

import os
from functools import cache
from types import SimpleNamespace
from typing import Any

from triton.runtime import interpreter

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
    return interpreter.np.dtype("uint64") if element.is_ptr() else _of_numpy(element)


interpreter._patch_lang = _patch_once
interpreter._get_np_dtype = _numpy_dtype
if os.environ.get("NO_OVERFLOW_CHECKS"):
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
