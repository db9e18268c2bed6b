"""Plays workloads against a server, and writes down what is seen from outside as a trace."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from threading import Event

import httpx2

from engine.compare.remote.asking import TIMEOUT, cannot, headers
from engine.compare.remote.play import Play
from engine.compare.remote.probe import Capabilities, probe
from engine.compare.remote.server import Server
from engine.config.checks import InvalidInput
from engine.config.specs import EngineConfig
from engine.core.run import Run
from engine.workloads.workload import Workload

MOST_OPEN = 1024
CLOSING = 10.0  # seconds


class ServerPlayer:
    """A server, asked what it can do. `run` plays a workload there by a real clock. Raises InvalidInput where nothing
    can be played, and LoadCancelled."""

    alive, error = True, ""

    def __init__(self, server: Server, cancelled: Event | None = None) -> None:
        self.server = server
        self.capabilities: Capabilities = probe(server, cancelled)
        self._loop = asyncio.new_event_loop()
        self._http = httpx2.AsyncClient(
            base_url=server.url,
            headers=headers(server),
            timeout=TIMEOUT,
            trust_env=not server.local,
            limits=httpx2.Limits(max_connections=MOST_OPEN, max_keepalive_connections=MOST_OPEN),
        )
        self._thread = threading.Thread(target=self._loop.run_forever, name="server lane", daemon=True)
        self._thread.start()

    def run(self, workload: Workload, config: EngineConfig | None = None) -> Run:
        """Starts a workload; its trace begins with what is known of the server. Raises InvalidInput for what no server
        can be asked, and for what this one cannot do."""
        for number, arrival in enumerate(workload.arrivals, 1):
            why = cannot(arrival.params)
            ids = isinstance(arrival.prompt, list) and bool(arrival.prompt) and isinstance(arrival.prompt[0], int)
            for lack, asked in (("token_ids", ids), ("n", arrival.params.n > 1)):
                if asked and lack in self.capabilities.lacks:
                    why = f"{self.server.url} takes {dict(zip(('token_ids', 'n'), ('no token ids', 'no n')))[lack]}"
            if why:
                raise InvalidInput(f"prompt {number}: {why}")
        samples = sum(arrival.params.branches for arrival in workload.arrivals)
        most = min(samples, (workload.concurrency or samples) * max(a.params.branches for a in workload.arrivals))
        play = Play(self.server, self.capabilities, self._http, self._loop, most)
        return Run(workload, play.trace, play.submit_many, play.cancel)

    def close(self) -> None:
        """Lets go of the connections; requests that run end as cancelled. Idempotent."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(CLOSING)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSING)
        if not self._thread.is_alive():
            self._loop.close()

    async def _close(self) -> None:
        asking = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await self._http.aclose()
