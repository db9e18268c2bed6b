"""The process of a prefill worker: it computes the prompts that it is sent, into blocks that it shares with who
decodes. It knows nothing of requests, and draws no tokens."""

from __future__ import annotations

import json
import socket
import time
import traceback
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config.specs import EngineConfig, ModelSpec
from engine.core.faults import Fault, fault_of, first_line
from engine.kernels.cpu.large_pages import SharedPages
from engine.memory.allocator import keep_freed_memory, release_references
from engine.models.loading import load
from engine.parallel.link import PLAN, TOLD, Link, telling
from engine.parallel.wire import Receiver
from engine.runner.paged_cpu import PagedRunner


def serve(descriptor: int) -> None:
    """The process's main. It ends with the other end of the socket."""
    link = Link(socket.socket(fileno=descriptor))
    with telling(link):
        _work(link)


def _work(link: Link) -> None:
    """Loads the model and makes a runner over the blocks, then computes each plan that comes."""
    keep_freed_memory()
    order = json.loads(link.receive()[1])
    pages = SharedPages(order["size"], link.receive_descriptor())
    torch.set_num_threads(order["threads"])
    model, config = load(ModelSpec(**order["spec"])), EngineConfig(**order["config"])
    runner = PagedRunner(model, config, order["blocks"], pages.zeros)
    pages.close()
    runner.record(lambda done, total: None)
    receive = Receiver(config.max_running)
    link.tell(TOLD, weight_bytes=model.held_bytes, layout=layout_of(runner.block_caches))
    while (told := link.receive())[0] == PLAN:
        begun = time.perf_counter()
        try:
            runner.follow(receive(told[1]))
        except Exception as error:
            traceback.print_exc()
            short = fault_of(error, model.device) is Fault.MEMORY
            link.tell(TOLD, error=first_line(error)[:1000], short=short)
            release_references(error)
        else:
            link.tell(TOLD, begun=begun, ended=time.perf_counter())


def layout_of(caches: Sequence[Tensor]) -> list[str]:
    """How K and V lie in blocks; both processes must have it alike."""
    return [f"{cache.dtype} {tuple(cache.shape)} by {cache.stride()}" for cache in caches]
