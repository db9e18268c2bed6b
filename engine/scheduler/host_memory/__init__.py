"""What blocks of the pool lie in host memory: those of preempted branches, and prefixes that the pool has forgotten."""

from engine.scheduler.host_memory.host_pool import HostPool
from engine.scheduler.host_memory.offloading import Offloading
from engine.scheduler.host_memory.swap_cost import SwapCost
from engine.scheduler.host_memory.swapping import Swapping
