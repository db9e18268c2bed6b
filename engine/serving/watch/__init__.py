"""Windows at other desks: they are sent the trace as it grows, and one of them may send, stop and steer."""

from engine.serving.watch.control import Control
from engine.serving.watch.hub import Hub
from engine.serving.watch.route import WatchRoute
