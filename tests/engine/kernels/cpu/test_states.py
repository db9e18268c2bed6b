"""The kernels of layers that keep a state of a sequence, beside the same computed token by token in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.kernels.cpu.library import native
from engine.kernels.cpu.states import convolution, delta_rule, recurs
from engine.kernels.recurrence import Recurrence, Sequences

pytestmark = pytest.mark.skipif(native().library is None, reason=native().why)
# A prompt, one that goes on, one that begins with its only token, and a prompt's second part.
SLOTS, POSITIONS = [2] * 5 + [0] + [3] + [1] * 3, [0, 1, 2, 3, 4, 7, 0, 20, 21, 22]
WHOSE = Sequences(torch.tensor(SLOTS, dtype=torch.int32), torch.tensor(POSITIONS))
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True, params=[1, 2], ids=["one thread", "two threads"])
def _threads(request: pytest.FixtureRequest) -> None:
    torch.set_num_threads(request.param)


def noise(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def near(made: Tensor, expected: np.ndarray, dtype: torch.dtype) -> bool:
    off = np.abs(made.double().numpy() - expected).max()
    return bool(off <= TOLERANCE[dtype] * np.abs(expected).max())


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("channels", "taps", "acts"), [(100, 4, True), (64, 3, False)])
def test_a_convolution_goes_on_where_its_sequence_was(channels: int, taps: int, acts: bool, dtype: torch.dtype) -> None:
    x, weight, bias = noise(len(SLOTS), channels + 8, dtype=dtype)[:, :channels], noise(taps, channels, seed=1), None
    bias = noise(channels, seed=2) if acts else None
    recent = noise(5, taps, channels, dtype=dtype, seed=3).mT
    kept = recent.double().numpy().copy()
    expected = np.zeros((len(SLOTS), channels))
    for t, (slot, position) in enumerate(zip(SLOTS, POSITIONS)):
        before = np.zeros((channels, taps)) if position == 0 else kept[slot]
        kept[slot] = np.concatenate([before[:, 1:], x[t].double().numpy()[:, None]], axis=1)
        expected[t] = (kept[slot] * weight.double().numpy().T).sum(axis=1)
        if bias is not None:
            expected[t] = silu(expected[t] + bias.double().numpy())
    made = convolution(x, recent, weight, bias, acts, WHOSE)
    assert near(made, expected, dtype)
    assert recent.double().numpy().tolist() == kept.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("groups", "heads", "key", "value"), [(2, 4, 32, 48), (1, 3, 16, 128)])
def test_the_delta_rule_writes_what_a_state_lacks(
    groups: int, heads: int, key: int, value: int, dtype: torch.dtype
) -> None:
    tokens, width = len(SLOTS), 2 * groups * key + heads * value
    assert recurs(dtype, key, value)
    mixed, joined = noise(tokens, width, dtype=dtype), noise(tokens, heads * (value + 2), dtype=dtype, seed=1)
    gate, write, forget = joined.split([heads * value, heads, heads], dim=1)
    states = noise(5, heads, key, value, seed=2)
    fixed = Recurrence(noise(heads, seed=3).exp(), noise(heads, seed=4), 1 + 0.1 * noise(value, seed=5), groups, 1e-6)
    kept, expected = states.double().numpy().copy(), np.zeros((tokens, heads, value))
    for t, (slot, position) in enumerate(zip(SLOTS, POSITIONS)):
        if position == 0:
            kept[slot] = 0
        row = mixed[t].double().numpy()
        q, k = row[: groups * key].reshape(groups, key), row[groups * key : 2 * groups * key].reshape(groups, key)
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
        for h in range(heads):
            v = row[2 * groups * key + h * value :][:value]
            decay = np.exp(-fixed.decay[h].item() * np.log1p(np.exp(forget[t, h].item() + fixed.bias[h].item())))
            share, of = 1 / (1 + np.exp(-write[t, h].item())), h * groups // heads
            state = kept[slot, h] * decay
            kept[slot, h] = state = state + np.outer(k[of], (v - k[of] @ state) * share)
            out = (q[of] / np.sqrt(key)) @ state
            normed = out / np.sqrt((out * out).mean() + fixed.eps) * fixed.norm.double().numpy()
            expected[t, h] = normed * silu(gate[t].double().numpy().reshape(heads, value)[h])
    made = delta_rule(mixed, gate, write, forget, states, fixed, WHOSE)
    assert near(made.view(tokens, heads, value), expected, dtype)
    assert near(states, kept, dtype)
