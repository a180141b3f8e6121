"""Who visits the page: what a cookie says of them, signed so that nobody else can write one."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Visitor:
    """One session of a browser.

    Attributes:
        id: drawn anew for each session; forms are bound to it.
        name: what the person calls themselves; empty before they have told it.
        ends_at_s: when the session ends, in seconds since the epoch.
    """

    id: str
    name: str
    ends_at_s: float


def make_visitor(name: str, ends_at_s: float) -> Visitor:
    """Return a new session."""
    return Visitor(secrets.token_hex(16), name, ends_at_s)


class Seal:
    """Signs what browsers keep (HMAC-SHA-256); with another key or token all sessions are over.

    Args:
        key: a secret.
        token: of the server, which whoever has a session has shown; None: there is none.
    """

    def __init__(self, key: bytes, token: str | None) -> None:
        made_for = f"groupwise review {json.dumps(token)}"
        self._key = hmac.new(key, made_for.encode(), hashlib.sha256).digest()

    def write(self, visitor: Visitor) -> str:
        """Return the text of a cookie."""
        body = base64.urlsafe_b64encode(json.dumps(asdict(visitor)).encode()).decode()
        return f"{body}.{self._sign('session', body)}"

    def read(self, text: str, now_s: float) -> Visitor | None:
        """Return who a cookie speaks of; None if it is not ours, or over."""
        body, _, signature = text.rpartition(".")
        if not _are_same(signature, self._sign("session", body)):
            return None
        try:
            visitor = Visitor(**json.loads(base64.urlsafe_b64decode(body)))
        except (binascii.Error, ValueError, TypeError):  # of another version of this class
            return None
        return visitor if now_s < visitor.ends_at_s else None

    def write_form_token(self, visitor: Visitor) -> str:
        """Return what each form of a session carries, and no other site knows."""
        return self._sign("form", visitor.id)

    def is_form_token(self, given: str, visitor: Visitor) -> bool:
        """Return whether a form is of this session."""
        return _are_same(given, self.write_form_token(visitor))

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


def is_token(given: str, token: str | None) -> bool:
    """Return whether this is the server's token, in a time that does not tell how much of it is."""
    return token is None or _are_same(given, token)


def _are_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
