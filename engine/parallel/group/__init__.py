"""The ranks of one model as each of them has them: what they compute together, and over what they meet."""

from engine.parallel.group.collective import Collective
from engine.parallel.group.joining import chosen, chosen_for_stages, join
from engine.parallel.group.ranked import Group, Ranked
from engine.parallel.group.shared_memory import SharedMemory

__all__ = ["Collective", "Group", "Ranked", "SharedMemory", "chosen", "chosen_for_stages", "join"]
