"""The engine of a server, as if it ran here: its trace over a WebSocket, and what may be asked of it. No torch."""

from engine.remote.address import KEY_VARIABLE, ServerAddress, key_from
from engine.remote.engine import RemoteEngine
from engine.remote.link import ConnectionLost
from engine.remote.status import LinkStatus
