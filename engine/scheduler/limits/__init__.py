"""How large a step may be: what a person has set, and less for memory that ran out or for a target between tokens."""

from engine.scheduler.limits.limits import Limits
from engine.scheduler.limits.pace import Pace
