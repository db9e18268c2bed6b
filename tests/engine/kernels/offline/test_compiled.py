"""What `python -m engine.kernels.offline.compiled` (`make kernels`) does not show: that it names every kernel and tells
those that fail, sizes beyond the shipped ones, and what Triton makes of the main kernels. No GPU is needed."""

import ast
import re
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

import engine
from engine.kernels import rms_norm
from engine.kernels.attention.tilings import DEFAULT, WIDEST, Rows, usual_tiling
from engine.kernels.jit import Launch, launched
from engine.kernels.offline import compiled
from engine.kernels.offline.compiled import (
    SHARED_MEMORY,
    Usage,
    compile_launch,
    main,
    measured,
    print_table,
    spills_in_loops,
    usage,
)
from engine.kernels.offline.meta_weights import empty
from engine.kernels.offline.shipped import attention, awq_product, drawing, matrix, norm, shipped
from engine.kernels.offline.specialization import specialization
from engine.kernels.rms_norm import Rounding
from engine.kernels.rotary import rotate
from engine.kernels.silu_mul import Activation, act_mul

pytestmark = pytest.mark.slow

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.fixture(autouse=True, scope="module")
def _empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all tests: several look at the same kernel, which is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def check(launch: Launch, sm: int) -> None:
    took = usage(compile_launch(launch, sm))
    assert took.fits(sm), took


@cache
def launched_from_the_host() -> set[str]:
    """Names of the @jit functions under engine/ that no other of them calls."""
    compiled, called = set(), set()
    for file in Path(engine.__file__).parent.rglob("*.py"):
        for function in ast.parse(file.read_text()).body:
            if isinstance(function, ast.FunctionDef) and any(
                isinstance(node, ast.Name) and node.id == "jit"
                for decorator in function.decorator_list
                for node in ast.walk(decorator)
            ):
                compiled.add(function.name)
                called |= {
                    node.func.id
                    for node in ast.walk(function)
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                }
    return compiled - called


@pytest.mark.parametrize("sm", SHARED_MEMORY)
def test_the_table_names_every_kernel(sm: int) -> None:
    kernels = launched_from_the_host()
    assert "paged_attention_kernel" in kernels
    assert {launch.kernel.fn.__name__ for launch in shipped(sm).values()} == kernels


def test_the_table_tells_what_spills_does_not_fit_or_does_not_compile(capsys: pytest.CaptureFixture[str]) -> None:
    failed = print_table(
        [
            (90, "fine", Usage(registers=128, shared=200 * 1024, stack=8, warps=4)),
            (90, "spilling", Usage(registers=255, shared=0, stack=8, warps=4, looped=2)),
            (89, "large", Usage(registers=128, shared=200 * 1024, stack=0, warps=4)),
            (80, "broken", "Traceback: no such instruction"),
        ]
    )
    assert failed == ["spilling on sm_90", "large on sm_89", "broken on sm_80"]
    fine, spilling, large, broken, reason = capsys.readouterr().out.splitlines()[1:]
    assert fine.split() == ["fine", "90", "128", "204800", "8", "4", "1"]
    assert all("!" in line for line in (spilling, large, broken))
    assert "!" not in fine
    assert reason == "Traceback: no such instruction"


def test_an_unknown_architecture_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["91"])
    assert "sm is one of 80, 86, 89, 90, 100, 120, not 91" in capsys.readouterr().err


def test_the_command_fails_where_a_kernel_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def took(sm: int, name: str) -> Usage | str:
        if name == "broken":
            return "Traceback: no such instruction"
        return Usage(64, 200 * 1024 if name == "large" else 0, 8, 4, looped=2 * (name == "spilling"))

    monkeypatch.setattr(compiled, "ProcessPoolExecutor", lambda *_: nullcontext(SimpleNamespace(map=map)))
    monkeypatch.setattr(compiled, "measured", took)
    for names, failed in (("fine large", ""), ("broken fine", "broken"), ("spilling", "spilling")):
        monkeypatch.setattr(compiled, "shipped", lambda sm, names=names: dict.fromkeys(names.split()))
        assert main(["90"]) == int(bool(failed))
        verdict = f"1 do not compile, spill in a loop or do not fit: {failed} on sm_90" if failed else "all fit"
        assert capsys.readouterr().out.endswith(f"{verdict}\n")
    monkeypatch.setattr(compiled, "shipped", lambda sm: {"large": None})
    assert main(["90", "89"]) == 1
    assert "large on sm_89" in capsys.readouterr().out


