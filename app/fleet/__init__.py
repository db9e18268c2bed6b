"""A fleet that serves, watched: its replicas, what each computes, and where requests go when one dies."""

from app.fleet.panel import FleetPanel
from app.fleet.source import FleetSource
