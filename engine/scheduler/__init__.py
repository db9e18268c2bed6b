"""Who computes what in the next step, and in which blocks: requests, the ledger, the modes' policies. No torch."""

from engine.scheduler.block_pool import BlockPool, blocks_for
from engine.scheduler.plan import Committed, Row, StepPlan
from engine.scheduler.request import Branch, Emission, Request
from engine.scheduler.scheduler import Scheduler
