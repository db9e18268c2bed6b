"""The server: a socket, uvicorn on it, and its end."""

import logging
import socket
import ssl
from collections.abc import Callable

import uvicorn

from engine.config.checks import InvalidInput
from engine.core.face import EngineFace
from engine.serving.app import Gates, make_app
from engine.serving.exchange import Outlet, Sink
from engine.serving.service import Service
from engine.serving.settings import ServingSettings
from engine.serving.watch import Hub

DRAIN = 600.0  # seconds that running requests may take to end once the server is told to
QUIET = 60.0  # seconds that a window's line may be too full to answer
GLANCE = 1.0  # seconds between looks at the engine
KEPT = 8_192  # of the trace's records


class Server:
    """Takes its address and reads its keys at once; `run` serves. Raises InvalidInput for what a person can mend."""

    def __init__(self, settings: ServingSettings) -> None:
        self.settings = settings
        self._gates = Gates(settings)
        self._check_tls()
        self._socket = _bound(settings)
        self._bound_to: tuple[str, int] = self._socket.getsockname()[:2]  # to be told after its end too
        try:
            self._outlet = Outlet(_sinks(settings))
        except BaseException:
            self._socket.close()
            raise
        self._uvicorn: _Uvicorn | None = None

    @property
    def closed(self) -> bool:
        """Whether callers need a key."""
        return self._gates.closed

    def own_key(self) -> str:
        """A key for a window that this process opens beside itself; "" where none is asked for."""
        return self._gates.own_key()

    @property
    def address(self) -> str:
        scheme = "https" if self.settings.tls_certificate is not None else "http"
        host, port = self._bound_to
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self, engine: EngineFace, model: str, ready: Callable[[str], None] = lambda address: None) -> None:
        """Serves until it is told to stop, by `stop`, SIGTERM or Ctrl+C, or until the engine ends. Requests that run
        then end first."""
        service = Service(engine, model, self.settings, self._outlet)
        hub = Hub(service, self._gates.control())
        config = uvicorn.Config(
            make_app(service, self._gates, hub, self.settings),
            loop="uvloop",
            http="httptools",
            ws="websockets-sansio",
            ws_max_size=self.settings.body,
            ws_ping_timeout=QUIET,
            ws_per_message_deflate=False,  # what is long is deflated already, off the event loop
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ssl_certfile=self.settings.tls_certificate,
            ssl_keyfile=self.settings.tls_key,
            timeout_graceful_shutdown=DRAIN,  # type: ignore[arg-type]
            timeout_notify=GLANCE,  # type: ignore[arg-type]
        )
        logging.getLogger("uvicorn.access").disabled = True  # no line a request: what clients send is theirs
        self._uvicorn = _Uvicorn(config, service, hub, lambda: ready(self.address))
        try:
            self._uvicorn.run([self._socket])
        finally:
            hub.requests.close()
            service.close()
            self.close()

    def stop(self) -> None:
        """From any thread: no new requests, and `run` returns when the running ones have ended."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True

    def close(self) -> None:
        """Gives the address back, of a server that does not run; what is known of requests goes where it is to."""
        self._socket.close()
        self._outlet.close()

    def _check_tls(self) -> None:
        if (certificate := self.settings.tls_certificate) is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, self.settings.tls_key)
        except (ssl.SSLError, OSError) as error:
            key = self.settings.tls_key
            raise InvalidInput(f"tls: {certificate} and {key} are no certificate with its key: {error}") from error


class _Uvicorn(uvicorn.Server):
    """Says when it is ready; lets go of old records; ends with its engine."""

    def __init__(self, config: uvicorn.Config, service: Service, hub: Hub, ready: Callable[[], None]) -> None:
        super().__init__(config)
        config.callback_notify = self._look
        self._service, self._hub, self._ready = service, hub, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.draining = True
        await super().shutdown(sockets)

    async def _look(self) -> None:
        engine = self._service.engine
        if not engine.alive:
            self.should_exit = True
        await self._service.aside(self._hub.keep_up)
        if (old := min(len(engine.trace.records) - KEPT, self._hub.position)) > 0:
            engine.trace.forget(old)


def _sinks(settings: ServingSettings) -> list[Sink]:
    """Who is told of requests that are over. Raises InvalidInput."""
    found: list[Sink] = []
    try:
        if settings.request_log is not None:
            from engine.serving.request_log import RequestLog

            found.append(RequestLog(settings.request_log))
        if settings.otlp is not None:
            from engine.serving.otlp import Otlp

            found.append(Otlp(settings.otlp))
    except ImportError as error:
        for sink in found:
            sink.close()
        raise InvalidInput(f"{error.name} is missing: pip install 'batchscope[serve,otel]'") from error
    return found


def _bound(settings: ServingSettings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        taken = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(f"host={settings.host}: it is no address of this machine: {error.strerror}") from error
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)  # before the model is loaded, so that a port that is taken costs no wait
    except OSError as error:
        taken.close()
        said = f"port={settings.port}: {settings.host} cannot be listened on: {error.strerror}; choose another --port"
        raise InvalidInput(said) from error
    return taken
