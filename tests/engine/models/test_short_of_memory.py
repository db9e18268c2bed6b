"""A load whose memory does not suffice says so, whatever asked for it; a GPU's own errors are told as they are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import core_model_loading, modeling_utils

from engine import InvalidInput, ModelSpec
from engine.models.loading import load

FULL = "CUDA out of memory. Tried to allocate 20.00 MiB."
ILLEGAL = "CUDA error: an illegal memory access was encountered"
Folder = Callable[[str], Path]


def failing(error: Exception) -> Callable[..., Any]:
    def fails(*_: object, **__: object) -> None:
        raise error

    return fails


@pytest.mark.parametrize(
    ("model", "asked_by"),
    [("llama", "zeros_like"), ("llama", "aminmax"), ("qwen3 moe", "stack")],
    ids=["the attention probe", "a look at the weights", "experts that are merged"],
)
def test_memory_that_ran_out_is_told_as_that(
    model: str, asked_by: str, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModelSpec(str(tiny_folder(model)), device="cpu")
    monkeypatch.setattr(torch, asked_by, failing(torch.OutOfMemoryError(FULL)))
    with pytest.raises(InvalidInput, match=f"does not fit in memory: {FULL}"):
        load(spec)


def test_memory_that_a_quantizer_lacks_is_told_as_that(tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    torchao = pytest.importorskip("torchao")
    monkeypatch.setattr(torchao.quantization, "quantize_", failing(torch.OutOfMemoryError(FULL)))
    with pytest.raises(InvalidInput, match=f"does not fit in memory: {FULL}"):
        load(ModelSpec(str(tiny_folder("llama")), "torchao-int8", device="cpu"))


@pytest.mark.parametrize("asked_by", ["zeros_like", "aminmax"])
def test_what_a_gpu_says_of_itself_is_not_said_of_the_model(
    asked_by: str, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, asked_by, failing(torch.AcceleratorError(ILLEGAL)))
    with pytest.raises(torch.AcceleratorError, match=ILLEGAL):
        load(ModelSpec(str(tiny_folder("llama")), device="cpu"))


def test_no_segment_is_taken_for_all_weights_together(tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is joined later would leave holes in it for good."""
    asked: list[object] = []
    monkeypatch.setattr(modeling_utils, "caching_allocator_warmup", lambda *given: asked.append(given))
    own = modeling_utils.caching_allocator_warmup, core_model_loading.log_conversion_errors
    load(ModelSpec(str(tiny_folder("llama")), "torchao-int8", device="cpu"))
    assert asked == []
    assert (modeling_utils.caching_allocator_warmup, core_model_loading.log_conversion_errors) == own
