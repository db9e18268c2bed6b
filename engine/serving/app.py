"""The routes, and what stands before them."""

import os

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from engine.config.checks import InvalidInput
from engine.remote.frames import PATH
from engine.serving.access.gate import BodyGate, HostGate, KeyGate
from engine.serving.access.keys import Key, KeyFile, KeyRing, keys_of_environment, made_key
from engine.serving.access.tokens import TokenReader
from engine.serving.answering import Answering, body_of
from engine.serving.answers import ChatForm, CompletionForm
from engine.serving.asked import AskedChat, AskedCompletion, AskedText, AskedTokens, read
from engine.serving.errors import ApiError
from engine.serving.fleet.routes import fleet_routes
from engine.serving.metrics.exposition import exposition
from engine.serving.service import Service
from engine.serving.settings import ServingSettings
from engine.serving.watch import Control, Hub, WatchRoute

OWN_WINDOW = "this server's window"


class Gates:
    """Who may ask, read from files once, before anything is loaded. Raises InvalidInput."""

    def __init__(self, settings: ServingSettings) -> None:
        file = KeyFile(settings.keys) if settings.keys is not None else None
        self._settings = settings
        self._own = list[Key]()
        self._keys = KeyRing(file, keys_of_environment(os.environ), self._own)
        self._tokens = TokenReader(settings.jwt) if settings.jwt is not None else None
        if not settings.loopback and not self.closed:
            raise InvalidInput(
                f"host={settings.host}: others can reach this address, and no key is asked for; "
                "make one with `batchscope key new`, or serve on 127.0.0.1"
            )
        if settings.controllers and not self.closed:
            said = "no key is asked for here, so that nobody has a name, and the first window has control; leave it out"
            raise InvalidInput(f"control={settings.controllers[0]}: {said}")

    @property
    def closed(self) -> bool:
        """Whether callers need a key."""
        return self._keys.required or self._tokens is not None

    def own_key(self) -> str:
        """A key of this process alone, for a window that it opens itself: it may have control. "" where none is asked
        for."""
        if not self.closed:
            return ""
        told, kept = made_key(OWN_WINDOW)
        self._own.append(kept)
        return told

    def control(self) -> Control:
        """Who may have it, of the windows that watch."""
        own = tuple(key.name for key in self._own)
        return Control((*self._settings.controllers, *own) if self.closed else None)

    def before(self, app: ASGIApp) -> ASGIApp:
        """The app behind them."""
        settings = self._settings
        app = KeyGate(BodyGate(app, settings.body), self._keys, self._tokens)
        if settings.origins:
            said = ("Authorization", "Content-Type")
            app = CORSMiddleware(app, settings.origins, allow_methods=("GET", "POST"), allow_headers=said)
        return HostGate(app, settings)


def make_app(service: Service, gates: Gates, hub: Hub, settings: ServingSettings) -> ASGIApp:
    """The whole server, but for its socket."""
    routes = [
        Route("/v1/chat/completions", Answering(service, AskedChat, ChatForm), methods=["POST"]),
        Route("/v1/completions", Answering(service, AskedCompletion, CompletionForm), methods=["POST"]),
        *_Plain(service).routes,
        *fleet_routes(service),
        WebSocketRoute(PATH, WatchRoute(service, hub, settings)),
    ]
    handlers = {ApiError: _told, HTTPException: _no_route}
    return gates.before(Starlette(routes=routes, exception_handlers=handlers))


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return ApiError(405, f"{request.method} is not taken here; see the Allow header").response
    said = f"there is no {request.url.path[:200]}; answers are at POST /v1/chat/completions and POST /v1/completions"
    return ApiError(error.status_code, said, None, "unknown_url").response


class _Plain:
    """The routes that generate nothing."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.routes = [
            Route("/v1/models", self._models),
            Route("/v1/models/{model:path}", self._model),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/detokenize", self._detokenize, methods=["POST"]),
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
        ]

    async def _models(self, request: Request) -> Response:
        names = "", *self._service.engine.card.adapters
        return JSONResponse({"object": "list", "data": [self._service.described(name) for name in names]})

    async def _model(self, request: Request) -> Response:
        service = self._service
        return JSONResponse(service.described(service.adapter(request.path_params["model"])))

    async def _tokenize(self, request: Request) -> Response:
        service, asked = self._service, read(AskedText, await body_of(request))
        service.adapter(asked.model)
        with service.admission.enter(request.scope["caller"]):
            tokens = await service.ask(lambda: service.engine.encode(asked.whole))
        about = {"count": len(tokens), "max_model_len": service.engine.card.context or None}
        return JSONResponse(about | {"tokens": tokens})

    async def _detokenize(self, request: Request) -> Response:
        service, asked = self._service, read(AskedTokens, await body_of(request))
        service.adapter(asked.model)
        with service.admission.enter(request.scope["caller"]):
            return JSONResponse({"prompt": await service.ask(lambda: service.engine.decode(asked.tokens))})

    async def _health(self, request: Request) -> Response:
        """Whether the engine lives."""
        return Response(status_code=200 if self._service.engine.alive else 503)

    async def _ready(self, request: Request) -> Response:
        """Whether requests are taken."""
        fault = self._service.fault
        return JSONResponse({"ready": not fault, "why": fault or None}, 503 if fault else 200)

    async def _metrics(self, request: Request) -> Response:
        more = [metric for sink in self._service.outlet.sinks for metric in sink.collect()]
        return Response(exposition(self._service.observer, more), media_type=CONTENT_TYPE_LATEST)
