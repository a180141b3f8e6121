"""A hub id that is not on this machine: a server on loopback stands for the hub."""

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from groupwise.core import ModelError
from groupwise.models import (
    ModelSettings,
    bring_base,
    check_base,
    digest_base,
    find_weights,
    load_policy,
    open_processor,
)
from groupwise.models.hub import find_snapshot, has_weights

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """Has one model, one whose owner wants to be asked, and no other."""

    folder: Path
    asked: list[str]

    def do_GET(self) -> None:
        """Answer with the model's description, its list of files, or a file."""
        self.asked.append(self.path)
        path = self.path.partition("?")[0].removeprefix("/api/models")
        if path.startswith("/some/gated"):
            self.refuse(403, "GatedRepo")
        elif not path.startswith("/some/model"):
            self.refuse(404, "RepoNotFound")
        elif "/resolve/" in path:
            file = self.folder / path.rpartition("/")[2]
            if file.is_file():
                self.send(file.read_bytes())
            else:
                self.refuse(404, "EntryNotFound")
        elif "/tree/" in path:
            files = [
                {"type": "file", "path": one.name, "size": one.stat().st_size, "oid": digest(one)}
                for one in self.folder.iterdir()
            ]
            self.send(json.dumps(files).encode())
        else:
            self.send(json.dumps({"id": "some/model", "sha": COMMIT, "siblings": []}).encode())

    def do_HEAD(self) -> None:
        """Answer without the content."""
        self.do_GET()

    def send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


@pytest.fixture
def hub(text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A hub with ``some/model``; what it was asked for."""
    Hub.folder, Hub.asked = text_folder, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    template = "/{repo_id}/resolve/{revision}/{filename}"
    name = "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE"
    monkeypatch.setattr(name, url + template)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    yield Hub.asked
    server.shutdown()
    server.server_close()


def check(base: str) -> list[str]:
    """Return what a dry run says of a base."""
    return check_base(ModelSettings(base=base, max_pixels=12544))


def test_a_model_is_downloaded_whole_when_it_is_loaded(hub: list[str], text_folder: Path):
    said: list[str] = []
    assert bring_base("some/model", say=said.append) == "some/model"
    assert said == ["downloading some/model from the hub, once for all runs"]
    assert digest_base("some/model") == COMMIT
    weights = find_weights("some/model") / "model.safetensors"
    assert weights.read_bytes() == (text_folder / "model.safetensors").read_bytes()
    hub.clear()
    assert load_policy("some/model").tokenizer.chat_template
    assert not [path for path in hub if path.endswith("model.safetensors")]


def test_a_dry_run_brings_only_what_describes_the_model(hub: list[str]):
    assert check("some/model") == []
    snapshot = find_snapshot("some/model")
    assert snapshot is not None
    assert (snapshot / "config.json").is_file()
    assert not has_weights(snapshot)
    assert open_processor("some/model").chat_template
    bring_base("some/model", say=lambda _: None)
    assert has_weights(snapshot)


def test_a_processor_in_the_cache_asks_no_hub(hub: list[str], monkeypatch: pytest.MonkeyPatch):
    assert check("some/model") == []
    asked = len(hub)

    def refuse(name: str, **_: object) -> list[str]:
        pytest.fail(f"the hub was asked for the templates of {name}")

    # Transformers asks the hub that it knew when it was imported, not this one.
    monkeypatch.setattr("transformers.tokenization_utils_base.list_repo_templates", refuse)
    assert open_processor("some/model").chat_template
    assert len(hub) == asked


@pytest.mark.parametrize(
    ("base", "what", "fix"),
    [
        ("some/gated", "agreed to its terms", "hf auth login"),
        ("some/other", "the hub has no model some/other", "check the id"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_sentence(hub: list[str], base: str, what: str, fix: str):
    [told] = check(base)
    assert what in told
    assert fix in told
    assert "\n" not in told
    with pytest.raises(ModelError, match=what):
        load_policy(base)


@pytest.mark.parametrize("is_offline", [True, False])
def test_without_the_hub_there_is_the_line_that_brings_the_model(
    hub: list[str], monkeypatch: pytest.MonkeyPatch, is_offline: bool
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", is_offline)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    [told] = check("some/model")
    assert "cannot be reached" in told
    assert "`hf download some/model`" in told
    assert "\n" not in told
