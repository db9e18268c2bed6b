"""No key, no token and no text stands in what is kept or passed on of requests, unless that was asked for."""

import json
import time
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest

from engine import EngineProcess
from engine.serving import JwtRules, KeyFile, OtlpSettings, RequestLogSettings, ServingSettings, made_key
from tests.engine.serving.conftest import serving
from tests.engine.serving.request_logs import rows_of
from tests.engine.serving.test_otlp import collecting

SECRET = b"a secret of more than 32 bytes, for HS256"
PROMPT, STOP, MODEL, FIELD = "a marmalade heirloom", "periwinkle", "nonesuchmodel", "quicksilverfield"
BODY: dict[str, Any] = {"model": "demo", "max_tokens": 8, "ignore_eos": True}


@pytest.mark.parametrize("text", [False, True])
def test_what_is_kept_and_passed_on_has_texts_only_where_that_was_asked(
    engine: EngineProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    text: bool,
) -> None:
    """The log and the spans are asked in turns: neither has what was asked for the other."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    caplog.set_level("DEBUG")
    key, kept = made_key("ann")
    KeyFile(tmp_path / "keys.json").add(kept)
    (tmp_path / "secret").write_bytes(SECRET)
    claims = {"sub": "bob", "iss": "us", "aud": "it", "exp": time.time() + 600}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    with collecting() as collector:
        settings = ServingSettings(
            port=0,
            keys=tmp_path / "keys.json",
            jwt=JwtRules("us", "it", tmp_path / "secret"),
            request_log=RequestLogSettings(str(tmp_path / "requests.db"), tmp_path / "requests.spool", text),
            otlp=OtlpSettings(collector.url, not text),
        )
        said = ""
        with (
            serving(engine, settings) as server,
            httpx2.Client(base_url=server.address, timeout=30, trust_env=False) as http,
        ):
            for given in (key, token):
                headers = {"Authorization": f"Bearer {given}"}
                body = BODY | {"prompt": PROMPT, "stop": [STOP], "logit_bias": {"5": 2}}
                answer = http.post("/v1/completions", json=body, headers=headers)
                said = answer.json()["choices"][0]["text"]
                chat = BODY | {"messages": [{"role": "user", "content": PROMPT}], "stream": True}
                assert http.post("/v1/chat/completions", json=chat, headers=headers).status_code == 200
                for wrong in ({"model": MODEL}, {FIELD: PROMPT}, {"stop": [STOP] * 99}, {"response_format": STOP}):
                    assert http.post("/v1/completions", json=body | wrong, headers=headers).status_code in (400, 404)
                regex = {"response_format": {"type": "regex", "regex": f"({STOP}"}}
                http.post("/v1/completions", json=body | regex, headers=headers)
            assert http.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
            measured = http.get("/metrics", headers={"Authorization": f"Bearer {key}"}).content
    assert len(said) > 5
    rows = rows_of(str(tmp_path / "requests.db"))
    assert {row["key_name"] for row in rows} == {"ann", "jwt bob"}
    assert len(rows) == 14
    out = capfd.readouterr()
    files = [path.read_bytes() for path in tmp_path.glob("requests*")]
    places = {
        "log": b"".join(files),
        "spans": b"".join(collector.bodies),
        "metrics": measured,
        "lines": (caplog.text + out.out + out.err).encode(),
    }
    assert b"ann" in places["log"]
    assert b"ann" in places["spans"]
    for place, content in places.items():
        for secret in (key, token, SECRET.decode(), kept.sha256):
            assert secret.encode() not in content, f"{place}: a secret"
        asked = (place == "log" and text) or (place == "spans" and not text)
        for words in (PROMPT, STOP, said.strip()):
            assert (json.dumps(words)[1:-1].encode() in content) == asked, f"{place}: {words}"
        assert asked or (MODEL.encode() not in content and FIELD.encode() not in content)
