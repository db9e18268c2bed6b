"""What the tests of request logs share: facts that are made up, a log's rows, and a PostgreSQL of our own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
from sqlalchemy import create_engine, select

from engine.config.sampling_params import SamplingParams
from engine.serving.exchange import Facts
from engine.serving.request_log.table import REQUESTS
from tests.waiting import until


def facts(number: int, **changes: Any) -> Facts:
    """A request that was answered in a second."""
    given: dict[str, Any] = {
        "id": f"cmpl-{number:06}",
        "route": "/v1/completions",
        "caller": "ann",
        "model": "demo",
        "traceparent": "",
        "tracestate": "",
        "params": SamplingParams(max_tokens=16),
        "streamed": False,
        "received": 1.7e9 + number,
        "scheduled": 1.7e9 + number + 0.1,
        "first": 1.7e9 + number + 0.2,
        "last": 1.7e9 + number + 0.9,
        "ended": 1.7e9 + number + 1,
        "prompt_tokens": 5,
        "cached_tokens": 0,
        "output_tokens": 16,
        "finish": ("length",),
        "status": 200,
        "error": "",
        "message": "",
        "prompts": ["Once"],
        "texts": (" upon a time",),
    }
    return Facts(**given | changes)


def rows_of(url: str) -> list[dict[str, Any]]:
    """All rows, in order of time; of a file too."""
    engine = create_engine(url if "://" in url else f"sqlite:///{url}")
    try:
        with engine.connect() as connection:
            return [dict(row) for row in connection.execute(select(REQUESTS).order_by(REQUESTS.c.time)).mappings()]
    finally:
        engine.dispose()


class Postgres:
    """A server of ours alone, on a socket in its own folder; it may be stopped hard and started again."""

    def __init__(self, programs: Path) -> None:
        self._programs, self._folder = programs, Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
        self._user: dict[str, Any] = {}
        if os.getuid() == 0:  # it refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        made = ["-D", f"{self._folder}/data", "-A", "trust", "-U", "batchscope", "--no-sync", "--no-instructions"]
        self._call("initdb", made)
        self.url = f"postgresql+psycopg://batchscope@/postgres?host={self._folder}"

    def _call(self, program: str, arguments: Sequence[str]) -> None:
        order = [str(self._programs / program), *arguments]
        subprocess.run(order, cwd=self._folder, check=True, capture_output=True, timeout=60, **self._user)

    def start(self) -> None:
        order = [str(self._programs / "postgres"), "-D", f"{self._folder}/data", "-k", str(self._folder), "-F"]
        order += ["-c", "listen_addresses=", "-c", "shared_buffers=8MB", "-c", "max_connections=10"]
        kept = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self._folder}
        self._process = subprocess.Popen(order, **kept, **self._user)
        until(self._answers)

    def _answers(self) -> bool:
        try:
            psycopg.connect(host=str(self._folder), user="batchscope", dbname="postgres").close()
        except psycopg.OperationalError:  # it is on its way
            return False
        return True

    def stop(self) -> None:
        """As a power failure would: nothing is finished."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        pid = self._folder / "data" / "postmaster.pid"
        pid.unlink(missing_ok=True)  # what a new one would ask about, as its children may still end

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(20)

    @contextmanager
    def halted(self) -> Iterator[None]:
        """It says nothing, and closes nothing."""
        assert self._process is not None
        all_of_it = [psutil.Process(self._process.pid)]
        all_of_it += all_of_it[0].children(recursive=True)
        for process in all_of_it:
            process.suspend()
        try:
            yield
        finally:
            for process in all_of_it:
                process.resume()

    def close(self) -> None:
        for _ in range(100):  # its children see within moments that it is gone
            shutil.rmtree(self._folder, ignore_errors=True)
            if not self._folder.exists():
                return
            time.sleep(0.05)
