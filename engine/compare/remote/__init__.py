"""Lanes that are somebody else's server: a workload played against a URL, and what can be seen from outside.

`player.py` and `probe.py` are imported where a lane is played: a window that only shows runs needs no HTTP client.
"""

from engine.compare.remote.server import SERVER_GRAMMAR, Server, parse_server
