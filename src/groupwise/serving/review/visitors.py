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
        # People are kept as digests of their names with the same key, and no name is bytes of
        # this kind: else the digest of a well-chosen name would be the key of all sessions.
        made_for = f"groupwise review {json.dumps(token)}".encode()
        self._key = hmac.new(key, b"\xff" + made_for, hashlib.sha256).digest()

    def write(self, cookie: str, visitor: Visitor) -> str:
        """Return the text of a cookie of this name, which is none under another name."""
        body = base64.urlsafe_b64encode(json.dumps(asdict(visitor)).encode()).decode()
        return f"{body}.{self._sign(cookie, body)}"

    def read(self, cookie: str, text: str, now_s: float) -> Visitor | None:
        """Return who the cookie of this name speaks of; None if it is not ours, or over."""
        body, _, signature = text.rpartition(".")
        if not _are_same(signature, self._sign(cookie, body)):
            return None
        try:
            visitor = Visitor(**json.loads(base64.urlsafe_b64decode(body)))
        except (binascii.Error, ValueError, TypeError):  # of another version of this class
            return None
        return visitor if now_s < visitor.ends_at_s else None

    def write_form_token(self, cookie: str, visitor: Visitor) -> str:
        """Return what each form of who has this cookie carries, and no other site knows."""
        return self._sign(f"form of {cookie}", visitor.id)

    def is_form_token(self, given: str, cookie: str, visitor: Visitor) -> bool:
        """Return whether a form is of who has this cookie."""
        return _are_same(given, self.write_form_token(cookie, visitor))

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


def is_token(given: str, token: str | None) -> bool:
    """Return whether this is the server's token, in a time that does not tell how much of it is."""
    return token is None or _are_same(given, token)


def _are_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
