"""The engine over HTTP, as OpenAI's clients speak it. No torch: the engine is a child process. Extra `serve`."""

from typing import TYPE_CHECKING, Any

from engine.serving.access.keys import KEYS_VARIABLE, KeyFile, made_key
from engine.serving.settings import JwtRules, OtlpSettings, RequestLogSettings, ServingSettings

if TYPE_CHECKING:
    from engine.serving.fleet import Fleet, local_fleet
    from engine.serving.fleet.on_ray import ray_fleet
    from engine.serving.request_log import last_requests
    from engine.serving.server import Server


def __getattr__(name: str) -> Any:
    if name in ("Fleet", "local_fleet"):
        from engine.serving import fleet

        return getattr(fleet, name)
    if name == "Server":  # needs what the extra brings
        from engine.serving.server import Server

        return Server
    if name == "ray_fleet":
        from engine.serving.fleet.on_ray import ray_fleet

        return ray_fleet
    if name == "last_requests":
        from engine.serving.request_log import last_requests

        return last_requests
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
