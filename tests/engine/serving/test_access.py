"""Who may ask is asked at every door but one, and nobody reads a secret afterwards."""

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from engine import EngineProcess, InvalidInput
from engine.serving import KEYS_VARIABLE, JwtRules, KeyFile, Server, ServingSettings, made_key
from engine.trace import Submitted
from tests.engine.serving.conftest import calling, kept, serving

SECRET = b"a secret of at least thirty-two bytes, as HS256 wants"
GOOD = {"iss": "us", "aud": "them", "sub": "ann"}
STORY: dict[str, Any] = {"model": "demo", "prompt": "Once", "max_tokens": 2}
LONG = STORY | {"max_tokens": 900, "ignore_eos": True, "stream": True}
ROUTES = {
    "/v1/models": None,
    "/v1/models/demo": None,
    "/v1/chat/completions": {"model": "demo", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
    "/v1/completions": STORY,
    "/tokenize": {"prompt": "Once"},
    "/detokenize": {"tokens": [5]},
    "/ready": None,
    "/metrics": None,
    "/nowhere": None,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="module")
def key(folder: Path) -> str:
    told, kept = made_key("ann")
    KeyFile(folder / "keys.json").add(kept)
    return told


@pytest.fixture(scope="module")
def closed(engine: EngineProcess, folder: Path, key: str) -> Iterator[Server]:
    """Asks for a key or a token; a page of https://app.example may call it; a key has two samples open at most."""
    secret = folder / "secret"
    secret.write_bytes(SECRET + b"\n")
    settings = ServingSettings(
        port=0, keys=folder / "keys.json", jwt=JwtRules("us", "them", secret), origins=("https://app.example",),
        allowed_hosts=("models.example",), per_key=2, body=4096,
    )  # fmt: skip
    with serving(engine, settings) as server:
        yield server


@pytest.fixture(scope="module")
def http(closed: Server) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=closed.address, timeout=30, trust_env=False) as http:
        yield http


def token(algorithm: str = "HS256", key: Any = SECRET, **claims: Any) -> str:
    whole = {**GOOD, "exp": time.time() + 60, **claims}
    return jwt.encode({k: v for k, v in whole.items() if v is not None}, key, algorithm)


def asked(http: httpx2.Client, route: str, credentials: str | None = None, **headers: str) -> httpx2.Response:
    if credentials is not None:
        headers["Authorization"] = f"Bearer {credentials}"
    body = ROUTES.get(route)
    return http.get(route, headers=headers) if body is None else http.post(route, json=body, headers=headers)


def bad_credentials(key: str) -> dict[str, str | None]:
    public = rsa.generate_private_key(65537, 2048)
    return {
        "none": None,
        "another key": "bs-" + "x" * 43,
        "its name": "ann",
        "its hash": hashlib.sha256(key.encode()).hexdigest(),
        "cut": key[:-1],
        "expired": token(exp=time.time() - 60),
        "without an end": token(exp=None),
        "another issuer": token(iss="you"),
        "without an issuer": token(iss=None),
        "for another": token(aud="us"),
        "for nobody": token(aud=None),
        "another secret": token(key=b"x" * 40),
        "unsigned": token("none", None),
        "another algorithm": token("HS384"),
        "signed with a key pair": token("RS256", public),
        "no token": "a.b.c",
    }


def test_every_route_but_health_refuses_whoever_cannot_show_a_key(http: httpx2.Client, key: str) -> None:
    for name, credentials in bad_credentials(key).items():
        for route in ROUTES if name in ("none", "another key", "expired", "unsigned") else ("/v1/models",):
            told = asked(http, route, credentials)
            assert (told.status_code, told.headers["www-authenticate"]) == (401, "Bearer"), (name, route)
            assert told.json()["error"]["code"] == "invalid_api_key"
    assert http.get("/health").status_code == 200
    assert http.get("/v1/models", headers={"Authorization": f"Basic {key}"}).status_code == 401


def test_a_key_and_a_token_open_every_route(http: httpx2.Client, key: str) -> None:
    for credentials in (key, token()):
        found = {route: asked(http, route, credentials).status_code for route in ROUTES}
        assert found == {route: 404 if route == "/nowhere" else 200 for route in ROUTES}


def test_keys_of_rs256_are_taken_by_their_id_alone(engine: EngineProcess, folder: Path) -> None:
    private = rsa.generate_private_key(65537, 2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key()))
    jwks = folder / "jwks.json"
    jwks.write_text(json.dumps({"keys": [public | {"kid": "1", "use": "sig"}]}))
    pem = private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    claims = {**GOOD, "exp": time.time() + 60}
    with calling(engine, ServingSettings(port=0, jwt=JwtRules("us", "them", jwks=jwks))) as http:
        good = jwt.encode(claims, private, "RS256", headers={"kid": "1"})
        assert asked(http, "/v1/models", good).status_code == 200
        unknown = jwt.encode(claims, private, "RS256", headers={"kid": "2"})
        assert asked(http, "/v1/models", unknown).status_code == 401
        forged = jwt.encode(claims, pem[:64], "HS256", headers={"kid": "1"})
        assert asked(http, "/v1/models", forged).status_code == 401


