"""Where Triton is not installed, kernel modules still import, and only a launch fails, saying what is missing."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
sys.modules["triton"] = None  # an import of it raises ImportError

import torch
from engine.kernels.store_kv import store_kv
from engine.kernels.attention.paged_attention import paged_attention

k, cache, slots = torch.zeros(1, 1, 32), torch.zeros(1, 16, 1, 32), torch.zeros(1, dtype=torch.int64)
try:
    store_kv(k, k, cache, cache, slots)
except RuntimeError as error:
    print(error)
"""


def test_a_launch_without_triton_says_that_it_is_missing() -> None:
    root = Path(__file__).parents[3]
    run = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, check=False)
    assert "needs Triton" in run.stdout, run.stderr
