"""Windows that watch a fleet: one of its own, or beside the main one."""

from app.window.fleet.beside import FleetBeside
from app.window.fleet.window import FleetWindow, open_fleet
