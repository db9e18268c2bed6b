"""What of a race's measures people look at first."""

from app.compare.race.results import FEW, _first


def test_what_each_priority_waited_stands_beside_what_all_did() -> None:
    keys = ["output_throughput", "ttft.mean", "ttft.p50", "ttft.p95", "ttft.p50.-1", "ttft.p50.0", "itl.p99", "steps"]
    assert _first(keys) == ["output_throughput", "ttft.p95", "ttft.p50.-1", "ttft.p50.0", "itl.p99"]
    assert _first(FEW) == FEW, "of one priority there is nothing more"
