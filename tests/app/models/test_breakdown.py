"""What the fit table says of a model that one GPU has no room for."""

from app.models.fit.breakdown import reason
from engine.memory import DeviceMemory, Fit

GB = 1 << 30


def test_a_model_that_would_fit_when_split_says_over_how_many() -> None:
    room = DeviceMemory("cuda", 12 * GB, 12 * GB)
    bill = Fit("none", "bfloat16", 16 * GB, 131_072, GB // 4, 0, 0, fits=False, devices=2)
    assert reason(bill, room).endswith("4.25 GB more than is free; split over 2 such GPUs it would fit")
    alone = Fit("none", "bfloat16", 16 * GB, 131_072, GB // 4, 0, 0, fits=False)
    assert reason(alone, room).endswith("more than is free")
