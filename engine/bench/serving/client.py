"""Clients that read many streams at once and do no more than count: `python -m engine.bench.serving.client`.

For each line on stdin, a list of bodies as JSON, sends them all to the given host and port, and prints a line: seconds
until the last was over, server-sent events, tokens.
"""

import asyncio
import json
import re
import sys
import time
from typing import Any

USAGE = re.compile(rb'"completion_tokens":(\d+)')


async def _one(host: str, port: int, body: bytes) -> tuple[int, int]:
    """Events and tokens of one stream. Raises RuntimeError for what is no whole answer."""
    reader, writer = await asyncio.open_connection(host, port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    events, tail = 0, b""
    while data := await reader.read(1 << 16):
        events += data.count(b"data: ")
        tail = (tail + data)[-1024:]
    writer.close()
    tokens = USAGE.findall(tail)
    if b"data: [DONE]" not in tail or not tokens:
        raise RuntimeError(f"a stream ended early: {tail[-300:]!r}")
    return events, int(tokens[-1])


async def _all(host: str, port: int, bodies: list[Any]) -> dict[str, float]:
    begun = time.perf_counter()
    told = await asyncio.gather(*(_one(host, port, json.dumps(body).encode()) for body in bodies))
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "events": sum(e for e, _ in told), "tokens": sum(t for _, t in told)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(_all(sys.argv[1], int(sys.argv[2]), json.loads(line)))), flush=True)