def test_what_is_laid_aside_outside_of_loops_is_no_spill_in_one() -> None:
    code = "STL [R1], R14", "ISETP.GE.AND P0, PT, R2, 0x1, PT", "{}", "@P0 BRA 0x0010", "LDL.LU R14, [R1]", "BRA 0x0050"

    def sass(within: str) -> str:
        return "\n".join(f"        /*{16 * i:04x}*/    {words.format(within)} ;" for i, words in enumerate(code))

    assert spills_in_loops(sass("NOP")) == 0
    assert spills_in_loops(sass("LDL R3, [R1+0x4]")) == 1


@pytest.mark.parametrize("sm", [80, 120])
def test_a_kernel_that_spills_in_its_loop_is_told(sm: int) -> None:
    launch = attention(sm, Rows.SHORT, BF16, 64)[1]
    took = usage(compile_launch(launch._replace(arguments={**launch.arguments, "maxnreg": 40}), sm))
    assert took.stack > 0
    assert not took.fits(sm)


@pytest.mark.parametrize("block_size", [16, 64])
def test_decode_attention_of_plain_models_fills_hopper_with_three_programs(block_size: int) -> None:
    compiled = compile_launch(attention(90, Rows.SHORT, BF16, 128, block_size=block_size)[1], 90)
    assert usage(compiled).fits(90)
    assert usage(compiled).resident(90) >= 3
    assert compiled.asm["ptx"].count("cp.async.cg.shared.global") > 0  # keys are fetched ahead, past the registers


@pytest.mark.parametrize(("sm", "kind", "queries"), [(80, Rows.SHORT, 1), (90, Rows.SHORT, 1), (90, Rows.LONG, 512)])
def test_parts_are_stored_before_they_are_counted_and_read_after(sm: int, kind: Rows, queries: int) -> None:
    ptx = compile_launch(attention(sm, kind, BF16, 128, queries=queries)[1], sm).asm["ptx"]
    count, barrier = r"atom\.global\.gpu\.acq_rel\.add\.u32", r"bar\.sync"
    told = re.findall(rf"{count}|{barrier}|st\.global|ld\.global\.cg", ptx)
    (counted,) = (at for at, words in enumerate(told) if words.startswith("atom"))
    assert told[counted - 1].startswith("bar")
    assert told[counted + 1].startswith("bar")
    assert "st.global" in told[:counted]
    assert {words for words in told if words.endswith("cg")} == {words for words in told[counted:] if "ld" in words}


@pytest.mark.parametrize("codes", ["int8", "fp8"])
def test_codes_are_stored_without_a_division_whose_last_bit_is_the_cards(codes: str) -> None:
    ptx = compile_launch(shipped(90)[f"store_kv 128 bf16 to {codes}"], 90).asm["ptx"]
    assert "st.global" in ptx
    assert not re.search(r"\b(div|rcp)\.", ptx)


def test_prefill_attention_multiplies_by_wgmma_on_hopper() -> None:
    compiled = compile_launch(attention(90, Rows.LONG, BF16, 128, queries=512)[1], 90)
    assert compiled.asm["ptx"].count("wgmma.mma_async") > 0


@pytest.mark.parametrize(
    ("sm", "kind", "head_dim", "group", "queries"),
    [
        (80, Rows.SHORT, 80, 7, 1),
        (86, Rows.SHORT, 128, 8, 1),
        (89, Rows.LONG, 96, 1, 512),
        (90, Rows.SHORT, 128, 71, 1),  # wider than a tile of short rows
        (90, Rows.LONG, 256, 1, 10),  # the whole step is one small tile
        (80, Rows.LONG, 512, 8, 512),
    ],
)
def test_attention_of_odd_sizes_spills_in_no_loop(sm: int, kind: Rows, head_dim: int, group: int, queries: int) -> None:
    check(attention(sm, kind, BF16, head_dim, group=group, queries=queries, every_option=True)[1], sm)


def test_the_matrix_has_every_group_block_and_head_size() -> None:
    assert len(matrix(86)) == 9 * 3 * 6 * 2
    took = measured(86, "short group 3 block 32 head 64")
    assert isinstance(took, Usage), took
    assert took.fits(86)


