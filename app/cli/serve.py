"""`batchscope serve`: the engine over HTTP."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from app.cli.key import keys_of, keys_option
from app.cli.requests import otlp_of, request_log_of, telling_options
from app.cli.shared.options import (
    check_model,
    config_of,
    engine_options,
    has_display,
    model_options,
    size_in_bytes,
    spec_of,
    whole,
)
from app.cli.shared.progress import Bar
from engine import EngineConfig, EngineProcess, InvalidInput, ModelSpec
from engine.config import check
from engine.core import EngineFace, usable_cores
from engine.remote import KEY_VARIABLE
from engine.serving import JwtRules, ServingSettings

NEEDED = ("starlette", "uvicorn", "uvloop", "httptools", "pydantic", "jwt", "prometheus_client", "websockets")
EVERY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # addresses to listen on, and by which a window here calls them
CLOSING = 10.0  # seconds that the window beside a server may take to close with it


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    does = "answer over HTTP as OpenAI's interface: chat, completions, models, metrics"
    to = commands.add_parser("serve", help=does)
    default = ServingSettings()
    to.add_argument("--host", default=default.host, help="address to listen on; another than this machine needs keys")
    to.add_argument("--port", type=int, default=default.port, help=f"default: {default.port}; 0: any that is free")
    to.add_argument("--name", help="what requests call the model (default: as --model has it)")
    keys_option(to)
    to.add_argument("--jwt-secret", type=Path, metavar="FILE", help="take JSON web tokens signed with it (HS256)")
    to.add_argument("--jwks", type=Path, metavar="FILE", help="take JSON web tokens signed with its keys (RS256)")
    to.add_argument("--jwt-issuer", metavar="NAME", help="whose tokens are taken")
    to.add_argument("--jwt-audience", metavar="NAME", help="for whom they must be")
    named = "a name by which clients call this host; may be given several times"
    to.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=named)
    pages = "a web page's origin that may call it from a browser; may be given several times"
    to.add_argument("--cors", action="append", default=[], metavar="ORIGIN", help=pages)
    queue = f"so many samples may wait beside those that run; others get 429 (default: {default.queue})"
    to.add_argument("--queue", type=int, default=default.queue, metavar="N", help=queue)
    to.add_argument("--per-key", type=whole, metavar="N", help="samples that one key may have open (default: all)")
    body = "the longest body that is taken (default: 8M)"
    to.add_argument("--max-body", type=size_in_bytes, default=default.body, metavar="SIZE", help=body)
    fleet = "engines of this machine that share the work; what runs at one that dies goes on at another (default: 1)"
    to.add_argument("--replicas", type=whole, default=1, metavar="N", help=fleet)
    to.add_argument("--ray", action="store_true", help="let Ray Serve keep the replicas, on this machine or a cluster")
    most = "with --ray: up to so many as more requests are open than run (default: as many as --replicas)"
    to.add_argument("--max-replicas", type=whole, metavar="N", help=most)
    where = "with --ray: a cluster's address, such as ray://head:10001 or auto (default: Ray begins here)"
    to.add_argument("--ray-address", metavar="ADDRESS", help=where)
    kills = "callers may end a replica (POST /fleet/kill), to show that its streams go on"
    to.add_argument("--allow-kill", action="store_true", help=kills)
    to.add_argument("--tls-cert", type=Path, metavar="FILE", help="serve https with this certificate, PEM")
    to.add_argument("--tls-key", type=Path, metavar="FILE", help="and its key, PEM")
    who = "a key whose window may send, stop and steer, and reads all texts; may be given several times"
    to.add_argument("--control", action="append", default=[], metavar="NAME", help=who)
    to.add_argument("--share-text", action="store_true", help="windows that only watch read texts too")
    to.add_argument("--window", action="store_true", help="open the window beside the server, connected to it")
    telling_options(to)
    model_options(to)
    engine_options(to)
    to.set_defaults(command=serve)


def serve(options: argparse.Namespace) -> int:
    """Everything is checked, and the address taken, before the model is loaded."""
    spec, config, settings = spec_of(options), config_of(options), settings_of(options)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise InvalidInput(f"serving needs {', '.join(missing)}: pip install 'batchscope[serve]'")
    check_ray(options)
    if options.window and not has_display():
        raise InvalidInput("window: there is no display to open one on; leave --window out")
    from engine.serving import Server

    check_model(spec)
    name = options.name or name_of(spec)
    check(name not in spec.adapter_names, "name", name, "an adapter is called so; give one of them another")
    server = Server(settings)
    try:
        with Bar(quiet=False) as bar:
            engine = loaded(spec, config, options, bar)
        key = server.own_key() if options.window else ""
        said = f"serving {name} at {{}}/v1" + ("" if server.closed else "; no key is asked for")
        with engine, term_is_heard(), ExitStack() as beside:

            def ready(address: str) -> None:
                print(said.format(address), flush=True)
                if options.window:
                    beside.enter_context(window_at(address, key))

            server.run(engine, name, ready)
            failed = not engine.alive
    finally:
        server.close()
    if failed:
        print(f"batchscope: {engine.error}", file=sys.stderr)
    return int(failed)


def loaded(spec: ModelSpec, config: EngineConfig, options: argparse.Namespace, bar: Bar) -> EngineFace:
    """One engine, or a fleet of them; HTTP has a core for itself."""
    from engine.serving import local_fleet, ray_fleet

    count: int = options.replicas
    threads = {"threads": options.threads, "most_threads": max(1, (usable_cores() - 1) // count)}
    if options.ray:
        return ray_fleet(spec, config, count, options.max_replicas, address=options.ray_address, **threads)
    if count == 1:
        return EngineProcess(spec, config, progress=bar.loading, **threads)
    return local_fleet(spec, config, count, progress=bar.loading, **threads)


def check_ray(options: argparse.Namespace) -> None:
    """Raises InvalidInput."""
    for name in ("max_replicas", "ray_address"):
        if getattr(options, name) is not None and not options.ray:
            raise InvalidInput(f"{name}={getattr(options, name)}: give --ray with it; plain replicas are --replicas")
    if options.ray and find_spec("ray") is None:
        raise InvalidInput("--ray needs Ray Serve: pip install 'batchscope[ray]'; --replicas alone needs nothing")


def settings_of(options: argparse.Namespace) -> ServingSettings:
    """Raises InvalidInput."""
    jwt = None
    if any((options.jwt_secret, options.jwks, options.jwt_issuer, options.jwt_audience)):
        if not (options.jwt_issuer and options.jwt_audience):
            raise InvalidInput("JSON web tokens: name --jwt-issuer and --jwt-audience, which tokens must have")
        jwt = JwtRules(options.jwt_issuer, options.jwt_audience, options.jwt_secret, options.jwks)
    return ServingSettings(
        options.host,
        options.port,
        keys_of(options),
        jwt,
        tuple(options.allow_host),
        tuple(options.cors),
        options.queue,
        options.per_key,
        options.max_body,
        options.tls_cert,
        options.tls_key,
        kills=options.allow_kill,
        request_log=request_log_of(options),
        otlp=otlp_of(options),
        controllers=tuple(options.control),
        share_text=options.share_text,
    )


def name_of(spec: ModelSpec) -> str:
    """A hub id as it is, a folder by its name."""
    path = Path(spec.source).expanduser()
    return path.resolve().name if path.exists() else spec.source


@contextmanager
def window_at(address: str, key: str) -> Iterator[None]:
    """A window that is connected to this server, in a process of its own. Closing it ends no server; a server that ends
    closes it."""
    parts = urlsplit(address)
    if parts.hostname in EVERY:
        address = f"{parts.scheme}://{EVERY[parts.hostname]}:{parts.port}"
    window = subprocess.Popen(
        [sys.executable, "-m", "app", "--connect", address], env={**os.environ, KEY_VARIABLE: key}
    )
    try:
        yield
    finally:
        window.terminate()
        try:
            window.wait(CLOSING)
        except subprocess.TimeoutExpired:
            window.kill()
            window.wait()


@contextmanager
def term_is_heard() -> Iterator[None]:
    """SIGTERM, which the server has acted on, ends nothing else."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
