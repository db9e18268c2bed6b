"""Checks of the kernels of one token of each of many sequences, which `test_interpreted.py` and, on a card,
`tests/gpu/test_techniques.py` run: they compute what the CPU's do, and touch the states of no other slot."""

import pytest
import torch
from torch import Tensor

from tests.engine.gpu_path import DEVICE, RUNS

if not RUNS:
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.kernels import state_steps
from engine.kernels.cpu import states
from engine.kernels.cpu.library import native
from engine.kernels.recurrence import Recurrence, Sequences

pytestmark = pytest.mark.skipif(native().library is None, reason=native().why)
ROWS, SLOTS, GROUPS, HEADS = 3, 6, 2, 4
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
CHANGED = [True, False, False, True, True, False]
WHOSE = Sequences(torch.tensor([4, 0, 3], dtype=torch.int32), torch.tensor([5, 1, 9]))


def noise(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def on_device(whose: Sequences) -> Sequences:
    return Sequences(whose.slots.to(DEVICE), whose.positions.to(DEVICE))


def near(made: Tensor, expected: Tensor) -> bool:
    most = float(expected.abs().max())
    return torch.allclose(made.cpu().float(), expected.float(), rtol=0, atol=TOLERANCE[made.dtype] * most)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("channels", "taps", "acts"), [(300, 4, True), (64, 3, False)])
def test_a_convolution_is_the_cpus(channels: int, taps: int, acts: bool, dtype: torch.dtype) -> None:
    x, weight = noise(ROWS, channels + 16, dtype=dtype)[:, 16:], noise(taps, channels, seed=1)
    bias = noise(channels, seed=2) if acts else None
    kept = noise(SLOTS, taps, channels, dtype=dtype, seed=3)
    ours, theirs = kept.to(DEVICE, copy=True), kept.clone()
    there = None if bias is None else bias.to(DEVICE)
    made = state_steps.convolution(x.to(DEVICE), ours.mT, weight.to(DEVICE), there, acts, on_device(WHOSE))
    assert near(made, states.convolution(x, theirs.mT, weight, bias, acts, WHOSE))
    assert torch.equal(ours.cpu(), theirs)
    assert (theirs != kept).flatten(1).any(1).tolist() == CHANGED


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("key", "value"), [(16, 32), (64, 16)])
def test_the_delta_rule_is_the_cpus(key: int, value: int, dtype: torch.dtype) -> None:
    assert state_steps.steps(key, value)
    mixed = noise(ROWS, 2 * GROUPS * key + HEADS * value, dtype=dtype)
    joined = noise(ROWS, HEADS * (value + 2), dtype=dtype, seed=1)
    gates = joined.split([HEADS * value, HEADS, HEADS], dim=1)
    decay, bias, norm = noise(HEADS, seed=3).exp(), 30 * noise(HEADS, seed=4), 1 + 0.1 * noise(value, seed=5)
    fixed = Recurrence(decay, bias, norm, GROUPS, 1e-6)
    kept = noise(SLOTS, HEADS, key, value, seed=2)
    ours, theirs = kept.to(DEVICE, copy=True), kept.clone()
    there = Recurrence(*(x.to(DEVICE) for x in (decay, bias, norm)), GROUPS, 1e-6)
    given = mixed.to(DEVICE), *(gate.to(DEVICE) for gate in gates)
    made = state_steps.delta_rule(*given, ours, there, on_device(WHOSE))
    assert near(made, states.delta_rule(mixed, *gates, theirs, fixed, WHOSE))
    ours = ours.cpu()
    assert torch.allclose(ours, theirs, rtol=0, atol=TOLERANCE[dtype] * float(theirs.abs().max()))
    assert (ours != kept).flatten(1).any(1).tolist() == CHANGED


def test_widths_that_fill_no_tile_are_left_to_torch() -> None:
    assert not state_steps.steps(48, 64)
    assert not state_steps.steps(256, 128)
    assert state_steps.steps(128, 128)
