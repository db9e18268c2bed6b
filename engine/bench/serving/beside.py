"""Servers over one model, asked the same by the same client in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from engine.bench.serving.client import Asked, Heard
from engine.bench.serving.clients import Clients, clients
from engine.bench.serving.servers import KINDS, OURS, Kind, Room, Served, serving
from engine.trace.measures.spread import Spread
from engine.workloads import expand_template

STREAMS, TOKENS = 64, 80
ROUTE = "/v1/chat/completions"
# The demo model, told greedily to answer these, says more than TOKENS tokens to each: no end has to be ignored.
PROMPTS = (
    "Tell me a long story about a {fox|whale|dragon|robot|penguin|wizard|turtle|mouse} "
    "and a {lantern|violin|kite|piano|boat|map|clock|rose}."
)
CONTEXT = 32 + TOKENS


@dataclass(frozen=True, slots=True)
class Side:
    """A server's figures: output tokens a second and spreads in seconds, medians of the rounds. `same`: answers that
    say what ours say, of so many `asked`. `failures`: of each answer that did not come whole, why."""

    name: str
    settings: str
    throughput: float
    ttft: Spread
    itl: Spread
    e2e: Spread
    asked: int
    same: int
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """`missing`: of each server that could not be started, what brings it."""

    sides: tuple[Side, ...]
    missing: tuple[str, ...]
    threads: int
    rounds: int
    streams: int
    tokens: int

    @property
    def failed(self) -> bool:
        return any(side.failures for side in self.sides)

    def text(self) -> str:
        """As Markdown."""
        head = f"{self.streams} streams of {self.tokens} tokens, demo model, torch threads: {self.threads}"
        titles = "output tok/s", "TTFT p50, ms", "p95", "ITL p50, ms", "p95", "E2E p50, s", "p95", "failures", "as ours"
        lines = [f"| {head} | {' | '.join(titles)} |", f"|---|{'--:|' * len(titles)}"]
        for side in self.sides:
            cells = [f"{side.throughput:,.0f}"]
            cells += [f"{1e3 * value:,.0f}" for value in (side.ttft.p50, side.ttft.p95)]
            cells += [f"{1e3 * value:,.1f}" for value in (side.itl.p50, side.itl.p95)]
            cells += [f"{value:,.2f}" for value in (side.e2e.p50, side.e2e.p95)]
            cells += [f"{len(side.failures)} of {side.asked}", f"{side.same} of {side.asked}"]
            lines.append(f"| {side.name} | {' | '.join(cells)} |")
        lines += ["", *(f"{side.name}: {side.settings}" for side in self.sides)]
        lines += [f"{side.name}: {why}" for side in self.sides for why in dict.fromkeys(side.failures)]
        return "\n".join([*lines, *self.missing])


def race(
    rounds: int,
    threads: int,
    say: Callable[[str], None],
    kinds: Sequence[Kind] = KINDS,
    streams: int = STREAMS,
    tokens: int = TOKENS,
) -> Beside:
    """So many rounds in turns, after one that warms up. What is not installed, or does not start, is told as missing;
    ours must. All servers wait while one is asked."""
    room, missing = Room(streams, CONTEXT - TOKENS + tokens, threads), []
    heard: dict[str, list[Heard]] = {}
    with ExitStack() as open_:
        asking, servers = open_.enter_context(clients()), list[Served]()
        for kind in kinds:
            if kind.missing:
                missing.append(kind.missing)
                continue
            say(f"starting {kind.name}")
            try:
                servers.append(open_.enter_context(serving(kind, room)))
            except RuntimeError as error:
                if kind is OURS:
                    raise
                missing.append(str(error))
        for turn in range(rounds + 1):
            for server in servers:
                found = _ask(asking, server, streams, tokens)
                rate = found.tokens / found.seconds if found.seconds else 0.0
                say(f"{f'round {turn} of {rounds}' if turn else 'warming up'}: {server.name}: {rate:,.0f} tok/s")
                if turn:
                    heard.setdefault(server.name, []).append(found)
    ours = [each.texts for each in heard[servers[0].name]]
    sides = [_side(server, heard[server.name], ours) for server in servers]
    return Beside(tuple(sides), tuple(missing), threads, rounds, streams, tokens)


def _ask(asking: Clients, server: Served, streams: int, tokens: int) -> Heard:
    common: dict[str, object] = {"model": server.order.model, "max_tokens": tokens, "temperature": 0, "stream": True}
    common |= {"stream_options": {"include_usage": True}, **server.order.more}
    prompts = expand_template(PROMPTS, streams)
    bodies = [common | {"messages": [{"role": "user", "content": prompt}]} for prompt in prompts]
    return asking.ask(Asked(server.port, ROUTE, bodies, tokens))


def _side(server: Served, heard: Sequence[Heard], ours: Sequence[Sequence[str]]) -> Side:
    def spread(samples: list[list[float]]) -> Spread:
        told = [Spread.of(sample) for sample in samples]
        names = Spread.__dataclass_fields__
        return Spread(*(statistics.median(getattr(each, name) for each in told) for name in names))

    return Side(
        name=server.name,
        settings=server.order.settings,
        throughput=statistics.median(each.tokens / each.seconds if each.seconds else 0.0 for each in heard),
        ttft=spread([each.ttft for each in heard]),
        itl=spread([each.gaps for each in heard]),
        e2e=spread([each.e2e for each in heard]),
        asked=sum(len(each.e2e) + len(each.failures) for each in heard),
        same=sum(bool(a) and a == b for each, own in zip(heard, ours) for a, b in zip(each.texts, own)),
        failures=tuple(why for each in heard for why in each.failures),
    )
