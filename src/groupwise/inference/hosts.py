"""Which servers a config may lead to: those whose host this user has named, once.

A config or a run folder may be somebody else's, and asking a server sends it rows, pictures and a
key. Hosts are named with ``--allow-judge`` and kept in the user's own configuration folder.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import cast

import httpx2

from groupwise.core import Config, ConfigError, replace_file
from groupwise.inference.server_settings import ServerSettings


def allow_hosts(hosts: Sequence[str]) -> None:
    """Remember that this user means these hosts to be asked, with the key that a config names.

    Raises:
        ConfigError: for what is no host; if they cannot be written down.
    """
    named = {_read_named(host) for host in hosts}
    known = _list_allowed()
    if named <= known:
        return
    file = _find_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(file, [f"{host}\n".encode() for host in sorted(known | named)])
    except OSError as error:
        raise ConfigError(f"the hosts cannot be written down in {file} ({error})") from error


def check_hosts(config: Config) -> None:
    """Refuse a config that leads to a host that this user has not named, before hours of work.

    Raises:
        ConfigError: naming the host.
    """
    for server in _find_servers(config):
        check_host(server.url, server.api_key_variable)


def _find_servers(section: object) -> Iterator[ServerSettings]:
    """Yield the servers of a section, wherever they stand in it."""
    parts: Iterable[object] = ()
    if isinstance(section, ServerSettings):
        yield section
    elif isinstance(section, Config):
        parts = (getattr(section, name) for name in type(section).model_fields)
    elif isinstance(section, Mapping):
        parts = cast("Mapping[object, object]", section).values()
    elif isinstance(section, list | tuple):
        parts = cast("Sequence[object]", section)
    for part in parts:
        yield from _find_servers(part)


def check_host(url: str, variable: str | None) -> None:
    """Refuse a server that somebody else may have named.

    Without a key, a server on this machine may be asked by anybody.
    """
    host = _read_host(url)
    if host in _list_allowed() or (variable is None and _is_loopback(host)):
        return
    key = "" if variable is None else f", with the key in {variable}"
    raise ConfigError(
        f"the config leads to the server {url}{key}: rows and pictures would be sent to {host}, "
        "which you have not named",
        fix=f"if you trust whom the config is from, name the host once: --allow-judge {host}",
    )


def _find_file() -> Path:
    above = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(above, "groupwise", "allowed_hosts").expanduser()


def _list_allowed() -> set[str]:
    try:
        return set(_find_file().read_text("utf-8").split())
    except FileNotFoundError:
        return set()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the hosts in {_find_file()} ({error})") from error


def _read_named(host: str) -> str:
    try:
        found = _read_host(f"http://[{host}]/" if ":" in host else f"http://{host}/")
    except ConfigError:
        found = ""
    if not found or found != host.lower():
        raise ConfigError(
            "--allow-judge names no host", got=repr(host), expected="such as judge.example"
        )
    return found


def _read_host(url: str) -> str:
    """Return the host of a URL, as the client that asks it reads it."""
    try:
        return httpx2.URL(url).raw_host.decode("ascii").lower()
    except (httpx2.InvalidURL, UnicodeDecodeError) as error:
        raise ConfigError(f"{url!r} is no address of a server ({error})") from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
