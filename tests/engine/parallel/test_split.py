"""Which part of a checkpoint each rank reads: together all of it, and nothing twice but what all need."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine import InvalidInput, ModelSpec, Parallel
from engine.config import dividing
from engine.config.parallel import shares
from engine.parallel.board import SLOTS, Board
from engine.parallel.shards import read_shards
from engine.parallel.split import Split, check_split


def test_each_rank_has_some_of_the_experts_by_their_new_numbers(tmp_path: Path) -> None:
    """Of tensors that an expert has by itself, and of those that all have together."""
    whole = {f"layers.0.mlp.experts.{n}.up_proj.weight": torch.full((4, 8), float(n)) for n in range(12)}
    whole |= {"layers.1.mlp.experts.gate_up_proj": torch.arange(12.0)[:, None, None].expand(12, 4, 8).contiguous()}
    whole |= {"layers.0.mlp.shared_expert.up_proj.weight": torch.randn(4, 8)}
    save_file(whole, tmp_path / "model.safetensors")
    for rank in range(2):
        split = Split(rank, 2, 4, 2, 8, "qwen2_moe", experts=12)
        read = read_shards([tmp_path / "model.safetensors"], split, lambda _: None)
        assert len(read) == 6 + 2
        for number in range(6):
            assert read[f"layers.0.mlp.experts.{number}.up_proj.weight"][...].unique().tolist() == [6 * rank + number]
        together = read["layers.1.mlp.experts.gate_up_proj"]
        assert together.get_shape() == [6, 4, 8]
        assert together[...].unique().tolist() == list(range(6 * rank, 6 * rank + 6))
        assert read["layers.0.mlp.shared_expert.up_proj.weight"].get_shape() == [2, 8]


@pytest.mark.parametrize("count", [1, 7, 8, 151_936])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_shares_are_all_of_it_and_nearly_even(count: int, ranks: int) -> None:
    found = [shares(count, rank, ranks) for rank in range(ranks)]
    assert found[0][0] == 0
    assert found[-1][1] == count
    assert all(a[1] == b[0] for a, b in pairwise(found))
    sizes = [end - begin for begin, end in found]
    assert max(sizes) - min(sizes) <= 1


def test_parts_of_a_file_put_together_are_its_tensors(tmp_path: Path) -> None:
    heads, kv, dim, hidden, wide = 4, 2, 8, 16, 12
    whole = {
        "layers.0.self_attn.q_proj.weight": torch.randn(heads * dim, hidden),
        "layers.0.self_attn.q_proj.bias": torch.randn(heads * dim),
        "layers.0.self_attn.o_proj.weight": torch.randn(hidden, heads * dim),
        "layers.0.self_attn.o_proj.bias": torch.randn(hidden),
        "layers.0.self_attn.qkv_proj.weight": torch.randn((heads + 2 * kv) * dim, hidden),
        "layers.0.mlp.gate_up_proj.weight": torch.randn(2 * wide, hidden),
        "layers.0.input_layernorm.weight": torch.randn(hidden),
    }
    save_file(whole, tmp_path / "model.safetensors")
    read: list[str] = []
    parts = []
    for rank in range(2):
        shards = read_shards([tmp_path / "model.safetensors"], Split(rank, 2, heads, kv, dim, "llama"), read.append)
        parts.append({name: shard[...] for name, shard in shards.items()})
        assert all(list(parts[-1][name].shape) == shard.get_shape() for name, shard in shards.items())
    one, two = parts
    for name, tensor in whole.items():
        a, b = one[name], two[name]
        if "o_proj.bias" in name:
            assert torch.equal(a, tensor)
            assert not b.any(), "it is added once"
        elif "o_proj" in name:
            assert torch.equal(torch.cat([a, b], 1), tensor)
        elif "norm" in name:
            assert torch.equal(a, tensor)
            assert torch.equal(b, tensor)
        elif "qkv" in name or "gate_up" in name:
            widths = [16, 8, 8] if "qkv" in name else [6, 6]
            together = [torch.cat(pair) for pair in zip(a.split(widths), b.split(widths))]
            assert torch.equal(torch.cat(together), tensor)
        else:
            assert torch.equal(torch.cat([a, b]), tensor)
    assert sorted(set(read)) == sorted(whole)


def test_a_refusal_names_what_would_divide() -> None:
    config = {"intermediate_size": 14_336}
    with pytest.raises(InvalidInput, match=r"tensor_parallel=6: 32 attention heads .* use 2 or 4 or 8, or 1"):
        check_split(config, 6, 32, 8)
    check_split(config, 8, 32, 8)
    assert dividing([32, 8, 14_336]) == [1, 2, 4, 8]


@pytest.mark.parametrize(("field", "value"), [("tensor", 0), ("tensor", 65), ("backend", "mpi"), ("timeout", 0.0)])
def test_a_wrong_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=str(value)):
        Parallel(**{field: value})  # type: ignore[arg-type]


def test_a_spec_is_made_again_from_its_values() -> None:
    spec = ModelSpec("demo", parallel={"tensor": 2, "backend": "gloo", "timeout": 5.0})  # type: ignore[arg-type]
    assert spec.parallel == Parallel(2, "gloo", 5.0)


def test_a_board_tells_whom_the_others_wait_for() -> None:
    board = Board(3)
    for rank in range(3):
        board.begin(rank, 4)
    board.begin(0, 5)
    board.begin(2, 5)
    assert board.late() == [1]
    board.begin(1, 5)
    board.tell(0, 5, [0.25], 0.3, 100)
    board.tell(2, 5, [0.10], 0.3, 100)
    assert board.times(5) is None, "rank 1 has not come to it"
    board.tell(1, 5, [0.01], 0.3, 100)
    told = board.times(5)
    assert told is not None
    assert [round(x, 2) for x in told.waiting] == [0.24, 0.0, 0.09]
    assert [round(x, 2) for x in told.communicating] == [0.01] * 3
    assert [round(x, 2) for x in told.computing] == [0.05, 0.29, 0.2]
    assert list(told.sent) == [100] * 3
    board.tell(0, 5 - SLOTS, [0.5], 0.5, 0)
    assert board.times(5) == told, "what comes too late is told to nobody"
    board.close()
