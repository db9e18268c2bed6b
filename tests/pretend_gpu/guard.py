"""The few lines of C++ without which torch's CPU build refuses a view of a tensor that says it is on a GPU."""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("guard.cpp")


def install_guard() -> None:
    """Compiled once for each version of torch and kept; raises what the compiler says where it fails."""
    name = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"batchscope-pretend-gpu-{os.getuid()}" / f"guard-{name}.so"
    if not library.exists():
        library.parent.mkdir(mode=0o700, exist_ok=True)
        home = Path(torch.__file__).parent
        made = library.with_name(f"{library.name}.{os.getpid()}")
        command = ["c++", "-O0", "-std=c++20", "-shared", "-fPIC", f"-I{home / 'include'}", str(SOURCE), "-o", made]
        run = subprocess.run([*command, f"-L{home / 'lib'}", "-lc10"], capture_output=True, text=True, check=False)
        if run.returncode:
            raise RuntimeError(run.stderr)
        made.replace(library)
    ctypes.CDLL(str(library)).install()
