"""Under which names the page may be reached while there is no token.

A site elsewhere can let its own name lead to this machine, and then read what a browser here may
read. It cannot do that with an address, nor with a name of ours.
"""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_REFUSAL = PlainTextResponse(
    "without a token the page is reached by address or as localhost only; set GROUPWISE_TOKEN", 403
)


class KnownHosts:
    """An ASGI layer that refuses requests to other names (403).

    Args:
        app: what stands behind it.
        names: that are ours, beside addresses and ``localhost``.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, or refuse it."""
        host = Request(scope).headers.get("host", "")
        app = self._app if is_known(host, self._names) else _REFUSAL
        await app(scope, receive, send)


def is_known(host: str, names: Collection[str]) -> bool:
    """Return whether a Host header has one of these names, or an address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in names or bool(ip_address(name))
    except ValueError:
        return False
