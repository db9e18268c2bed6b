"""Over what the ranks of a model meet: told by where they compute, and by what is asked for."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from engine.config.parallel import Parallel
from engine.config.specs import InvalidInput
from engine.kernels.cpu.library import native
from engine.parallel.board import Board
from engine.parallel.group.collective import Collective
from engine.parallel.group.ranked import Group
from engine.parallel.group.shared_memory import SharedMemory

CAPTURED = 2, 9, 6  # the NCCL from which on a graph may hold its calls


def join(parallel: Parallel, backend: str, board: Board, rank: int, store: Path, device: torch.device) -> Group:
    """This process, which computes on `device`, as a rank of those that share the board; `backend` as `chosen`. Waits
    for the others to come."""
    if backend == "shared":
        return SharedMemory(board, rank, parallel.timeout)
    return Collective(board, rank, backend, device, parallel.timeout, store)


def chosen(parallel: Parallel, dtype: torch.dtype, device: torch.device, gpu_path: bool) -> str:
    """The backend for ranks that compute in this dtype on devices of this type; `gpu_path`: with a GPU's runner, be it
    on CPU tensors. Raises InvalidInput for one that does not serve them."""
    asked, on_gpu = parallel.backend, device.type == "cuda"
    if asked == "nccl" and not on_gpu:
        raise InvalidInput("parallel_backend='nccl': it is between GPUs, and these ranks are on a CPU; use auto")
    if asked == "shared" and gpu_path:
        raise InvalidInput("parallel_backend='shared': it is for a CPU's ranks; use auto")
    if on_gpu and asked != "gloo":
        if why := why_no_nccl():
            raise InvalidInput(f"{parallel.words}: GPUs exchange what they compute over NCCL, and {why}")
        return "nccl"
    here = native().library is not None and dtype in (torch.float32, torch.bfloat16) and not gpu_path
    if asked == "auto":
        return "shared" if here else "gloo"
    if asked == "shared" and not here:
        raise InvalidInput("parallel_backend='shared': it is for float32 or bfloat16, and needs a C compiler; use auto")
    return asked


def chosen_for_stages(parallel: Parallel, device: torch.device, gpu_path: bool) -> str:
    """Likewise for stages, which on a CPU hand on in memory that they share."""
    if gpu_path or parallel.backend == "nccl":
        return chosen(parallel, torch.float32, device, gpu_path)
    if parallel.backend == "gloo":
        raise InvalidInput("parallel_backend='gloo': stages on a CPU hand on in memory that they share; use auto")
    return "shared" if native().library is not None else "polled"


def why_no_nccl() -> str:
    """What is to be mended before ranks can meet over NCCL; "" where nothing is."""
    if not (dist.is_available() and dist.is_nccl_available()):
        return "this torch has none: install its CUDA build for Linux, or use device cpu"
    found = torch.cuda.nccl.version()
    if found < CAPTURED:
        words = (".".join(map(str, each)) for each in (found, CAPTURED))
        return "this torch's {} is older than {}: install a newer torch, or use device cpu".format(*words)
    return ""
