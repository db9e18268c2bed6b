"""Every kernel compiles for the GPUs it is launched on, fits their shared memory and spills no registers; no GPU is
needed for that. `python -m engine.kernels.compiled` prints what each takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.kernels.compiled import (
    SHARED_MEMORY,
    attention,
    awq_products,
    awq_unpacking,
    compile_launch,
    storing,
    usage,
)
from engine.kernels.tilings import DEFAULT, Rows

SMS = pytest.mark.parametrize("sm", [80, 89, 90, 100])
DTYPES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def check(compiled: Any, sm: int) -> None:
    assert compiled.asm["cubin"]
    assert compiled.metadata.shared <= SHARED_MEMORY[sm]


def check_nothing_spills(compiled: Any, folder: Path | None = None) -> None:
    """Spilled registers are the only stack of these kernels."""
    assert usage(compiled).stack == 0, usage(compiled)


def check_launch(launch: tuple[Any, dict[str, Any]], sm: int) -> None:
    compiled = compile_launch(*launch, sm)
    check(compiled, sm)
    check_nothing_spills(compiled)


# The module compiles every combination; here each architecture meets each head_dim, kind of rows and dtype.
@SMS
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_attention_with_all_its_options_compiles_without_spills(head_dim: int, sm: int) -> None:
    turn = (80, 89, 90, 100).index(sm) + head_dim // 128
    kind, dtype = (Rows.LONG, Rows.SHORT)[turn % 2], DTYPES[turn % 3]
    check_launch(attention(sm, kind, dtype, head_dim, queries=8, everything=True)[1], sm)


@pytest.mark.parametrize("block_size", [16, 64])
def test_decode_attention_of_plain_models_fills_hopper_with_three_programs(block_size: int) -> None:
    kernel, arguments = attention(90, Rows.SHORT, torch.bfloat16, 128, block_size=block_size)[1]
    compiled = compile_launch(kernel, arguments, 90)
    check_nothing_spills(compiled)
    assert usage(compiled).resident(90) >= 3
    assert compiled.asm["ptx"].count("cp.async.cg.shared.global") > 0  # keys are fetched ahead, past the registers


def test_prefill_attention_multiplies_by_wgmma_on_hopper() -> None:
    compiled = compile_launch(*attention(90, Rows.LONG, torch.bfloat16, 128)[1], 90)
    check_nothing_spills(compiled)
    assert compiled.asm["ptx"].count("wgmma.mma_async") > 0


@pytest.mark.parametrize("kind", Rows)
def test_attention_of_odd_sizes_compiles_without_spills(kind: Rows) -> None:
    check_launch(attention(80, kind, torch.float16, 80, group=7)[1], 80)


def test_a_kernel_that_spills_is_told() -> None:
    kernel, arguments = attention(90, Rows.SHORT, torch.bfloat16, 64)[1]
    took = usage(compile_launch(kernel, {**arguments, "maxnreg": 40}, 90))
    assert took.stack > 0
    assert not took.fits(90)


@SMS
def test_planning_and_merging_splits_compile_without_spills(sm: int) -> None:
    plan, _, merge = attention(sm, Rows.LONG, torch.bfloat16, 256)
    check_launch(plan, sm)
    check_launch(merge, sm)


def test_unknown_gpus_get_the_tilings_of_the_least_shared_memory() -> None:
    made, known = (attention(sm, Rows.SHORT, torch.bfloat16, 128)[1][1] for sm in (121, 89))
    assert made == known | {name: made[name] for name in made if torch.is_tensor(made[name])}
    assert DEFAULT[Rows.SHORT][128].block_keys == made["BLOCK_KEYS"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@SMS
def test_storing_keys_and_values_compiles_without_spills(sm: int, dtype: torch.dtype) -> None:
    check_launch(storing(dtype, 128), sm)


@pytest.mark.parametrize("rows", [1, 17, 64])
@pytest.mark.parametrize(
    ("sm", "dtype"),
    [(sm, torch.bfloat16) for sm in (80, 89, 90, 100)] + [(90, torch.float16)],
    ids=["80-bf16", "89-bf16", "90-bf16", "100-bf16", "90-fp16"],
)
def test_awq_products_compile_without_spills(sm: int, rows: int, dtype: torch.dtype) -> None:
    for launch in awq_products(rows, 128, dtype):
        check_launch(launch, sm)


@pytest.mark.parametrize("group", [32, 64, 4096])
@pytest.mark.parametrize("rows", [1, 17, 64])
def test_awq_products_of_other_groups_compile_without_spills(rows: int, group: int) -> None:
    check_launch(awq_products(rows, group, torch.bfloat16)[0], 90)


@SMS
def test_unpacking_awq_compiles_without_spills(sm: int) -> None:
    check_launch(awq_unpacking(torch.bfloat16), sm)
