"""The examples of judges made of judges, run as they are against a server on loopback."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from faulty_server import MODEL, Fault, FaultyServer, say

from groupwise.core import write_jsonl

EXAMPLES = Path(__file__).parents[2] / "examples" / "judges"


def run(name: str, *arguments: object, monkeypatch, capsys) -> str:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


@pytest.fixture
def start():
    servers = []

    def start(answer):
        servers.append(FaultyServer(answer))
        return f"{servers[-1].url}={MODEL}"

    yield start
    for server in servers:
        server.close()


def read_text(request: dict) -> str:
    return request["messages"][-1]["content"]


def test_a_panel_pays_the_share_of_its_votes(start, monkeypatch, capsys):
    good = start(lambda request: Fault(say("True" if "four" in read_text(request) else "False")))
    lenient = start(lambda _: Fault(say("True")))
    said = run("panel.py", good, good, lenient, monkeypatch=monkeypatch, capsys=capsys)
    values = [line.split("  ")[1] for line in said.splitlines()]
    assert [float(value) for value in values] == pytest.approx([1.0, 1 / 3])


def read_first(request: dict) -> str:
    """Return which of the two answers stands first: the blocks are fenced in their order."""
    return re.findall(r"(sea|moon)", read_text(request))[0]


def test_a_judge_that_prefers_the_first_decides_no_pair(start, monkeypatch, capsys, tmp_path):
    rows = [{"question": "What is blue?", "first": "the sea", "second": "the moon"}] * 2
    write_jsonl(
        tmp_path / "pairs.jsonl", [{**row, "question": str(n)} for n, row in enumerate(rows)]
    )
    fair = start(
        lambda r: Fault(say("first" if read_first(r) == "sea" else "second", tag="better"))
    )
    biased = start(lambda _: Fault(say("first", tag="better")))
    options = {"monkeypatch": monkeypatch, "capsys": capsys}
    assert run("pairs.py", fair, tmp_path / "pairs.jsonl", **options) == "first 2\n"
    assert run("pairs.py", biased, tmp_path / "pairs.jsonl", **options) == "flipped 2\n"