def test_a_revoked_key_is_refused_by_a_server_that_runs(engine: EngineProcess, tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    told, kept = made_key("bob")
    file.add(kept)
    with calling(engine, ServingSettings(port=0, keys=file.path)) as http:
        assert asked(http, "/v1/models", told).status_code == 200
        file.revoke("bob")
        deadline = time.monotonic() + 20
        while asked(http, "/v1/models", told).status_code != 401:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert asked(http, "/v1/models").status_code == 401, "without any key left it stays closed"


def test_keys_of_the_environment_open_it_too(
    engine: EngineProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, "ann=a-key-of-sixteen-or-more, another-key-of-sixteen")
    with calling(engine, ServingSettings(port=0, keys=tmp_path / "none.json")) as http:
        given = ("a-key-of-sixteen-or-more", "another-key-of-sixteen", "ann", None)
        assert [asked(http, "/v1/models", one).status_code for one in given] == [200, 200, 401, 401]
    monkeypatch.setenv(KEYS_VARIABLE, "short")
    with pytest.raises(InvalidInput, match="key 1 has 5 characters") as told:
        Server(ServingSettings(port=0))
    assert "short" not in str(told.value)


def test_an_address_that_others_reach_needs_keys(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"host=0\.0\.0\.0: others can reach .*batchscope key new"):
        Server(ServingSettings("0.0.0.0", 0))
    told, kept = made_key("ann")
    file = KeyFile(tmp_path / "keys.json")
    file.add(kept)
    Server(ServingSettings("0.0.0.0", 0, file.path)).close()
    file.revoke("ann")
    with pytest.raises(InvalidInput, match="others can reach"):
        Server(ServingSettings("0.0.0.0", 0, file.path))


def test_another_hosts_name_is_refused(http: httpx2.Client, key: str) -> None:
    names = {"evil.example": 400, "evil.example:80": 400, "": 400, "localhost": 200, "models.example:8000": 200}
    names |= {"127.0.0.1:1": 200, "[::1]:80": 200, "10.0.0.7": 200}
    assert {name: asked(http, "/v1/models", key, Host=name).status_code for name in names} == names
    assert http.get("/health", headers={"Host": "evil.example"}).status_code == 400


def test_pages_that_are_not_named_may_not_call_it(http: httpx2.Client) -> None:
    def preflight(origin: str) -> httpx2.Response:
        wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        return http.options("/v1/completions", headers={"Origin": origin, **wanted})

    assert preflight("https://app.example").headers["access-control-allow-origin"] == "https://app.example"
    assert preflight("https://app.example").status_code == 200
    assert preflight("https://evil.example").status_code == 400
    assert "access-control-allow-origin" not in preflight("https://evil.example").headers


def test_a_body_that_is_too_long_is_refused_told_or_not(http: httpx2.Client, key: str) -> None:
    body = json.dumps(STORY | {"prompt": "a" * 5000}).encode()
    headers = {"Authorization": f"Bearer {key}"}
    told = http.post("/v1/completions", content=body, headers=headers)
    chunked = http.post("/v1/completions", content=iter([body[:3000], body[3000:]]), headers=headers)
    for answer in (told, chunked):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_a_key_with_too_much_open_comes_later_and_others_do_not_wait(http: httpx2.Client, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    with http.stream("POST", "/v1/completions", json=LONG | {"n": 2}, headers=headers) as stream:
        assert stream.status_code == 200
        late = asked(http, "/v1/completions", key)
        assert (late.status_code, late.headers["retry-after"]) == (429, "1")
        assert late.json()["error"]["type"] == "rate_limit_error"
        assert asked(http, "/v1/completions", token()).status_code == 200
    deadline = time.monotonic() + 20
    while asked(http, "/v1/completions", key).status_code == 429:
        assert time.monotonic() < deadline
    never = http.post("/v1/completions", json=STORY | {"n": 3}, headers=headers)
    assert (never.status_code, never.json()["error"]["param"]) == (400, "n")


def test_neither_keys_nor_tokens_nor_texts_are_written_anywhere(
    http: httpx2.Client,
    engine: EngineProcess,
    key: str,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    bearer, said = token(), "a text that nobody else says"
    for credentials in (key, bearer):
        headers = {"Authorization": f"Bearer {credentials}"}
        http.post("/v1/completions", json=STORY | {"prompt": said}, headers=headers)
        http.post("/v1/completions", json=STORY | {"prompt": said, "temperature": said}, headers=headers)
        http.post(f"/nowhere?key={credentials}", content=said, headers=headers)
    ours = [r.getMessage() for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    written = "\n".join([*ours, *capfd.readouterr(), (folder / "keys.json").read_text()])
    labels = {record.label for record in kept(engine) if isinstance(record, Submitted)}
    assert {"ann", "jwt ann"} <= labels
    for secret in (key, key.removeprefix("bs-"), bearer, bearer.split(".")[2], SECRET.decode()):
        assert secret not in written
        assert not any(secret in label for label in labels)
    assert said not in written


def test_it_serves_https_with_a_certificate(engine: EngineProcess, tmp_path: Path) -> None:
    private = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(private.public_key())
    made = made.serial_number(1).not_valid_before(datetime.now() - timedelta(days=1))
    whole = made.not_valid_after(datetime.now() + timedelta(days=1)).sign(private, hashes.SHA256())
    certificate, pem = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(whole.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem.write_bytes(private.private_bytes(serialization.Encoding.PEM, *form))
    with calling(engine, ServingSettings(port=0, tls_certificate=certificate, tls_key=pem)) as http:
        assert str(http.base_url).startswith("https://")
        assert http.get("/health").status_code == 200
    with pytest.raises(InvalidInput, match="are no certificate with its key"):
        Server(ServingSettings(port=0, tls_certificate=certificate, tls_key=certificate))


def test_a_port_that_is_taken_is_told_at_once(closed: Server) -> None:
    port = int(closed.address.rpartition(":")[2])
    with pytest.raises(InvalidInput, match=f"port={port}: .* choose another --port"):
        Server(ServingSettings(port=port))
