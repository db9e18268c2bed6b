"""A draft begins a branch's block table anew whenever the branch has got one."""

from engine import EngineConfig, ModelSpec, SamplingParams
from engine.models.loading import load
from engine.runner.draft_model import DraftModel
from engine.runner.paged_cpu import PagedRunner
from engine.scheduler import BlockPool, Scheduler
from tests.engine.requests import make_request


def test_what_the_draft_computes_first_of_a_branch_joins_with_its_new_blocks() -> None:
    """So that a device which remembers tables hears of those that a preempted branch came back with."""
    model = load(ModelSpec("demo-draft", device="cpu"))
    config = EngineConfig(max_running=2, token_budget=16, block_size=4)
    drafts, scheduler = DraftModel(PagedRunner(model, config, 20), 16), Scheduler(config, BlockPool(20, 4))
    scheduler.add(make_request(model, 0, 9, SamplingParams(max_tokens=3, temperature=0)))
    plan = scheduler.plan()
    assert plan is not None
    branch = plan.rows[0].branch
    assert drafts._row(branch, branch.slot, 0).joins
    branch.drafting = 4
    assert not drafts._row(branch, branch.slot, 0).joins
    assert not drafts._row(branch, branch.slot, 1).joins
