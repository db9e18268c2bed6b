"""A hub on loopback, small but with the real one's addresses, headers and refusals, that can also misbehave."""

import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

Files = dict[str, bytes]
TOKEN = "hf_good"
CHUNK = 1 << 16


@dataclass
class Repository:
    """A model: the files of each commit, and the commits that branches and tags name."""

    id: str
    commits: dict[str, Files]
    refs: dict[str, str]
    gated: str | bool = False
    private: bool = False
    downloads: int = 0
    tags: tuple[str, ...] = ("safetensors", "text-generation", "license:apache-2.0")
    card: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)  # sizes of files that are told and are not true

    def told(self, commit: str, blobs: bool) -> dict[str, Any]:
        siblings: list[dict[str, Any]] = []
        for name, content in self.commits[commit].items():
            sibling: dict[str, Any] = {"rfilename": name}
            if blobs:
                size = self.claims.get(name, len(content))
                sibling |= {"size": size, "blobId": git_hash(content)}
                if is_large(name):
                    sha256 = hashlib.sha256(content).hexdigest()
                    sibling["lfs"] = {"size": size, "sha256": sha256, "pointerSize": 134}
            siblings.append(sibling)
        return {
            "id": self.id, "sha": commit, "downloads": self.downloads, "likes": 7, "gated": self.gated,
            "private": self.private, "lastModified": "2026-01-02T03:04:05.000Z", "tags": list(self.tags),
            "pipeline_tag": "text-generation", "cardData": self.card, "siblings": siblings,
        }  # fmt: skip


def is_large(name: str) -> bool:
    """Whether the hub keeps it as a large file, named by its SHA-256."""
    return name.endswith((".safetensors", ".bin"))


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def etag_of(name: str, content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if is_large(name) else git_hash(content)


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    range: str = ""
    sent: int = 0


class SmallHub:
    """Serves `repositories` on `port`, or one of its own, while it is entered.

    `cuts` lists, by file name, after how many bytes the connections to it break, one an answer. `errors` lists, by a
    part of the path, the answers (status, headers) to give first. `damaged` files are sent with a byte changed.
    `pace` is seconds between chunks, `silence` before any answer. `ranges` False: whole files whatever is asked.
    """

    def __init__(self, *repositories: Repository, port: int = 0) -> None:
        self.repositories = {r.id: r for r in repositories}
        self.requests: list[Request] = []
        self.reset()
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self._server = _Server(("127.0.0.1", port), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="small-hub")

    def reset(self) -> None:
        self.requests.clear()
        self.cuts: dict[str, list[int]] = {}
        self.errors: dict[str, list[tuple[int, dict[str, str]]]] = {}
        self.damaged: set[str] = set()
        self.pace = self.silence = 0.0
        self.ranges = True

    def files_asked(self) -> list[str]:
        """Names of the files whose bodies were asked for, in order."""
        return [r.path.rsplit("/", 1)[1] for r in self.requests if "/resolve/" in r.path and r.method == "GET"]

    def sent(self, name: str) -> int:
        """Bytes of a file that left the hub."""
        return sum(r.sent for r in self.requests if r.path.endswith(f"/{name}"))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, *_: object) -> None:
        """A client that hung up, mostly: its test knows."""


class _Handler(BaseHTTPRequestHandler):
    hub: SmallHub
    protocol_version = "HTTP/1.1"
    timeout = 5

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        time.sleep(self.hub.silence)
        split = urlsplit(self.path)
        path = unquote(split.path)
        asked = Request(self.command, path, parse_qs(split.query), self.headers.get("Range", ""))
        self.hub.requests.append(asked)
        for part, answers in self.hub.errors.items():
            if part in path and answers:
                status, headers = answers.pop(0)
                self._refuse(status, "", "", headers)
                return
        if path == "/api/models":
            self._search(asked.query)
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._facts(match[1], match[2] or "main", "blobs" in asked.query)
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(asked, *match.groups())
        else:
            self._refuse(404, "", "Not found")

    def _search(self, query: dict[str, list[str]]) -> None:
        words = query.get("search", [""])[0].lower()
        tags = query.get("filter", [])
        found = [
            repository.told(repository.refs["main"], False)
            for repository in self.hub.repositories.values()
            if words in repository.id.lower() and set(tags) <= set(repository.tags) and not repository.private
        ]
        found.sort(key=lambda told: -told["downloads"])
        for told in found:
            del told["siblings"], told["cardData"]
        self._json(found[: int(query.get("limit", ["1000"])[0])])

    def _found(self, id: str, revision: str) -> tuple[Repository, str] | None:
        """The repository and commit; None once a refusal was sent."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        repository = self.hub.repositories.get(id)
        if token and token not in (TOKEN, "hf_stranger"):
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and token != TOKEN):
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        elif (commit := repository.refs.get(revision, revision)) not in repository.commits:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return repository, commit
        return None

    def _facts(self, id: str, revision: str, blobs: bool) -> None:
        if (found := self._found(id, revision)) is not None:
            self._json(found[0].told(found[1], blobs))

    def _file(self, asked: Request, id: str, revision: str, name: str) -> None:
        if (found := self._found(id, revision)) is None:
            return
        repository, commit = found
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repository.gated and token != TOKEN:
            page = f"Access to model {id} is restricted."
            self._refuse(403 if token else 401, "GatedRepo", page)
            return
        content = repository.commits[commit].get(name)
        if content is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        start, end = 0, len(content)
        if self.hub.ranges and (match := re.fullmatch(r"bytes=(\d+)-(\d*)", asked.range)):
            start, end = int(match[1]), min(end, int(match[2] or end) + 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("ETag", f'"{etag_of(name, content)}"')
        self.send_header("X-Repo-Commit", commit)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if asked.method == "GET":
            self._body(asked, name, content, start, end)

    def _body(self, asked: Request, name: str, content: bytes, start: int, end: int) -> None:
        if name in self.hub.damaged:
            content = content[:-1] + bytes([content[-1] ^ 1])
        cut = self.hub.cuts[name].pop(0) if self.hub.cuts.get(name) else None
        stop = end if cut is None else min(end, start + cut)
        try:
            while start < stop:
                chunk = content[start : min(stop, start + CHUNK)]
                self.wfile.write(chunk)
                asked.sent += len(chunk)
                start += len(chunk)
                if self.hub.pace:
                    time.sleep(self.hub.pace)
        except OSError:  # the other side hung up
            self.close_connection = True
            return
        if cut is not None:
            self.close_connection = True

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str, words: str, headers: dict[str, str] | None = None) -> None:
        body = b"<html>" if status == 200 else json.dumps({"error": words}).encode()
        self.send_response(status)
        for name, value in {"X-Error-Code": code, "X-Error-Message": words, **(headers or {})}.items():
            if value:
                self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
