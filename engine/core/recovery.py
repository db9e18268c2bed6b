"""What becomes of a step that failed: its rows end, or where memory was short are planned again, in smaller steps."""

import contextlib
import traceback
from collections import deque
from collections.abc import Callable

import torch

from engine.core.faults import Fault, device_lost, fault_of, first_line, memory_asked
from engine.memory.allocator import release_references
from engine.runner.launched_step import LaunchedStep
from engine.runner.runner import Runner
from engine.scheduler.plan import StepPlan
from engine.scheduler.scheduler import Scheduler
from engine.trace.records import Kind


class Recovery:
    """Of one scheduler and its runner. `in_flight` are the steps that are launched and not read yet, oldest first;
    `drain` reads and commits them; `tell` takes a level and a text for people, once for all that lead to one change."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        in_flight: deque[LaunchedStep],
        drain: Callable[[], None],
        tell: Callable[[str, str], None],
    ) -> None:
        self._scheduler, self._runner, self._device = scheduler, runner, runner.model.device
        self._in_flight, self._drain, self._tell = in_flight, drain, tell
        self._first = ""  # of the steps that ran out of memory since one went well

    def after(self, error: Exception, plan: StepPlan, launched: bool = False) -> None:
        """`launched`: the step failed when it was read. Raises DeviceLost where no step will do better."""
        fault = fault_of(error, self._device)
        if fault is Fault.DEVICE:
            raise device_lost(error) from error
        moved_on = bool(plan.members) and (launched or plan.rows[0].kind is not Kind.PREFILL)
        if fault is Fault.MEMORY and not moved_on:
            self._try_smaller(error, plan, launched)
        elif fault is Fault.MEMORY:
            self._tell("error", f"{_short_of_memory(error, plan)}; its requests end")
            self._end(plan, _out_of_memory(error, plan))
            self._free(error)
        else:
            self._tell("error", f"a step failed: {''.join(traceback.format_exception_only(error)).strip()}")
            self._end(plan, f"the step failed: {error}")

    def went_well(self, plan: StepPlan) -> None:
        """After a step was committed: tells what changed since the first one that ran out of memory."""
        ledger = self._scheduler.ledger
        if self._first and (not ledger.waiting_count or any(row.kind is Kind.PREFILL for row in plan.rows)):
            self._tell("warning", f"{self._first}; {ledger.limits.words}")
            self._first = ""

    def draft_failed(self, error: Exception) -> None:
        """The run goes on without drafts: what is said does not depend on them. Raises DeviceLost."""
        if fault_of(error, self._device) is Fault.DEVICE:
            raise device_lost(error) from error
        self._tell("warning", f"drafting failed: {first_line(error)}; the run goes on without drafts")
        release_references(error)
        self._scheduler.speculation = None

    def _end(self, plan: StepPlan, error: str) -> None:
        self._scheduler.abandon(plan, error)
        self._drain()
        self._runner.reset()

    def _try_smaller(self, error: Exception, plan: StepPlan, launched: bool) -> None:
        short, ends = _short_of_memory(error, plan), _out_of_memory(error, plan)
        if launched:  # what follows it in flight has read what it should have written
            for following in self._in_flight:
                with contextlib.suppress(Exception):
                    following.read()
            while self._in_flight:
                self._scheduler.retract(self._in_flight.pop().plan)
        self._scheduler.retract(plan)
        self._free(error)
        self._drain()
        self._runner.reset()
        if self._scheduler.shrink(plan, ends):
            self._first = self._first or short
        else:
            requests = " and ".join(str(row.branch.request.id) for row in plan.rows)
            self._tell("error", f"{short}; request {requests} ends, as it cannot be computed in less")
            self._first = ""

    def _free(self, error: Exception) -> None:
        release_references(error)  # its frames hold the step's tensors
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def _tokens(plan: StepPlan) -> str:
    tokens = sum(row.count + row.padding for row in plan.rows)
    return f"{tokens:,} token{'s' if tokens > 1 else ''}"


def _short_of_memory(error: Exception, plan: StepPlan) -> str:
    return f"a step of {_tokens(plan)} ran out of memory ({memory_asked(error)})"


def _out_of_memory(error: Exception, plan: StepPlan) -> str:
    return f"out of memory: a step of {_tokens(plan)} does not fit ({memory_asked(error)})"
