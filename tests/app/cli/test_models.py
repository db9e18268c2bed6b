"""`batchscope models`: the list, a search and a download, against a hub on loopback."""

import json
from pathlib import Path

import pytest

from app.__main__ import main
from tests.engine.checkpoints.hub.conftest import SECOND, hub, serving  # noqa: F401
from tests.engine.checkpoints.hub.small_hub import SmallHub


def test_the_list_names_the_demo_models_and_what_was_downloaded(
    hub: SmallHub,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", "--download", "batch/stories"]) == 0
    out = capsys.readouterr().out
    assert f"batch/stories at {SECOND[:12]}: 1.75 MB, licence apache-2.0" in out
    assert "batchscope run --model batch/stories" in out
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["model", "revision", "place", "size", "changed"]
    assert [line.split()[0] for line in lines if "  cache  " in line] == ["batch/stories"]
    assert {"demo", "demo-draft"} <= {line.split()[0] for line in lines}
    assert main(["models", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(e["source"], e["revision"], e["problem"]) for e in told if e["place"] == "cache"] == [
        ("batch/stories", SECOND, "")
    ]


def test_a_search_prints_what_the_hub_has(
    hub: SmallHub,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", "--search", "stories", "--limit", "3"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in out[1:4]] == [
        ["batch/stories-5m", "80,000"], ["batch/stories", "900"], ["batch/gated-stories", "600"],
    ]  # fmt: skip
    assert "accept its licence" in out[4]
    assert main(["models", "--search", "no such thing"]) == 0
    assert "no text-generation model" in capsys.readouterr().out


def test_a_download_as_json_names_the_folder_and_a_revision_is_heeded(
    hub: SmallHub,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", "--download", "batch/stories", "--revision", "v1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["revision"] == "1" * 40
    assert (Path(told["folder"]) / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--download", "batch/nothing"], "the hub has no model 'batch/nothing'"),
        (["--download", "batch/gated-stories"], "is gated: accept its licence on"),
        (["--download", "batch/pickled-stories"], "only there as pickle"),
        (["--download", ""], "no model ''"),
        (["--revision", "v1"], "--revision: is of a download; give --download ID too"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(
    hub: SmallHub,  # noqa: F811
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
