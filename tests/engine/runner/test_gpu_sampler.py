"""What the device is told of a branch. Its draws are checked in tests/engine/kernels and tests/gpu, and what its host
waits for in `pretended_sampler_checks.py`."""

import struct

import pytest
import torch

from engine import SamplingParams
from engine.kernels.sampling import WORDS
from engine.runner import launched_step
from engine.runner.launched_step import Sampled, apart
from engine.runner.sampling.drawing import LOWEST_TEMPERATURE
from engine.runner.sampling.gpu_sampler import DeviceSampler, parameter_words
from tests.engine.kernels.sampling_case import make_branch


def as_float(word: int) -> float:
    return float(struct.unpack("<f", struct.pack("<i", word))[0])


def test_words_are_the_parameters_in_their_order() -> None:
    params = SamplingParams(temperature=0.7, top_k=50, top_p=0.9, min_p=0.05, repetition_penalty=1.3)
    branch = make_branch(params, 2, seed=0x1234_5678_9ABC_DEF0)
    words = parameter_words(branch)
    assert len(words) == WORDS
    assert [as_float(words[i]) for i in (0, 2, 3, 4)] == pytest.approx([0.7, 0.9, 0.05, 1.3])
    assert (words[1], words[5]) == (50, 2)
    assert (words[6] % 2**32, words[7] % 2**32) == (0x9ABC_DEF0, 0x1234_5678)


def test_words_fit_int32_whatever_is_asked() -> None:
    params = SamplingParams(top_k=10**12, temperature=1e-300)
    words = parameter_words(make_branch(params, 0, seed=2**70 - 1))
    assert all(-(2**31) <= word < 2**31 for word in words)
    assert words[6:] == (-1, -1), "the noise takes a seed's lowest 64 bits"
    assert words[1] == 2**31 - 1


def test_a_temperature_close_to_zero_still_draws_and_zero_is_greedy() -> None:
    close, zero = (parameter_words(make_branch(SamplingParams(temperature=t), 0)) for t in (1e-300, 0))
    assert as_float(close[0]) == pytest.approx(LOWEST_TEMPERATURE)
    assert zero[0] == 0


def test_what_a_slot_has_seen_has_its_place_before_anybody_asks_for_it() -> None:
    """A captured step knows the place alone."""
    sampler = DeviceSampler(4, 100, torch.device("cpu"))
    assert sampler._seen is not None
    place = sampler._seen.data_ptr()
    sampler.begin(make_branch(SamplingParams(repetition_penalty=1.3), 2, tokens=(5, 6)))
    assert sampler._seen.data_ptr() == place
    assert sampler._seen[2].nonzero()[:, 0].tolist() == [5, 6]


def test_tokens_and_log_probabilities_go_to_the_host_in_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[torch.Tensor] = []

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        sent.append(tensor)
        return tensor.clone()

    monkeypatch.setattr(launched_step, "_sent", copied)
    words = torch.stack([torch.tensor([7, 8, 0, 0]).int(), torch.tensor([-0.5, -2.0, 0, 0]).view(torch.int32)])
    there = Sampled(*apart(words, 2), words=words).sent()
    assert len(sent) == 1
    assert there.tokens.tolist() == [7, 8]
    assert there.logprobs.tolist() == [-0.5, -2.0]
    others = torch.tensor([[1], [2]]), torch.tensor([[-1.0], [-3.0]])
    there = Sampled(*apart(words, 2), *others, words=words).sent()
    assert len(sent) == 4
    assert there.alternatives is not None
    assert there.alternatives.tolist() == [[1], [2]]
