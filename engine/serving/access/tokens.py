"""JSON web tokens: fixed algorithms; exp, iss and aud are asked for."""

from typing import Any

import jwt

from engine.config.checks import InvalidInput
from engine.config.files import read_file
from engine.serving.settings import JwtRules

LEAST_SECRET = 32  # bytes, as long as the hash of HS256
MOST_BYTES = 1 << 20  # of a file of keys
LEEWAY = 10  # seconds that clocks may differ by


class TokenReader:
    """Reads tokens by the rules. Raises InvalidInput where the files of the rules cannot be used."""

    def __init__(self, rules: JwtRules) -> None:
        self._rules = rules
        path = rules.secret if rules.secret is not None else rules.jwks
        assert path is not None
        try:
            content = read_file(path, MOST_BYTES)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
        self._secret = content.strip()
        self._keys: dict[str | None, Any] = {}
        if rules.secret is not None:
            if len(self._secret) < LEAST_SECRET:
                raise InvalidInput(f"{path} has {len(self._secret)} bytes; a secret needs at least {LEAST_SECRET}")
            return
        try:
            keys = jwt.PyJWKSet.from_json(content.decode()).keys
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
            raise InvalidInput(f"{path} is no JWKS file") from error
        self._keys = {key.key_id: key.key for key in keys if key.key_type == "RSA"}
        if not self._keys:
            raise InvalidInput(f"{path} has no RSA key; RS256 needs one")

    def subject_of(self, token: str) -> str | None:
        """Whom a token was given to; None where it does not hold."""
        rules = self._rules
        how: dict[str, Any] = {"issuer": rules.issuer, "audience": rules.audience, "leeway": LEEWAY}
        how["options"] = {"require": ["exp", "iss", "aud"]}
        try:
            if rules.secret is not None:
                claims = jwt.decode(token, self._secret, algorithms=["HS256"], **how)
            else:
                key = self._keys.get(jwt.get_unverified_header(token).get("kid"))
                if key is None:
                    return None
                claims = jwt.decode(token, key, algorithms=["RS256"], **how)
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        return f"jwt {claims.get('sub') or claims['iss']}"
