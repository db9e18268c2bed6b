"""The command line as a person meets it: exit codes, tables, JSON, one clear line for a mistake."""

import json
import tomllib
from pathlib import Path

import pytest
import torch

from app.__main__ import main, parser
from engine import load_trace, measure
from engine.kernels.cpu.library import native


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("Tell me a story about a fox and a kite.\n\nTell me a story about a cow and a drum.\n", "utf-8")
    return path


def test_run_prints_the_metrics_table_and_the_texts(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = prompts.read_text("utf-8").split("\n\n")
    assert main(["run", *asked, "--temperature", "0", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "2 of 2 completed" in out
    for word in ("fox", "kite", "cow", "drum", "TTFT", "TPOT", "ITL", "E2E latency", "tok/s"):
        assert word in out
    bill = out[out.index("memory of this machine") : out.index("requests ")].splitlines()
    assert [line.split("  ")[1] for line in bill[1:8]] == [
        "weights", "KV pool", "activations", "runtime", "others", "free", "in all",
    ]  # fmt: skip
    assert "fits 128 requests × 512 tokens · 64 × 1,024 (context); KV 6 KB a token" in out
    assert ("decode graphs: 1–64 rows (64)" in out) == (native().library is not None)


def test_run_as_json_holds_metrics_and_answers_and_the_file_holds_the_run(
    prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the model runs on the CPU: no C compiler"
    monkeypatch.setattr("engine.models.loading.device_for", lambda asked: (torch.device("cpu"), why))
    out = tmp_path / "a.bsrun"
    status = main(
        ["run", "--prompts", str(prompts), "--repeat", "2", "--max-tokens", "9", "--json", "--out", str(out)]
        + ["--threads", "1", "--ignore-eos"]
    )
    assert status == 0
    said = capsys.readouterr()
    assert f"batchscope: {why}" in said.err
    printed = json.loads(said.out)
    assert [a["finish_reason"] for a in printed["answers"]] == ["length"] * 4
    assert printed["metrics"]["output_tokens"] == 36
    memory = printed["memory"]
    bill = memory["bill"]
    assert sum(count for name, count in bill.items() if name != "total") == bill["total"]
    assert memory["fits"] == {"512": memory["blocks"] // 32, "1024": memory["blocks"] // 64}
    recorded = [*range(1, 65)] if native().library is not None else []
    assert (memory["graphs"], memory["graphs_off"]) == (recorded, "")
    trace = load_trace(out)
    assert [v.text for v in trace.requests.values()] == [a["text"] for a in printed["answers"]]
    assert measure(trace).output_tokens == 36


def test_a_run_that_is_there_is_neither_written_into_nor_waited_for(
    prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.bsrun"
    out.write_text("mine")
    assert main(["run", "--prompts", str(prompts), "--out", str(out)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, out.read_text()) == ("", "mine")
    assert f"{out} exists; choose another name" in captured.err


def test_lines_of_json_are_read_whatever_the_files_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text('{"prompt": "Tell me of a fox.", "max_tokens": 3}\n{"text": "Once", "max_tokens": 5}\n')
    assert main(["run", "--prompts", str(path), "--json", "--threads", "1", "--ignore-eos"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert [(a["prompt"], len(a["token_ids"])) for a in answers] == [("Tell me of a fox.", 3), ("Once", 5)]


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "batchscope 0.1.0\n"
    assert tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]["version"] == "0.1.0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--model", "/no/such/folder"], ["/no/such/folder", "check the path"]),
        (["run", "--model", "no-such-model"], ["no-such-model", "hub id"]),
        (["run", "--mode", "static", "--prefix-caching"], ["prefix_caching=True", "static", "continuous, chunked"]),
        (["run", "--delivery", "batch"], ["delivery='batch'", "use static or dynamic"]),
        (["run", "--mode", "dynamic", "--longest-wait", "-1"], ["longest_wait=-1.0", "seconds"]),
        (["run", "--target-itl", "0.02"], ["target_itl=0.02", "mode 'continuous'", "use chunked"]),
        (["run", "--join-every", "0"], ["join_every=0", "at least 1"]),
        (["run", "--n", "0"], ["n=0", "from 1"]),
        (["run", "--slo-ttft", "0"], ["slo_ttft=0.0", "above 0"]),
        (["run", "--workload", "no-such"], ["no-such", "mixed-lengths"]),
        (["run", "--workload", "burst", "--prompts", "a.txt"], ["--prompts and --workload", "one of them"]),
        (["run", "Once", "--prompts", "a.txt"], ["--prompts and PROMPT", "one of them"]),
        (["run", "Once", " "], ["PROMPT is empty"]),
        (["run", "--rate", "4"], ["--rate 4.0", "give --workload"]),
        (["run", "--prompts", "a.txt", "--concurrency", "2"], ["--concurrency 2", "give --workload"]),
        (["run", "--mode", "sideways"], ["sideways", "continuous"]),
        (["run", "--quantization", "nf9"], ["nf9", "nf4-double"]),
        (["run", "--model", "demo-draft", "--quantization", "awq"], ["batchscope quantize"]),
        (["run", "--temperature", "-1"], ["temperature=-1.0", "0 (greedy)"]),
        (["run", "--top-p", "0"], ["top_p=0.0", "above 0"]),
        (["run", "--max-tokens", "0"], ["max_tokens=0", "at least 1"]),
        (["run", "--block-size", "12"], ["block_size=12", "power of two"]),
        (["run", "--prompts", "/no/prompts.txt"], ["/no/prompts.txt", "check the path"]),
        (["run", "--device", "cuda:99"], ["cuda:99"]),
        (["run", "--kv-memory", "10"], ["kv_memory=10", "one block"]),
        (["bench", "--techniques", "beam"], ["techniques='beam'", "speculation, beams, kv, swap"]),
    ],
)  # fmt: skip
def test_bad_input_ends_with_status_2_and_one_line_that_names_it(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("batchscope: ")
    assert len(captured.err.strip().splitlines()) == 1
    for word in words:
        assert word in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["foo"], "batchscope: there is no command 'foo'; commands are run, serve, key, fleet, "),
        (["foo", "--n", "2"], "batchscope: there is no command 'foo'; commands are run, serve, key, fleet, "),
        (["rnu"], "batchscope: there is no command 'rnu'; did you mean run? See batchscope --help"),
        (["--modell", "demo"], "batchscope: batchscope has no option --modell; did you mean --model or --mode? See"),
        (
            ["--model", "demo", "--max-runing=3"],
            "batchscope: batchscope has no option --max-runing; did you mean --max-",
        ),
        (
            ["--device", "cpu", "doctor"],
            "batchscope: --device stands before the command 'doctor': options go behind it;",
        ),
        (
            ["run", "--choices", ","],
            "batchscope: argument --choices: ',' names nothing; give texts with commas between",
        ),
        (["run", "--bogus"], "batchscope: run has no option --bogus; see batchscope run --help"),
        (["run", "--workloda=burst"], "batchscope: run has no option --workloda; did you mean --workload? See batch"),
        (
            ["sweep", "Tell me a story"],
            "batchscope: sweep does not take 'Tell me a story'; what it takes is given by its op",
        ),
        (["replay"], "batchscope: the following arguments are required: RUN; see batchscope replay --help"),
    ],
)
def test_a_command_that_cannot_be_read_is_told_in_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(words)
    assert said.count("\n") == 1


def test_a_prompt_file_that_is_not_utf8_is_named_with_line_and_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.txt"
    path.write_bytes(b"good\nb\xffd\n")
    assert main(["run", "--prompts", str(path)]) == 2
    assert f"{path}, line 2, byte 2: not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "size"), [("512M", 512 << 20), ("4G", 4 << 30), ("1.5k", 1536), ("7", 7)])
def test_sizes_are_read_with_their_unit(text: str, size: int) -> None:
    assert parser().parse_args(["run", "--kv-memory", text]).kv_memory == size


def test_help_begins_with_the_commands_and_tells_each_option_with_its_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = {}
    for arguments in ([], ["run"], ["serve"], ["compare"]):
        with pytest.raises(SystemExit):
            main([*arguments, "--help"])
        told[" ".join(arguments)] = capsys.readouterr().out
    assert told[""].index("\ncommands:\n    run ") < told[""].index("\nthe model, and where it computes:\n")
    assert all(text.splitlines()[0].count("--") == 0 for text in told.values()), "a usage that lists options"
    assert told["compare"].startswith("usage: batchscope compare [options] [LANE ...]\n")
    for command in ("run", "serve"):
        assert "--max-running N       requests that run at once (default: 64)\n" in told[command]
        assert "\n  Paged modes are continuous, chunked and disaggregated.\n" in told[command]


def test_doctor_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "torch" in capsys.readouterr().out
