"""Refusals in the shape that OpenAI's clients know: {"error": {message, type, param, code}}."""

import re

from starlette.responses import JSONResponse, Response

from engine.config.checks import InvalidInput
from engine.trace.records import Ended

_NAMED = re.compile(r"([a-z_]+)=")
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """A request that is refused: `status` of HTTP, `param` the field that is wrong, `code` for programs."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def response(self) -> Response:
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body, self.status, headers)


def engine_failed(ended: Ended) -> ApiError:
    """Of a request that ended with an error of the engine's."""
    return ApiError(500, f"the engine failed: {ended.error}", None, "engine_error")


def refused(error: InvalidInput) -> ApiError:
    """What the engine says of a value it cannot take; it begins with the value's name."""
    named = _NAMED.match(str(error))
    return ApiError(400, str(error), named[1] if named else None, "invalid_value")
