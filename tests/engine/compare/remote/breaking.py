"""A server that says what it is given, and may break off."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine.compare.remote import Server


@contextmanager
def answering(
    *streams: str, status: int = 200, models: str = '{"data":[{"id":"m"}]}', promised: int | None = None
) -> Iterator[Server]:
    """A socket that says these bodies, one a request for an answer and the last for ever, and closes each time.
    `promised`: how many bytes it says that it will send."""
    said = iter(streams)
    headers = "Connection: close" if promised is None else f"Connection: close\r\nContent-Length: {promised}"

    class Handler(socketserver.StreamRequestHandler):
        last = streams[-1] if streams else ""

        def handle(self) -> None:
            head = self.rfile.readline()
            length = 0
            while (line := self.rfile.readline().strip().lower()) != b"":
                length = int(line.split(b":")[1]) if line.startswith(b"content-length") else length
            self.rfile.read(length)
            lists = head.startswith(b"GET")
            body = models if lists else next(said, self.last)
            code = 200 if lists else status
            self.wfile.write(f"HTTP/1.1 {code} X\r\n{headers}\r\n\r\n{body}".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Server(f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()


def event(text: str = "", finish: str = "null", more: str = "") -> str:
    return f'data: {{"choices":[{{"index":0,"text":"{text}","finish_reason":{finish}}}]{more}}}\n\n'


USAGE = ',"usage":{"prompt_tokens":5,"completion_tokens":7}'
DONE = "data: [DONE]\n\n"
WHOLE = event("a") + event("bc") + event("", '"length"', USAGE) + DONE
