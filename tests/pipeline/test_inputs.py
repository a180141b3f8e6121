"""What a step reads from outside: models, code. Each is known by its content."""

from pathlib import Path

import pytest

from groupwise.core import Config, ConfigError
from groupwise.pipeline import (
    UNKNOWN,
    Preview,
    Recipe,
    Step,
    check_recipe,
    digest_models,
    run_recipe,
)
from groupwise.pipeline.plans import digest_code

BEFORE = "def score(text):\n    return len(text)\n"
BRIEF = {"own_rewards", "own_rewards.brief"}


class AnyConfig(Config):
    seed: int = 0


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
        (
            "brief.py",
            "def score(text):\n    return -len(text)\n",
            {"own_rewards", "own_rewards.brief"},
        ),
        ("brief.py", "# Longer is better.\ndef score( text ):\n    return len(text)\n", set()),
        ("brief.py", "def score(text:\n", BRIEF),
        ("prompt.txt", "Is it short?\n", {"own_rewards"}),
        ("new.py", "", {"own_rewards"}),
        ("audit/__init__.py", "LEVELS = 3\n", {"own_rewards.audit"}),
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
    def plan(config: AnyConfig, run: Path) -> list[Step]:
        step = Step("prepare", lambda context: None)
        return [step, Step("train", step.run, inputs={"model.base": UNKNOWN})]

    recipe = Recipe("any", "", AnyConfig, tmp_path, plan, lambda config: Preview())
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match=r"model\.base: it is neither a folder nor in the local"):
        run_recipe(recipe, AnyConfig(), out=out)
    assert not out.exists()
    preview = check_recipe(recipe, AnyConfig(), out=out)
    assert preview.problems == []
    assert "hf download" in dict(preview.facts)["at its start"]
    run_recipe(recipe, AnyConfig(), out=out, until="prepare")
