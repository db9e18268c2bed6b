"""The window that watches a fleet: by itself, or beside the main one."""

from app.window.fleet.beside import FleetBeside
from app.window.fleet.window import FleetWindow
