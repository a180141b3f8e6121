"""How machines find each other by the run folder, and who is not let in."""

import json
import socket
import stat
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from groupwise.core import ConfigError, RunError
from groupwise.flow import channels
from groupwise.flow.channels import CARD, Channel, LostError, enter, open_door

_PATIENCE_S = 30


def meet(out: Path) -> tuple[Channel, Channel]:
    """Return both ends of a channel."""
    found: list[Channel] = []
    with open_door(out, "127.0.0.1") as door:
        calling = Thread(target=lambda: found.append(enter(out)))
        calling.start()
        first = door.let_in(_PATIENCE_S)
        calling.join()
    assert first is not None
    return first, found[0]


def test_both_hear_each_other_and_see_the_end(tmp_path: Path) -> None:
    first, other = meet(tmp_path)
    assert first.receive(0) is None
    other.send(rank=1, host="节点")
    assert first.receive(_PATIENCE_S) == {"rank": 1, "host": "节点"}
    assert (first.address, other.address) == ("127.0.0.1", "127.0.0.1")
    first.close()
    with pytest.raises(LostError):
        other.receive(_PATIENCE_S)
    with suppress(LostError):
        other.send(rank=1)  # answered by a reset
    with pytest.raises(LostError):
        other.send(rank=1)
    assert not list(tmp_path.iterdir())


def test_only_this_user_can_read_the_key(tmp_path: Path) -> None:
    with open_door(tmp_path, "127.0.0.1"):
        assert stat.S_IMODE((tmp_path / CARD).stat().st_mode) == 0o600


def test_who_does_not_know_the_key_is_not_let_in(tmp_path: Path) -> None:
    with open_door(tmp_path, "127.0.0.1") as door:
        card = json.loads((tmp_path / CARD).read_text())
        with socket.create_connection(tuple(card["address"])) as stranger:
            stranger.sendall(b"\0\0\0\x04GET ")
            assert door.let_in(_PATIENCE_S) is None
        assert door.let_in(0) is None


def test_who_says_nothing_does_not_keep_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_HANDSHAKE_S", 1)
    with open_door(tmp_path, "127.0.0.1") as door:
        card = json.loads((tmp_path / CARD).read_text())
        with socket.create_connection(tuple(card["address"])):
            assert door.let_in(_PATIENCE_S) is None


def test_what_a_killed_run_left_is_no_way_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MEET_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    (tmp_path / CARD).write_text(json.dumps({"address": address, "key": "00"}))
    with pytest.raises(RunError, match=r"the first machine was not found within 0 s; got no way"):
        enter(tmp_path)


def test_an_address_of_another_machine_is_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"MASTER_ADDR 192\.0\.2\.1 is none of its addresses"),
        open_door(tmp_path, "192.0.2.1"),
    ):
        pass
