"""The CPU's compiled kernels equal the oracle and torch; without a compiler there are none, and it is said why."""

import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from torch.nn.functional import gelu, silu
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from engine.config.specs import ModelSpec
from engine.jobs.progress import LoadCancelled, LoadProgress
from engine.kernels.attention.options import Options
from engine.kernels.cpu import calls, library, quantized
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.cpu.structures import Call, Part, Program, Structure
from engine.kernels.rms_norm import Rounding
from engine.kernels.silu_mul import Activation
from engine.models.loading import load
from tests.engine.kernels import oracle
from tests.engine.kernels.cpu import test_experts as experts
from tests.waiting import until

DTYPES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}

needs_compiler = pytest.mark.skipif(library.find_compiler() is None, reason="no C compiler")


def test_this_machine_compiles_them() -> None:
    assert (library.native().library is None) == (library.find_compiler() is None), library.native().why


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("group", "head_dim", "block", "options"),
    [
        (1, 64, 16, Options(0.125)),
        (2, 64, 16, Options(0.4, softcap=4.0)),
        (3, 80, 32, Options(0.3, window=1)),
        (7, 16, 16, Options(0.4, window=21)),
        (8, 128, 16, Options(0.4, window=100, sinks=torch.linspace(-2, 3, 16))),
        (16, 48, 48, Options(0.5, window=30, softcap=2.0, sinks=torch.linspace(-2, 3, 32))),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_decode_attention_equals_the_oracle(dtype, group, head_dim, block, options, threads) -> None:
    kv_heads, lengths = 2, [1, block, block + 1, 3 * block - 1, 7 * block + 5, 2]
    random = torch.Generator().manual_seed(group)
    free = torch.randperm(40, generator=random).tolist()
    shared = free.pop()
    tables = [[shared, *(free.pop() for _ in range(-(-length // block) - 1))] for length in lengths]
    shape = 40, block, kv_heads, head_dim, dtype
    k_cache, v_cache = calls.allocate_keys(*shape), calls.allocate_values(*shape)
    tokens = 40 * block
    k, v = (torch.randn(tokens, kv_heads, head_dim, generator=random).to(dtype) for _ in range(2))
    at = torch.randperm(tokens, generator=random).to(torch.int32)
    calls.store_kv(k, v, k_cache, v_cache, at // block, at % block)
    assert torch.equal(k_cache[at // block, at % block], k)
    assert torch.equal(v_cache[at // block, at % block], v)
    q = torch.randn(len(lengths), kv_heads * group, head_dim, generator=random).to(dtype)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        out = calls.plan_decode(tables, [n - 1 for n in lengths], [1] * len(lengths)).attend(
            q, k_cache, v_cache, options
        )
    finally:
        torch.set_num_threads(before)
    widest = max(map(len, tables))
    block_tables = torch.tensor([table + [-1] * (widest - len(table)) for table in tables], dtype=torch.int32)
    metadata = block_tables, torch.arange(len(tables) + 1), torch.tensor(lengths)
    expected = oracle.paged_attention(q.double(), k_cache.double(), v_cache.double(), *metadata, options)
    torch.testing.assert_close(out.double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("group", "options"),
    [
        (1, Options(0.125)),
        (2, Options(0.4, window=300)),
        (3, Options(0.4, softcap=4.0, sinks=torch.linspace(-2, 3, 24))),
        (9, Options(0.3, window=7)),
    ],
)
def test_prompts_beside_decode_rows_over_long_contexts_equal_the_oracle(dtype, group, options) -> None:
    """Tokens that follow each other are answered together, contexts in segments; each alone gives the same bits."""
    kv_heads, block, head_dim = 8, 16, 64
    firsts, counts = [0, 699, 255, 3, 512, 0, 640], [40, 1, 1, 6, 25, 1, 3]
    lengths = [first + count for first, count in zip(firsts, counts)]
    random = torch.Generator().manual_seed(group)
    shape = 200, block, kv_heads, head_dim, dtype
    k_cache, v_cache = calls.allocate_keys(*shape), calls.allocate_values(*shape)
    for cache in (k_cache, v_cache):
        cache.copy_(torch.randn(cache.shape, generator=random))
    free = torch.randperm(200, generator=random).tolist()
    tables = [[free.pop() for _ in range(-(-length // block))] for length in lengths]
    q = torch.randn(sum(counts), kv_heads * group, head_dim, generator=random).to(dtype)
    plan = calls.plan_decode(tables, firsts, counts)
    out = plan.attend(q, k_cache, v_cache, options)
    widest = max(map(len, tables))
    block_tables = torch.tensor([table + [-1] * (widest - len(table)) for table in tables], dtype=torch.int32)
    metadata = block_tables, torch.tensor([0, *counts]).cumsum(0), torch.tensor(lengths)
    expected = oracle.paged_attention(q.double(), k_cache.double(), v_cache.double(), *metadata, options)
    torch.testing.assert_close(out.double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])
    owners = [row for row, count in enumerate(counts) for _ in range(count)]
    positions = [first + i for first, count in zip(firsts, counts) for i in range(count)]
    for row, position, query, answer in list(zip(owners, positions, q, out))[::-3]:
        alone = calls.plan_decode([tables[row]], [position], [1]).attend(query[None], k_cache, v_cache, options)
        assert torch.equal(alone[0], answer)


@needs_compiler
def test_what_is_not_finite_stays_so() -> None:
    shape = 2, 16, 1, 16, torch.float32
    k_cache, v_cache = calls.allocate_keys(*shape), calls.allocate_values(*shape)
    k_cache[0, 3, 0, 5] = float("nan")
    out = calls.plan_decode([[0], [1]], [8, 8], [1, 1]).attend(torch.ones(2, 1, 16), k_cache, v_cache, Options(1.0))
    assert out[0].isnan().all()
    assert not out[1].isnan().any()
    assert calls.rms_norm(torch.full((1, 16), float("nan")), None, 1e-6, Rounding.NONE).isnan().all()
    gate = torch.tensor([[float("nan"), float("inf"), -float("inf"), 200.0]])
    out = calls.act_mul(gate, torch.ones(1, 4), Activation.SILU)
    assert out[0, 0].isnan()
    assert out[0, 1:].tolist()[::2] == [float("inf"), 200.0]


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_small_operations_round_as_torch_does(dtype, rows) -> None:
    def same(out: torch.Tensor, expected: torch.Tensor) -> None:
        assert out.dtype == expected.dtype
        torch.testing.assert_close(out, expected, rtol=2e-6 if dtype is torch.float32 else 1e-2, atol=2e-6)
        if dtype is torch.bfloat16:
            seen = expected.abs() > 0.05  # torch's gelu cancels digits where it is all but zero
            assert (out != expected)[seen].sum() < 3 + 2e-3 * seen.sum()  # values that lie between two

    torch.manual_seed(rows)
    x = torch.randn(2, rows, 520).to(dtype) * 3
    weight = (1 + torch.randn(520) * 0.3).to(dtype)
    unit = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
    same(calls.rms_norm(x, None, 1e-6, Rounding.NONE), unit.to(dtype))
    same(calls.rms_norm(x, weight, 1e-6, Rounding.TWICE), weight * unit.to(dtype))
    same(calls.rms_norm(x, weight, 1e-6, Rounding.ONCE), (weight.float() * unit).to(dtype))
    same(calls.rms_norm(x, weight, 1e-6, Rounding.ONE_PLUS), (unit * (1 + weight.float())).to(dtype))
    gate, up = (torch.randn(2, rows, 1100) * 4).to(dtype).chunk(2, -1)
    same(calls.act_mul(gate, up, Activation.SILU), silu(gate) * up)
    same(calls.act_mul(gate, up, Activation.GELU_TANH), gelu(gate, approximate="tanh") * up)
    q = torch.randn(2, rows, 7, 40).to(dtype).transpose(1, 2)
    k = torch.randn(2, rows, 2, 40).to(dtype).transpose(1, 2)
    angles = torch.rand(2, rows, 40) * 6
    for tables in (
        (angles.cos().to(dtype), angles.sin().to(dtype)),
        (angles[:1].cos().to(dtype), angles[:1].sin().to(dtype)),
    ):
        for out, expected in zip(calls.rotate(q, k, *tables), apply_rotary_pos_emb(q, k, *tables), strict=True):
            same(out, expected)
        apart = [torch.cat([x[..., ::2], x[..., 1::2]], -1) for x in (q, k)]
        for out, expected in zip(calls.rotate(q, k, *tables, True), apply_rotary_pos_emb(*apart, *tables), strict=True):
            same(out, expected)


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("group", "head_dim", "window"), [(3, 48, None), (16, 80, 20), (40, 576, None)])
def test_one_cache_of_latents_is_keys_and_values(dtype, group, head_dim, window) -> None:
    block, lengths = 16, [1, 17, 63, 400]
    random = torch.Generator().manual_seed(group)
    cache = calls.allocate_values(40, block, 1, head_dim, dtype)
    x = torch.randn(40 * block, 1, head_dim, generator=random).to(dtype)
    at = torch.randperm(40 * block, generator=random).to(torch.int32)
    calls.store_kv(x, x, cache, cache, at // block, at % block)
    assert torch.equal(cache[at // block, at % block], x)
    free = torch.randperm(40, generator=random).tolist()
    tables = [[free.pop() for _ in range(-(-length // block))] for length in lengths]
    q = torch.randn(len(lengths), group, head_dim, generator=random).to(dtype)
    options, plan = Options(0.1, window), calls.plan_decode(tables, [n - 1 for n in lengths], [1] * len(lengths))
    widest = max(map(len, tables))
    block_tables = torch.tensor([table + [-1] * (widest - len(table)) for table in tables], dtype=torch.int32)
    metadata = block_tables, torch.arange(len(tables) + 1), torch.tensor(lengths)
    expected = oracle.paged_attention(q.double(), cache.double(), cache.double(), *metadata, options)
    for codes in (None, torch.int8, torch.uint8):
        held = cache if codes is None else quantized.allocate(40, block, 1, head_dim, codes)
        if codes is not None:
            calls.store_kv(x, x, held, held, at // block, at % block)
            read = quantized.readable(held, held, torch.float64)
            expected = oracle.paged_attention(q.double(), *read, *metadata, options)
        out = plan.attend(q, held, held, options)
        torch.testing.assert_close(out.double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_heads_are_multiplied_with_weights_of_their_own_and_what_is_beside_them_stays(dtype, threads) -> None:
    tokens, heads, depth, columns, rest = 70, 5, 16, 50, 7
    x = torch.randn(heads, tokens, depth + rest).to(dtype).transpose(0, 1)
    weights = torch.randn(heads, columns, depth).to(dtype)
    packed = torch.stack([calls.laid_out(weight) for weight in weights])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        out = calls.by_heads(x, packed, columns, rest)
    finally:
        torch.set_num_threads(before)
    expected = torch.einsum("thd,hcd->thc", x[..., :depth].double(), weights.double())
    torch.testing.assert_close(out[..., :columns].double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype] * 4)
    assert torch.equal(out[..., columns:], x[..., depth:])


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("depth", "columns"), [(96, 160), (64, 8), (14_000, 100)])
@pytest.mark.parametrize("threads", [1, 2])
def test_our_product_equals_torchs(dtype, depth, columns, threads) -> None:
    torch.manual_seed(depth)
    weight, bias = torch.randn(columns, depth).to(dtype) / depth**0.5, torch.randn(columns)
    packed = calls.pack(weight, LargePages())
    assert torch.equal(calls.unpack(packed, columns), weight)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for rows in [0, 1, 2, 3, 4, 5, 6, 7, 13, 64, 200]:
            x = torch.randn(rows, 2 * depth).to(dtype)[:, :depth]  # rows with gaps between them
            made, expected = calls.product(x, packed, bias, columns), x.double() @ weight.double().T + bias.double()
            tolerance = 2e-5 if dtype is torch.float32 else 1e-2
            torch.testing.assert_close(made.double(), expected, rtol=tolerance, atol=tolerance)
            assert torch.equal(calls.product(x[-1:], packed, bias, columns), made[-1:]), "whatever rows are beside it"
    finally:
        torch.set_num_threads(before)


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_greedy_choice_is_torchs(dtype) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(70, 1003) * 5).to(dtype)
    logits[3, 900] = logits[3, 17] = 99.0  # of equals the first
    logits[4] = 0.0
    logits[5, 1:] = -float("inf")
    tokens, logprobs = calls.greedy(logits)
    expected = logits.float().log_softmax(-1)
    assert torch.equal(tokens, torch.from_numpy(expected.numpy().argmax(-1)))
    torch.testing.assert_close(logprobs, expected.max(-1).values, rtol=1e-5, atol=1e-5)
    logits[0, 7] = float("nan")
    tokens, logprobs = calls.greedy(logits)
    assert logprobs.isnan().tolist() == [True] + [False] * 69
    assert 0 <= tokens.min() <= tokens.max() < 1003


@needs_compiler
def test_structures_are_those_of_the_source() -> None:
    source = re.sub(r"/\*.*?\*/", "", "".join(source.read_text() for source in library.SOURCES), flags=re.DOTALL)
    kinds = [Structure, *Structure.__subclasses__(), Part, Call, Program]
    ours = {cls.__name__.lower(): [name for name, *_ in cls._fields_] for cls in kinds if cls is not Structure}
    theirs = {}
    for name, body in re.findall(r"^struct (\w+) \{(.*?)^\};", source, re.DOTALL | re.MULTILINE):
        types = r"\b(struct \w+|const|void|char|float|double|u?int32_t|int64_t|long|int|Work|Meanwhile)\b|[\s*]"
        if " part;" not in body and name not in ours:
            continue  # nobody hands it over
        declared = re.sub(types, "", body)
        theirs[name] = [field for line in declared.split(";") for field in line.split(",") if field]
    assert ours == theirs


@pytest.mark.skipif(platform.machine() != "x86_64", reason="these processors are of another kind")
@pytest.mark.parametrize("processor", ["x86-64", "x86-64-v3", "x86-64-v4", "native"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_any_compiler_takes_the_sources_for_any_processor(compiler: str, processor: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} is here")
    sources = [str(source) for source in library.SOURCES if source.suffix == ".c"]
    order = [compiler, f"-march={processor}", "-fsyntax-only", "-Wno-psabi", "-Werror", *sources]
    done = subprocess.run(order, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("gcc"), reason="it is told from gcc's words")
@pytest.mark.parametrize(
    ("name", "processor"), [("product", "x86-64"), ("product", "x86-64-v3"), ("attention", "x86-64-v3")]
)
def test_sums_stay_in_the_registers_of_any_processor(name: str, processor: str) -> None:
    """A vector that is wider than those lies on the stack, where its every operation reads and writes it."""
    (source,) = (source for source in library.SOURCES if source.name == f"{name}.c")
    flags = [flag for flag in library.FLAGS if flag not in ("-march=native", "-shared")]
    order = ["gcc", *flags, f"-march={processor}", "-Wno-psabi", "-S", "-o", "-", str(source)]
    made = subprocess.run(order, capture_output=True, text=True, check=True).stdout
    multiplied = re.findall(r"^\s+v?(?:f?mul|fn?madd\d+)ps\s", made, re.MULTILINE)
    stored = re.findall(r"^\s+v?mov(?:[au]ps|dq[au]\d*)\s+%[xyz]mm\d+, -?\d*\(%r[sb]p", made, re.MULTILINE)
    assert len(multiplied) > 300
    assert len(stored) < len(multiplied) / 2


def test_without_a_compiler_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    look = library.look
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    found = look()
    assert found.library is None
    assert "apt install gcc" in found.why
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert look().why == f"{broken} failed: no such flag"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], library.Native]:
    """Looks for a library of one source, which is made in a moment and kept in the test's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "SOURCES", [source for source in library.SOURCES if source.name == "populate.c"])
    return library.look


@needs_compiler
def test_it_is_compiled_once_and_where_it_cannot_be_kept_it_is_said(small, tmp_path) -> None:
    assert small().library is not None
    (kept,) = tmp_path.rglob("*.so")
    made = kept.stat().st_mtime_ns
    assert small().library is not None
    assert kept.stat().st_mtime_ns == made
    kept.unlink()
    kept.parent.rmdir()
    kept.parent.write_text("in the way")
    assert "batchscope" in small().why


@needs_compiler
def test_a_kept_library_that_is_damaged_is_made_anew(small, tmp_path) -> None:
    assert small().library is not None
    (kept,) = tmp_path.rglob("*.so")
    whole = kept.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:4_000] + bytes(4_000) + whole[8_000:]):
        kept.unlink()  # and not written over: it is loaded
        kept.write_bytes(damaged)
        assert not library._is_whole(kept)
        assert small().library is not None
        assert kept.read_bytes()[:8_000] == whole[:8_000]
        assert library._is_whole(kept)


@needs_compiler
def test_compiling_is_told_and_can_be_given_up_within_a_moment(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    told: list[float] = []

    def compiling() -> None:
        told.append(time.monotonic())
        if len(told) == 4:
            raise LoadCancelled("the load was cancelled")

    with pytest.raises(LoadCancelled):
        library.look(compiling)
    assert time.monotonic() - told[-1] < 4.0, "compiling takes longer, the longer the busier the machine is"

    def running() -> list[str]:
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        return [line for line in lines if str(tmp_path) in line]

    until(lambda: not running())  # nor does what the compiler began run on
    assert not list(tmp_path.glob("batchscope/*"))


@needs_compiler
def test_two_that_miss_it_at_once_compile_it_once_and_who_waits_can_give_up(small, tmp_path, monkeypatch) -> None:
    compiler, calls = tmp_path / "cc", tmp_path / "calls"
    compiler.write_text(f'#!/bin/sh\necho >> {calls}\nsleep 0.3\nexec {library.find_compiler()} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))

    def cancelled() -> None:
        raise LoadCancelled("the load was cancelled")

    with ThreadPoolExecutor(2) as pair:
        both = [pair.submit(small) for _ in range(2)]
        until(calls.exists)
        with pytest.raises(LoadCancelled):
            small(cancelled)
        assert all(each.result().library is not None for each in both)
    assert calls.read_text() == "\n"


@pytest.fixture(scope="module")
def narrower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[bool]]:
    """Kernels for a processor with narrower registers than this one has, which a load compiles; whether a load, and one
    after it, said so."""
    if library.find_compiler() is None:
        pytest.skip("no C compiler")
    processor = "x86-64-v3" if "avx512f" in library._processor() else "x86-64"
    flags = [flag for flag in library.FLAGS if flag != "-O3"]  # sooner done
    if platform.machine() == "x86_64":
        flags = [flag.replace("native", processor) for flag in flags]
    kept, said = (library.function, library.work), list[bool]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "FLAGS", flags)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("narrower")))
        for _ in range(2):
            patch.setattr(library, "_native", None)
            for each in kept:
                each.cache_clear()
            stages = list[LoadProgress]()
            load(ModelSpec("demo"), stages.append)
            said.append("compiling kernels for this processor, once" in [each.stage for each in stages])
        yield said
    for each in kept:
        each.cache_clear()


def test_a_load_says_that_it_compiles_and_only_once(narrower: list[bool]) -> None:
    assert narrower == [True, False]


def test_narrower_registers_compute_the_same(narrower: list[bool]) -> None:
    for dtype in DTYPES:
        test_decode_attention_equals_the_oracle(dtype, 8, 80, 16, Options(0.4, window=100, softcap=4.0), threads=1)
        test_decode_attention_equals_the_oracle(dtype, 3, 64, 16, Options(0.3), threads=2)
        test_our_product_equals_torchs(dtype, 1000, 100, threads=2)
        test_small_operations_round_as_torch_does(dtype, 3)
        test_the_greedy_choice_is_torchs(dtype)
        experts.test_experts_equal_torchs(dtype, 96, 50, Activation.SILU, threads=2)
        experts.test_tokens_go_where_torch_sends_them(dtype, 61, 4)
