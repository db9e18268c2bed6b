"""What `test_on_ray` runs in a process of its own: Ray leaves threads and handlers behind."""

import os
import signal

import pytest

from engine import EngineProcess, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.serving.fleet.on_ray import ray_fleet
from tests.engine.serving.fleet.conftest import CONFIG, busiest, said, story, undisturbed, whole
from tests.waiting import until


def main() -> None:
    params = [SamplingParams(max_tokens=150, seed=i, temperature=i % 2, ignore_eos=True) for i in range(8)]
    prompts = [story(i) for i in range(8)]
    with EngineProcess(ModelSpec("demo"), CONFIG, threads=1) as alone:
        want = undisturbed(alone, prompts, params)
    with ray_fleet(ModelSpec("demo"), CONFIG, 2, threads=1) as fleet:
        for turn in range(2):
            streams = fleet.submit_many([Submission(p, each) for p, each in zip(prompts, params)])
            until(lambda: min(len(s.deltas) for s in streams) > 5)  # noqa: B023
            victim = busiest(fleet).engine
            if turn:  # its engine alone, or the actor beside it
                victim.kill()  # type: ignore[attr-defined]
            else:
                os.kill(victim.pid, signal.SIGKILL)  # type: ignore[attr-defined]
            assert [said(s.results(timeout=60)) for s in streams] == [said(one) for one in want]
            until(lambda: whole(fleet))
        assert fleet.state["deaths"] == 2
        with pytest.raises(InvalidInput, match="regex"):
            fleet.submit("Once", SamplingParams(regex="[0-9"))
        stream = fleet.submit(story(1), SamplingParams(max_tokens=900, ignore_eos=True))
        until(lambda: bool(stream.deltas))
        stream.cancel()
        assert stream.result(timeout=30).finish_reason == "cancelled"
    print("two died, and nothing was said otherwise")


if __name__ == "__main__":
    main()