@pytest.mark.parametrize("sm", [0, 75, *SHARED_MEMORY, 103, 121])
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "codes"])
def test_every_table_serves_heads_up_to_the_widest(sm: int, coded: bool) -> None:
    for kind, dtype, width in product(Rows, (BF16, FP32), (16, 64, 80, 256, 288, WIDEST)):
        tiles = usual_tiling(sm, kind, width, dtype, 8, 1, coded)
        assert tiles.block_m >= 8


def test_relatives_of_an_architecture_take_its_tables() -> None:
    for sm, family in ((103, 100), (121, 120)):
        for coded in (False, True):
            assert usual_tiling(sm, Rows.LONG, 256, BF16, 4, 1, coded) == usual_tiling(
                family, Rows.LONG, 256, BF16, 4, 1, coded
            )


def test_programs_that_take_all_tensor_memory_are_not_two_on_a_multiprocessor() -> None:
    took = usage(compile_launch(attention(100, Rows.LONG, BF16, 256, queries=512, every_option=True)[1], 100))
    assert took.columns == 512
    assert took.fits(100)
    assert took.resident(100) == 1


def test_unknown_gpus_get_the_tilings_of_the_least_shared_memory() -> None:
    made, known = (attention(sm, Rows.SHORT, BF16, 128)[1].arguments for sm in (121, 89))
    assert made == known | {name: made[name] for name in made if torch.is_tensor(made[name])}
    assert DEFAULT[Rows.SHORT][128].block_keys == made["BLOCK_KEYS"]


@pytest.mark.parametrize(("rows", "group"), [(1, 64), (17, 64), (64, 4096), (64, 32)])
def test_awq_products_of_other_groups_spill_in_no_loop(rows: int, group: int) -> None:
    check(awq_product(rows, group, BF16), 90)


@pytest.mark.parametrize(
    ("vocabulary", "sm"),
    [
        (50_257, 89),  # odd: logits are read one by one
        (300_000, 90),  # so large that groups are wider
    ],
)
def test_sampling_of_odd_vocabularies_spills_in_no_loop(vocabulary: int, sm: int) -> None:
    for launch in drawing(vocabulary, BF16):
        check(launch, sm)


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize(("sm", "dtype"), [(80, FP32), (90, BF16)])
def test_norms_of_the_widest_rows_spill_in_no_loop(rounding: Rounding, sm: int, dtype: torch.dtype) -> None:
    check(norm(empty(64, rms_norm.WIDEST, dtype=dtype), rounding), sm)


def test_gates_of_exact_gelu_spill_in_no_loop() -> None:
    check(launched(act_mul, *empty(2, 64, 6912, dtype=BF16), Activation.GELU)[0], 90)


@pytest.mark.parametrize(("head_dim", "dtype"), [(64, BF16), (80, FP32), (96, FP16)])
def test_rotations_of_other_heads_spill_in_no_loop(head_dim: int, dtype: torch.dtype) -> None:
    q, k = (empty(1, heads, 64, head_dim, dtype=dtype) for heads in (32, 8))
    check(launched(rotate, q, k, *empty(2, 1, 64, head_dim, dtype=dtype))[0], 90)


def test_the_number_of_tokens_compiles_nothing_anew() -> None:
    def specializations(batch: int, tokens: int) -> list[object]:
        heads = empty(batch, tokens, 48, 128, dtype=BF16).transpose(1, 2)
        q, k = heads[:, :32], heads[:, 32:40]
        gates, up = empty(batch, tokens, 2 * 14_336, dtype=BF16).chunk(2, dim=-1)
        launches = [
            norm(empty(batch, tokens, 4096, dtype=BF16), Rounding.TWICE),
            norm(k, Rounding.TWICE),
            *launched(act_mul, gates, up, Activation.SILU),
            *launched(rotate, q, k, *empty(2, batch, tokens, 128, dtype=BF16)),
        ]
        return [specialization(launch) for launch in launches]

    first = specializations(1, 1)
    for batch, tokens in ((1, 2), (1, 16), (1, 17), (1, 1000), (3, 1), (3, 7), (16, 16)):
        assert specializations(batch, tokens) == first, (batch, tokens)
