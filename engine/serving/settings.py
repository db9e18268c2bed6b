"""What a server is told: where it listens, who may ask, and how much at once."""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from engine.config.checks import check, text, whole

LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class JwtRules:
    """Tokens of `issuer` for `audience` are taken: signed with the secret in the file `secret` (HS256), or with a key
    of the JWKS file `jwks` (RS256)."""

    issuer: str
    audience: str
    secret: Path | None = None
    jwks: Path | None = None

    def __post_init__(self) -> None:
        for name in ("issuer", "audience"):
            check(bool(text(f"jwt_{name}", getattr(self, name))), f"jwt_{name}", getattr(self, name), "must be named")
        one = (self.secret is None) != (self.jwks is None)
        check(one, "jwt", (self.secret, self.jwks), "give the file of a secret (HS256) or a JWKS file (RS256)")


@dataclass(frozen=True, slots=True)
class RequestLogSettings:
    """`database` is a file of SQLite, or a URL (postgresql://USER@HOST/DATABASE). Rows are in the file `spool` until it
    has them, at most `spool_bytes`. `text`: prompts and answers are kept too."""

    database: str
    spool: Path
    text: bool = False
    spool_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check(bool(text("request_log", self.database)), "request_log", self.database, "name a file or a URL")
        whole("log_spool_size", self.spool_bytes)


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Where OpenTelemetry's spans and measures go, over HTTP: `url` without /v1/traces (None: where
    $OTEL_EXPORTER_OTLP_* say). `text`: with prompts and answers."""

    url: str | None = None
    text: bool = False

    def __post_init__(self) -> None:
        if self.url is not None:
            fine = self.url.startswith(("http://", "https://"))
            check(fine, "otlp", self.url, "give a URL, such as http://127.0.0.1:4318")


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """`port` 0 takes any that is free. `keys` is a file of `batchscope key`; where there are keys or `jwt`, every route
    but /health asks for one. `allowed_hosts` are names by which it may be called beside its address. `origins` are the
    web pages (`https://host`) that may call it from a browser. At most `queue` samples wait beside those that run, and
    at most `per_key` of one key are open (None: no limit of its own). Bodies over `body` bytes are refused. Of the
    windows that watch from elsewhere, one of the keys that `controllers` name may send, stop and steer, and reads all
    texts; where no key is asked for, the first to come. All others read them only with `share_text`. `request_log` and
    `otlp` say where it is told what became of requests (None: nowhere). `kills`: who may ask may end a
    fleet's replicas too, to show what becomes of their streams.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    keys: Path | None = None
    jwt: JwtRules | None = None
    allowed_hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    queue: int = 256
    per_key: int | None = None
    body: int = 8 << 20
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    controllers: tuple[str, ...] = ()
    share_text: bool = False
    request_log: RequestLogSettings | None = None
    otlp: OtlpSettings | None = None
    kills: bool = False

    def __post_init__(self) -> None:
        check(bool(text("host", self.host)), "host", self.host, "name an address, such as 127.0.0.1")
        whole("port", self.port, 0, 65_535)
        whole("queue", self.queue, 0)
        if self.per_key is not None:
            whole("per_key", self.per_key)
        whole("body", self.body)
        for name in self.allowed_hosts:
            bare = ":" not in name and "/" not in name and name.isprintable() and bool(name)
            check(bare, "allow_host", name, "give a name without scheme and port, such as models.example.org")
        for origin in self.origins:
            whole_origin = origin.startswith(("http://", "https://")) and origin.count("/") == 2
            check(whole_origin, "cors", origin, "give a page's origin, such as https://app.example.org")
        both = (self.tls_certificate is None) == (self.tls_key is None)
        check(both, "tls", (self.tls_certificate, self.tls_key), "give certificate and key, or neither")
        for name, path in (("tls_certificate", self.tls_certificate), ("tls_key", self.tls_key)):
            check(path is None or path.is_file(), name, str(path), "there is no such file")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False
