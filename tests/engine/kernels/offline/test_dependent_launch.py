"""Programmatic dependent launch: every kernel waits for its inputs first, and only where it is launched so."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from engine.kernels import dependent_launch
from engine.kernels.attention.options import Options
from engine.kernels.attention.packed_rows import PackedRows
from engine.kernels.attention.paged_attention import AHEAD, paged_attention
from engine.kernels.dependent_launch import MOST_TOKENS, SWITCH, launch_options, step_of
from engine.kernels.jit import launched
from engine.kernels.offline.compiled import compile_launch
from engine.kernels.offline.meta_weights import empty
from engine.kernels.offline.shipped import DEPENDENT, shipped

GPU = torch.device("cuda", 0)
FETCHING = "fetch_ahead", "fetch_weight"
TOUCHING = r"griddepcontrol\.\w+|(?:ld|st|atom|red)\.global|cp\.async\.c[ag]"


def kernels() -> Iterator[ast.FunctionDef]:
    for file in Path(dependent_launch.__file__).parent.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel") and node.decorator_list:
                yield node


def test_every_kernel_waits_before_it_does_anything() -> None:
    """But for addresses, and fetching what no kernel writes."""
    found = list(kernels())
    assert len(found) >= 17
    for kernel in found:
        statements = [ast.unparse(node) for node in kernel.body]
        before, awaited, _ = "\n".join(statements).partition("await_inputs()")
        assert awaited, kernel.name
        assert "return" not in before, (
            f"{kernel.name}: whoever waits for a program that does not has not waited for all"
        )
        called = set(re.findall(r"([\w.]+)\(", before))
        assert called <= {"tl.program_id", "tl.arange", "tl.minimum", ".to", "outputs_of", *FETCHING}, kernel.name


KERNELS = "attention short 1 64 bf16", "add_norm Llama 8B bf16", "awq_matmul 1 bf16", "gemv 4096 4096 bf16"


FETCHED = {  # where what is fetched begins: a parameter, or a place in one that its kernel names
    "gemv 4096 4096 bf16": ("rows",),
    "awq_matmul 1 bf16": ("begin", "scales"),
    "four_bit_matmul 1 bf16": ("packed", "scales"),
    "add_norm Llama 8B bf16": ("before", "weight"),
    "rms_norm Llama 8B bf16": ("weight",),
    "place_kv Qwen3 0.6B bf16 to int8": ("q_weight", "k_weight"),
}


@pytest.mark.parametrize(("kernel", "tensors"), FETCHED.items())
def test_weights_are_fetched_ahead_where_a_launch_depends(kernel: str, tensors: tuple[str, ...]) -> None:
    plain, dependent = (shipped(DEPENDENT)[name] for name in (kernel, f"{kernel} dependent"))
    assert "prefetch" not in compile_launch(plain, DEPENDENT).asm["ptx"]
    before, _, after = compile_launch(dependent, DEPENDENT).asm["ptx"].partition("griddepcontrol.wait")
    assert before.count("prefetch.global.L2") >= sum(
        dependent.arguments.get(name, name) is not None for name in tensors
    )
    assert after
    assert "prefetch" not in after
    body = ast.unparse(next(node for node in kernels() if node.name == dependent.kernel.__name__))
    source = body.partition("await_inputs()")[0]
    assert tuple(re.findall(r"(?:fetch_ahead|fetch_weight)\(\(*(\w+)", source)) == tensors


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_dependent_launch_waits_before_it_touches_memory_and_others_are_as_they_were(kernel: str) -> None:
    def order(name: str) -> list[str]:
        return re.findall(TOUCHING, compile_launch(shipped(DEPENDENT)[name], DEPENDENT).asm["ptx"])

    told = order(f"{kernel} dependent")
    assert told[:2] == ["griddepcontrol.wait", "griddepcontrol.launch_dependents"]
    assert order(kernel) == told[2:]


def test_later_layers_attention_reads_items_and_a_table_and_fetches_keys_before_it_waits() -> None:
    """What is read was written by kernels before the one that it waits for."""
    later = shipped(DEPENDENT)["attention short 1 128 bf16 of later layers"]
    ptx = compile_launch(later, DEPENDENT).asm["ptx"]
    before, waited, after = ptx.partition("griddepcontrol.wait")
    assert waited
    assert "griddepcontrol" not in before
    told = "an item's numbers, and a block of each tile"
    assert re.findall(TOUCHING, before) == ["ld.global"] * (8 + AHEAD.value), told
    assert before.count("prefetch.global.L2") == 2 * AHEAD.value, "two warps have two lines each of 32 keys, and values"
    assert re.findall(TOUCHING, after)[0] == "griddepcontrol.launch_dependents"
    body = ast.unparse(next(node for node in kernels() if node.name == "paged_attention_kernel"))
    assert body.index("return") > body.rindex("await_inputs()"), "a program without work waits too"


@pytest.mark.parametrize(
    ("switch", "tokens", "capability", "wanted"),
    [
        ("", 1, (9, 0), True),
        ("", MOST_TOKENS, (12, 0), True),
        ("", MOST_TOKENS + 1, (9, 0), False),
        ("", 1, (8, 9), False),
        ("0", 1, (9, 0), False),
    ],
)
def test_launches_of_captured_steps_of_few_tokens_depend_where_they_can(
    switch: str, tokens: int, capability: tuple[int, int], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dependent_launch.can_depend.cache_clear()
    monkeypatch.setenv(SWITCH, switch)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    try:
        with step_of(tokens):
            assert bool(launch_options(GPU)) is wanted
            assert not launch_options(torch.device("cpu"))
        assert not launch_options(GPU)
    finally:
        dependent_launch.can_depend.cache_clear()


@pytest.mark.parametrize("function", ["await_inputs", "fetch_ahead"])
def test_what_was_compiled_of_another_wait_is_not_found_again(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import JITFunction
    from triton.language import constexpr

    names = set()
    for source in ("of today", "of today", "of before"):
        monkeypatch.setattr(dependent_launch, "SOURCE", constexpr(source))
        names.add(JITFunction(getattr(dependent_launch, function).fn).cache_key)
    assert len(names) == 2


@pytest.mark.parametrize("tokens", [1, MOST_TOKENS + 1])
def test_attention_begins_early_only_where_its_plan_is_older_than_the_launch_before_it(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step's first attention of each kind follows its plan at once, and reads what that writes."""
    monkeypatch.setattr(dependent_launch, "can_depend", lambda device: True)
    q, cache = empty(tokens, 32, 128, dtype=torch.bfloat16), empty(1000, 16, 8, 128, dtype=torch.bfloat16)
    rows, early = PackedRows(empty(tokens + 1), empty(tokens), empty(tokens, 4096), short=tokens), []
    with step_of(tokens):
        for window in (None, 512, None, 512, 512):
            *_, launch = launched(paged_attention, q, cache, cache, rows, Options(0.1, window), sm=90, processors=132)
            early.append(launch.arguments["EARLY"])
    assert early == ([False, False, True, True, True] if tokens == 1 else [False] * 5)
