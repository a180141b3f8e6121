"""Forms that browsers send: small, from this page, and of this session."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from fastapi import HTTPException
from starlette.requests import Request

_KIND = "application/x-www-form-urlencoded"
_MAX_BYTES, _MAX_FIELDS = 64 * 1024, 10


async def read_form(http: Request) -> Mapping[str, str]:
    """Return the fields of a form that this server's own page sent."""
    _check_origin(http)
    if http.headers.get("content-type", "").partition(";")[0].strip().lower() != _KIND:
        raise HTTPException(415, "no_form")
    body = await http.body()
    if len(body) > _MAX_BYTES:
        raise HTTPException(413, "too_long")
    try:
        text = body.decode("ascii")
        pairs = parse_qsl(text, True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise HTTPException(422, "no_form") from error
    return dict(pairs)


def get_text(form: Mapping[str, str], name: str, max_length: int) -> str:
    """Return a field that has to be there."""
    value = form.get(name, "")
    if not 0 < len(value) <= max_length:
        raise HTTPException(422, "no_form")
    return value


def _check_origin(http: Request) -> None:
    """Refuse a form of another site; browsers name the site of every form that they send."""
    origin = urlsplit(http.headers.get("origin", ""))
    is_web = origin.scheme in ("http", "https")
    if not (is_web and origin.netloc and origin.netloc == http.headers.get("host")):
        raise HTTPException(403, "foreign")
