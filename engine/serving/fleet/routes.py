"""What a fleet tells over HTTP, and how one of its replicas is ended to show what becomes of its streams."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.serving.answering import body_of
from engine.serving.asked.reading import Asked, read
from engine.serving.errors import ApiError
from engine.serving.fleet.fleet import Fleet
from engine.serving.service import Service


class AskedKill(Asked):
    place: int


def fleet_routes(service: Service) -> list[Route]:
    """None where one engine answers."""
    fleet = service.engine
    if not isinstance(fleet, Fleet):
        return []

    async def state(request: Request) -> Response:
        return JSONResponse(fleet.state | {"model": service.model, "kills": service.settings.kills})

    async def kill(request: Request) -> Response:
        if not service.settings.kills:
            raise ApiError(403, "no replica is ended for a caller here; serve with --allow-kill", None, "not_allowed")
        place = read(AskedKill, await body_of(request)).place
        if not fleet.kill(place):
            raise ApiError(404, f"there is no replica {place} now", "place", "not_found")
        return JSONResponse({"place": place})

    return [Route("/fleet", state), Route("/fleet/kill", kill, methods=["POST"])]
