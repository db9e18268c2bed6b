"""Several engines behind one face: a router, and requests that go on elsewhere when an engine dies."""

from engine.serving.fleet.fleet import Fleet
from engine.serving.fleet.local import local_fleet
