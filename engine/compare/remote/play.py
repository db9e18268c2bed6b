"""One run of a workload at a server: its requests under way, and the trace that they write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

import httpx2
import numpy as np

from engine.compare.remote.asking import (
    CLOSED,
    LONGEST_ERROR,
    Pieces,
    ServerFailed,
    body,
    events,
    route,
    status_words,
    tokens_of,
)
from engine.compare.remote.probe import Capabilities
from engine.compare.remote.sample import UNTOLD, Sample
from engine.compare.remote.server import Server
from engine.config.specs import EngineConfig
from engine.config.submission import Submission
from engine.core.stream import Stream, Ticket
from engine.trace.records import Ended, FinishReason, Header, Kind, Machine, ModelCard, Notice, Step, Submitted
from engine.trace.trace import Trace


class Play:
    """A trace of what is known from outside. A piece of text is told as a step of one row, at the moment at which it
    came; its token's id is not known. Everything but `submit_many` and `cancel` runs on the thread of `loop`."""

    def __init__(
        self, server: Server, able: Capabilities, http: httpx2.AsyncClient, loop: asyncio.AbstractEventLoop, slots: int
    ) -> None:
        self._able, self._http, self._loop = able, http, loop
        self._begun = time.perf_counter()
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._places: dict[tuple[int, int], int] = {}  # of samples that have said something and go on
        self._free = list(range(slots - 1, -1, -1))
        self._next = self._steps = 0
        self.trace = Trace([_header(server, able, slots)])
        for words in able.words:
            if not words.startswith("no log"):  # which no race needs
                self.trace.append(Notice(0.0, "info", f"{server.place}: {words}"))

    # On the run's thread.

    def submit_many(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        streams = []
        for each in submissions:
            request, self._next = self._next, self._next + 1
            due = (each.time or time.perf_counter()) - self._begun
            ids = each.prompt if isinstance(each.prompt, list) else []
            messages = tuple(m for m in ids if isinstance(m, dict))
            text = each.prompt if isinstance(each.prompt, str) else "\n".join(m["content"] for m in messages)
            tokens = np.array([] if messages else ids, np.int32)
            self.trace.append(Submitted(due, request, text, tokens, each.params, messages, each.label))
            ticket = Ticket(request, due, len(tokens), each.params.branches)
            streams.append(Stream(ticket, self.trace, lambda requests, _: self.cancel(requests)))
            self._loop.call_soon_threadsafe(self._begin, request, each)
        return streams

    def cancel(self, requests: Iterable[int]) -> None:
        for request in list(requests):
            self._loop.call_soon_threadsafe(self._stop, request)

    # On the loop's thread.

    @property
    def _now(self) -> float:
        return time.perf_counter() - self._begun

    def _begin(self, request: int, submission: Submission) -> None:
        self._asking[request] = self._loop.create_task(self._ask(request, submission))

    def _stop(self, request: int) -> None:
        if task := self._asking.get(request):
            task.cancel()

    async def _ask(self, request: int, submission: Submission) -> None:
        samples = [Sample() for _ in range(submission.params.branches)]
        reason, why = FinishReason.ERROR, ""
        try:
            try:
                ends = await self._hear(request, submission, samples)
            except CLOSED:
                if any(sample.heard for sample in samples):
                    raise
                ends = await self._hear(request, submission, samples)
            for ended in ends:
                self._end(ended)
            return
        except asyncio.CancelledError:
            reason = FinishReason.CANCELLED
        except ServerFailed as error:
            why = str(error)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            why = f"the connection broke: {' '.join(str(error).split()) or type(error).__name__}"
        except Exception as error:  # the request ends with it, and the lane goes on
            why = f"{type(error).__name__}: {error}"
        finally:
            self._asking.pop(request, None)
        for branch in range(len(samples)):
            self._end(Ended(self._now, request, reason, branch=branch, error=why))

    async def _hear(self, request: int, submission: Submission, samples: list[Sample]) -> list[Ended]:
        """One answer to its end. Raises ServerFailed where that is not a proper one."""
        able, prompt = self._able, submission.prompt
        completions = "completions" not in able.lacks
        asked = body(prompt, submission.params, able.model, completions, able.lacks)
        done, usage, pieces = False, None, Pieces()
        async with self._http.stream("POST", route(prompt, completions), json=asked) as response:
            if response.status_code != 200:
                data = b""
                async for part in response.aiter_bytes():
                    data += part
                    if len(data) > LONGEST_ERROR:
                        break
                raise ServerFailed(status_words(response.status_code, data))
            async for event in events(response):
                if event is None:
                    done = True
                    break
                now = self._now
                usage = event.get("usage") or usage
                for index, text, finish in pieces.of(event):
                    if not 0 <= index < len(samples):
                        raise ServerFailed(f"the server sent a sample {index} that was not asked for")
                    self._piece(request, index, samples[index], text, finish, now)
        done = done or "done" in able.lacks
        if not done or any(sample.finish is None for sample in samples):
            missing = "a finish reason" if done else "[DONE]"
            raise ServerFailed(f"the answer ended without {missing}: it is not whole")
        return self._ends(request, samples, usage)

    def _piece(self, request: int, index: int, sample: Sample, text: str, finish: str | None, now: float) -> None:
        if finish is not None:
            sample.tail, sample.finish, sample.finished = text, finish, now
        elif text:
            sample.heard, sample.last = sample.heard + 1, now
            self._step(request, index, sample.heard, text, now)

    def _ends(self, request: int, samples: list[Sample], usage: object) -> list[Ended]:
        """Of several samples a server tells the sum of tokens alone: those without a piece are told as the first's."""
        counted = tokens_of(usage, "completion_tokens")
        heard = [sample.heard for sample in samples]
        given: list[int | None] = [None] * len(samples)
        if counted is not None:
            given = [counted - sum(heard[1:]), *heard[1:]]
            if counted < sum(heard):
                words = f"request {request}: {sum(heard)} pieces of text came, and the server counts {counted} tokens"
                self.trace.append(Notice(self._now, "warning", words))
        prompt = tokens_of(usage, "prompt_tokens") or 0
        return [each.ended(request, i, given[i], prompt if i == 0 else 0) for i, each in enumerate(samples)]

    def _step(self, request: int, branch: int, place: int, text: str, now: float) -> None:
        slot = self._places.get((request, branch))
        if slot is None:
            slot = self._places[request, branch] = self._free.pop()
        waiting = len(self._asking) - len({request for request, _ in self._places})
        one = np.ones(1, np.int32)
        self.trace.append(
            Step(
                step=self._steps,
                started=now,
                ended=now,
                request=one * request,
                branch=one * branch,
                slot=one * slot,
                first=one * place,
                count=one,
                kind=np.full(1, Kind.DECODE, np.uint8),
                wasted=one * 0,
                token_row=one * 0,
                token=one * UNTOLD,
                logprob=np.zeros(1, np.float32),
                text=text,
                text_end=one * len(text),
                running=len(self._places),
                waiting=max(0, waiting),
                free_blocks=0,
                seconds={},
            )
        )
        self._steps += 1

    def _end(self, ended: Ended) -> None:
        slot = self._places.pop((ended.request, ended.branch), None)
        if slot is not None:
            self._free.append(slot)
        self.trace.append(ended)


def _header(server: Server, able: Capabilities, slots: int) -> Header:
    """What is known of a server's model: its name."""
    nothing = dict.fromkeys(("parameters", "layers", "heads", "kv_heads", "head_dim", "hidden", "vocabulary"), 0)
    nothing |= dict.fromkeys(("context", "weight_bytes", "kv_token_bytes"), 0)
    words = {"architecture": "", "dtype": "", "device": "", "quantization": "none"}
    card = ModelCard(name=able.model, source=server.url, chat=False, **nothing, **words)  # type: ignore[arg-type]
    config = EngineConfig(max_running=slots, token_budget=max(slots, EngineConfig().token_budget))
    machine = Machine(cpu="", cores=0, memory=0, threads=0)
    return Header(card, config, machine, {}, time.time(), 0, 0, outside=server.place, lacks=able.words)
