"""The process of a rank but the first: it computes the steps that rank 0 plans, over its part of the model."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import socket
import threading
from dataclasses import asdict
from pathlib import Path

import torch

from engine.config.specs import EngineConfig, ModelSpec
from engine.core.faults import Fault, fault_of, memory_asked
from engine.core.setup.kv_budget import draws_desktop, free_memory
from engine.core.setup.roof import measure_copies, measure_products
from engine.memory.allocator import keep_freed_memory, release_references
from engine.models.loading import LoadedModel, load_part
from engine.models.split_card import facts_of
from engine.parallel.board import Board
from engine.parallel.group import Group, Ranked
from engine.parallel.interconnect import measure_interconnect
from engine.parallel.link import CAPTURE, HOST, LEAVE, MAKE, MEASURE, PLAN, QUIT, ROOM, TOLD, Link, telling
from engine.parallel.mail import Mail
from engine.parallel.pipeline import Pipeline, SharedPipeline
from engine.parallel.ranks import Place
from engine.parallel.wire import Receiver
from engine.runner import make_runner
from engine.runner.runner import Runner
from engine.scheduler.plan import StepPlan

PATIENCE = 2.0  # seconds in which the kernels that wait for rank 0 end


def serve(descriptor: int) -> None:
    """The process's main. It ends when rank 0 is gone, whatever it does at the time."""
    end = socket.socket(fileno=descriptor)
    groups: list[Ranked] = []
    threading.Thread(target=_watch, args=(end, groups), name="rank-watch", daemon=True).start()
    link = Link(end)
    with telling(link):
        rank = Rank(link)
        groups.append(rank.group)
        rank.main()


def _watch(end: socket.socket, groups: list[Ranked]) -> None:
    """Ends the process with rank 0, after the kernels that would wait for it."""
    gone = select.poll()
    gone.register(end, 0)
    gone.poll()
    threading.Timer(PATIENCE, os._exit, (0,)).start()
    for group in groups:
        group.close()
    os._exit(0)


class Rank:
    """Loads, then does what it is told."""

    def __init__(self, link: Link) -> None:
        self._link = link
        keep_freed_memory()
        order = json.loads(link.receive()[1])
        torch.set_num_threads(order["threads"])
        spec = ModelSpec(**order["spec"])
        board = Board(spec.parallel.ranks, link.receive_descriptor())
        place = Place(order["rank"], board, order["backend"], Path(order["store"]), order["device"])
        shared = order["backend"] == "shared"
        self._model: LoadedModel = load_part(spec, Path(order["folder"]), place)
        self._mail = Mail(board, order["rank"], spec.parallel.timeout) if shared else None
        board.close()  # the memory stays
        assert self._model.group is not None
        self.group = self._model.group
        self._runner: Runner | None = None
        self._step = 0
        self._board, self._short = board, ""  # what kept it from its last step, in words
        model, stage = self._model, None
        if isinstance(self.group, Pipeline):
            stage = asdict(facts_of(model.card))
        link.tell(TOLD, weight_bytes=model.held_bytes, layer_kv=model.layer_kv, stage=stage)

    def main(self) -> None:
        receive = Receiver(0)
        while True:
            letter, data = self._next()
            if letter == PLAN:
                self._follow(receive(data))
            elif letter == LEAVE:
                self._link.tell(TOLD, short=self._short)
                self._short = ""
            elif letter == MAKE:
                told = json.loads(data)
                config = EngineConfig(**told["config"])
                if isinstance(self.group, SharedPipeline):
                    self.group.join(told["lane"], self._link.receive_descriptor())
                self._let_go()
                self._runner = make_runner(self._model, config, told["blocks"], captured=told["captured"])
                receive = Receiver(config.max_running)
                self._link.tell(TOLD)
            elif letter == ROOM:
                self._let_go()
                self._link.tell(TOLD, free=free_memory(self._model.device), display=draws_desktop(self._model.device))
            elif letter == CAPTURE and self._runner is not None:
                self._runner.capture(lambda done, total: None)
            elif letter == HOST and self._runner is not None:
                self._runner.keep_host_blocks(int(data))
                self._link.tell(TOLD)
            elif letter == MEASURE:
                self._measure(**json.loads(data))
            elif letter == QUIT:
                return

    def _let_go(self) -> None:
        """Nobody holds a cache while another is made."""
        self._runner = None
        gc.collect()

    def _follow(self, plan: StepPlan) -> None:
        assert self._runner is not None
        self.group.begin(self._step)
        self._step += 1
        try:
            self._runner.follow(plan)
        except Exception as error:
            # What others met kept it from its step too: rank 0 has all of them leave it.
            met, together = bool(self._board.stopped()), self._mail is not None
            short = met or fault_of(error, self._model.device) is Fault.MEMORY
            if self._board.broken or not (together and short):
                raise
            if not met:
                self._short = memory_asked(error)
                self._board.stop(self.group.rank)
            release_references(error)
        self.group.end()

    def _next(self) -> tuple[bytes, bytes]:
        """The letter that comes next, and what is in it."""
        plan = self._mail.take() if self._mail is not None else None
        return self._link.receive() if plan is None else (PLAN, plan)

    def _measure(self, what: str, **how: int) -> None:
        if what == "interconnect":
            assert isinstance(self.group, Group)
            measure_interconnect(self.group, self._model.device, self._model.dtype)
            return
        with contextlib.suppress(MemoryError, RuntimeError):  # no room for it: rank 0 finds that too
            if what == "copies":
                measure_copies(self._model.device)
            else:
                measure_products(self._model.device, self._model.dtype, **how)
