"""What a device that is not here would do at the most: plain arithmetic, and what a trace counts of a real step."""

import pytest

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams
from engine.checkpoints import inspect_model
from engine.memory import Datasheet, datasheets, find_datasheet, fits, published
from engine.trace import Step, count_work
from engine.workloads import demo_workload

SLOW = Datasheet("slow", 1 << 30, 1e9, {"float32": 1e15})
NARROW = Datasheet("narrow", 1 << 30, 1e15, {"float32": 1e9})


def test_names_are_found_as_people_say_them() -> None:
    assert find_datasheet("rtx4090") is find_datasheet("4090") is find_datasheet("RTX 4090")
    assert find_datasheet("h200").memory == 141 << 30
    assert find_datasheet("H1").name == "H100"
    with pytest.raises(InvalidInput, match="'rtx' is more than one; choose among RTX 3090, RTX 4060"):
        find_datasheet("rtx")
    with pytest.raises(InvalidInput, match="'abacus' is no device whose figures are known here; choose among RTX 3090"):
        find_datasheet("abacus")
    for sheet in datasheets():
        assert sheet.operations["bfloat16"] == sheet.operations["float16"] > sheet.operations["float32"]
        assert 0.005 < sheet.memory / sheet.bandwidth < 0.1, "seconds in which its memory is read once"


def test_a_card_is_known_by_its_drivers_name_unless_it_is_a_variant() -> None:
    cards = {"NVIDIA H100 80GB HBM3": "H100", "NVIDIA A100-SXM4-80GB": "A100", "NVIDIA L40S": "L40S", "NVIDIA L4": "L4"}
    assert {card: found.name for card in cards if (found := published(card))} == cards
    for card in ("NVIDIA H100 PCIe", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB", "Tesla T4"):
        assert published(card) is None


@pytest.mark.parametrize(("model", "rows"), [("demo", 4), ("demo-moe", 1)])
def test_a_bound_of_decoding_is_what_a_trace_counts_of_such_a_step(model: str, rows: int) -> None:
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    with Engine(ModelSpec(model, device="cpu"), EngineConfig(max_running=4), threads=1) as engine:
        run = engine.run(demo_workload(rows, params)).result()
    step = [record for record in run.records if isinstance(record, Step) and record.rows == rows][-1]
    work = count_work(run.header, [step])
    info, length = inspect_model(model), round(float(step.first.mean())) + 1
    (bill,) = fits(info, SLOW.room, dtype="float32", quantizations=["none"])
    size, operations = float(work.bytes[0]), float(work.operations[0])
    assert SLOW.decode_bound(info, bill, rows, length) == pytest.approx(rows / (size / 1e9), rel=0.01)
    assert NARROW.decode_bound(info, bill, rows, length) == pytest.approx(rows / (operations / 1e9), rel=0.01)
    assert Datasheet("none", 1, 1.0, {}).decode_bound(info, bill, rows, length) == 0
