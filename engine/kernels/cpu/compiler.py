"""Which C compiler makes the kernels for this processor. No torch."""

import os
import shutil

COMPILERS = ("cc", "gcc", "clang")
SWITCH = "BATCHSCOPE_NATIVE"  # "0" in the environment: as if there were no compiler


def find_compiler() -> str | None:
    """$CC, or the first of those that are usual."""
    return next(filter(None, map(shutil.which, (os.environ.get("CC", ""), *COMPILERS))), None)


def compiles_here() -> bool:
    """Whether there are compiled kernels, as far as that can be told without compiling."""
    return os.environ.get(SWITCH) != "0" and find_compiler() is not None
