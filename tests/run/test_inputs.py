"""What a run rests on beside its config: models, code, libraries, versions of its metrics."""

import json
from pathlib import Path

import pytest

from groupwise.core import Config, ConfigError, RunFolder
from groupwise.run.recipe import Preview, Recipe
from groupwise.run.running import check_recipe, run_recipe
from groupwise.run.stages import UNKNOWN, digest_code, digest_models
from groupwise.run.steps import Step, StepContext, find_other_packages

BEFORE = "def score(text):\n    return len(text)\n"
BRIEF = {"own_rewards", "own_rewards.brief"}


class AnyConfig(Config):
    seed: int = 0


def make_recipe(*steps: Step) -> Recipe[AnyConfig]:
    return Recipe("any", "", AnyConfig, Path(), lambda *_: [*steps], lambda _: Preview())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's package of rewards, with a prompt and a package inside."""
    folder = tmp_path / "own_rewards"
    for name, text in {
        "__init__.py": "raise ImportError('code is digested without running it')",
        "brief.py": BEFORE,
        "prompt.txt": "Is it brief?\n",
        "audit/__init__.py": "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_models_are_known_or_said_to_be_unknown(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "config.json").write_text("{}")
    found = digest_models({"model.base": tmp_path, "judge.model": "no/such", "other": None})
    assert found.keys() == {"model.base", "judge.model"}
    assert found["judge.model"] == UNKNOWN != found["model.base"]


@pytest.mark.parametrize(
    ("file", "text", "changed"),
    [
        ("brief.py", "def score(text):\n    return -len(text)\n", BRIEF),
        ("brief.py", "# Longer is better.\ndef score( text ):\n    return len(text)\n", set()),
        ("brief.py", "def score(text:\n", BRIEF),
        ("prompt.txt", "Is it short?\n", {"own_rewards"}),
        ("new.py", "", {"own_rewards"}),
        ("audit/__init__.py", "LEVELS = 3\n", {"own_rewards.audit"}),
        ("audit.py", "LEVELS = 3\n", {"own_rewards"}),  # Python takes the package of that name
    ],
)
def test_code_is_what_it_does_and_texts_are_their_words(
    package: Path, file: str, text: str, changed: set[str]
) -> None:
    names = ("own_rewards", "own_rewards.brief", "own_rewards.audit")
    before = digest_code(*names)
    (package / file).write_text(text)
    after = digest_code(*names)
    assert before.keys() == after.keys() == set(names)
    assert {name for name in names if before[name] != after[name]} == changed


@pytest.mark.parametrize("name", ["no_such_package", "own_rewards.gone"])
def test_code_that_is_not_there_is_a_bug_of_the_plan(package: Path, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        digest_code(name)


def test_a_run_with_a_model_that_nobody_can_name_does_not_start(tmp_path: Path) -> None:
    step = Step("prepare", lambda context: None)
    recipe = make_recipe(step, Step("train", step.run, inputs={"model.base": UNKNOWN}))
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match=r"model\.base: it is neither a folder nor in the local"):
        run_recipe(recipe, AnyConfig(), out=out)
    assert not out.exists()
    preview = check_recipe(recipe, AnyConfig(), out=out)
    assert preview.problems == []
    assert "hf download" in dict(preview.facts)["at its start"]
    run_recipe(recipe, AnyConfig(), out=out, until="prepare")


def start(run: Path, *, fails: bool = False, settings: int = 0) -> list[str]:
    said: list[str] = []

    def train(context: StepContext) -> None:
        (context.folder / "weights").write_text("w")
        if fails:
            raise OSError("stopped")

    last = Step("train", train, uses=("prepare",), settings=settings)
    recipe = make_recipe(Step("prepare", lambda context: None), last)
    run_recipe(recipe, AnyConfig(), out=run, say=said.append)
    return said


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):

    def install(**versions: str) -> None:
        monkeypatch.setattr("groupwise.core.list_packages", lambda: versions)

    return install


def test_what_is_reused_from_other_libraries_is_said_in_one_line(tmp_path: Path, install) -> None:
    install(torch="2.12.0", trl="1.15.0", groupwise="0.1")
    assert start(tmp_path / "run") == []
    assert start(tmp_path / "run") == []
    install(torch="2.13.0", trl="1.15.0", groupwise="0.2")
    [line] = start(tmp_path / "run", settings=1)
    assert line.startswith("libraries changed since prepare, train: torch was 2.12.0 and is 2.13.0")
    assert "\n" not in line
    others = RunFolder(tmp_path / "run").read_manifest()["other_packages"]
    row = {"then": ["2.12.0"], "now": "2.13.0", "steps": ["prepare", "train"]}
    assert others == {"torch": row}
    assert find_other_packages(tmp_path / "run")[0]["torch"]["steps"] == ["prepare"]


def test_half_a_step_of_other_libraries_is_theirs_when_it_is_whole(tmp_path: Path, install) -> None:
    install(torch="2.12.0")
    with pytest.raises(OSError, match="stopped"):
        start(tmp_path / "run", fails=True)
    install(torch="2.13.0")
    [line] = start(tmp_path / "run")
    assert "since prepare, train: torch was 2.12.0" in line
    marker = json.loads((tmp_path / "run/train/step.json").read_text())
    assert marker["packages"] == {"torch": "2.12.0"}
    assert list(marker["uses"]) == ["prepare"]


def test_versions_are_in_the_manifest_and_new_ones_measure_again(tmp_path: Path) -> None:
    done: list[str] = []

    def start(version: int) -> dict[str, int]:
        settings = {"metric_versions": {"accuracy": version}}
        first = Step("prepare", lambda _: done.append("prepare"), settings=3)
        measure = Step("evaluate", lambda _: done.append("evaluate"), settings=settings)
        run_recipe(make_recipe(first, measure), AnyConfig(), out=tmp_path / "run")
        return RunFolder(tmp_path / "run").read_manifest()["metric_versions"]

    assert [start(version) for version in (1, 2)] == [{"accuracy": 1}, {"accuracy": 2}]
    assert done == ["prepare", "evaluate", "evaluate"]
