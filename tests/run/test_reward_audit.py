"""Where the reward audit stands in a plan, and what it stops."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from small_task import LORA, SmallConfig, SmallTask

from groupwise import core
from groupwise.core import Config, ConfigError, Message
from groupwise.rewards import RewardCase, TextParser
from groupwise.rewards.audit.audit import RewardAudit
from groupwise.rewards.audit.rows import AuditRow, Evidence
from groupwise.run import running
from groupwise.run.recipe import Preview, Recipe, find_recipe
from groupwise.run.running import (
    check_accepted,
    plan_steps,
    preview_audit,
    refuse_faults,
    write_reward_audit,
)
from groupwise.run.stages import digest_models
from groupwise.run.steps import Step
from groupwise.run.task import Part, Task


class AnyConfig(Config):
    seed: int = 0
    rewards: str = "a"
    other: str = "b"


class Rewarded(Task):
    parts: ClassVar = {"rewards": Part("rewards")}

    def reward_inputs(self, config: AnyConfig) -> dict[str, str]:
        return {"file": "f"}


def make_recipe(*names: str, has_rewards: bool = True) -> Recipe[AnyConfig]:
    steps = [Step(name, lambda context: None) for name in names or ("prepare", "audit", "train")]
    return Recipe(
        name="any",
        summary="",
        config_type=AnyConfig,
        config_folder=Path(),
        plan=lambda config, run: steps,
        preview=lambda config: Preview(),
        task=Rewarded if has_rewards else Task,
    )


def make_audit(*names: str, level: str = "error") -> RewardAudit:
    shown = Evidence("ab", "yes", "no", 1.0, "it is wrong")
    rows = [AuditRow(name, level, "t", "must", 3, 1.0, 1, (shown,)) for name in names]
    return RewardAudit(tuple(rows), 1, 3)


@pytest.mark.parametrize(
    ("names", "place", "uses"),
    [
        (("prepare", "audit", "train"), 2, ("audit", "prepare")),
        (("prepare", "train"), 1, ("prepare",)),
    ],
)
def test_it_stands_behind_the_data_and_their_audit(names, place: int, uses: tuple[str, ...]):
    steps = plan_steps(make_recipe(*names), AnyConfig(), Path())
    assert [step.name for step in steps].index("audit_rewards") == place
    assert steps[place].uses == uses
    assert steps[place].inputs["file"] == "f"


def test_a_recipe_without_rewards_has_no_such_step():
    steps = plan_steps(make_recipe(has_rewards=False), AnyConfig(), Path())
    assert "audit_rewards" not in [step.name for step in steps]


def test_a_plan_without_the_data_stage_is_a_bug_of_the_recipe():
    with pytest.raises(ValueError, match="prepare"):
        plan_steps(make_recipe("audit", "train"), AnyConfig(), Path())


def test_it_depends_on_its_sections_and_on_what_is_accepted():
    def read(config: AnyConfig, **accepted: object) -> object:
        return plan_steps(make_recipe(), config, Path(), **accepted)[2].settings

    first = read(AnyConfig())
    assert read(AnyConfig(other="c")) == first
    assert read(AnyConfig(rewards="c")) != first
    assert read(AnyConfig(), accepted=["x"]) == read(AnyConfig(), kept=["x"]) != first


def test_errors_are_refused_with_an_answer_that_shows_them():
    with pytest.raises(core.RewardError) as refused:
        refuse_faults(make_audit("reward/a", "reward/b"), accepted=["reward/a"])
    message = str(refused.value)
    assert "found 1 fault(s)" in message
    assert "reward/b: t: must; 1 of 3 break this." in message
    assert "'no' earns 1 on ab: it is wrong" in message
    assert message.endswith("go on all the same with --accept reward/b")


def test_what_is_accepted_or_kept_or_a_warning_is_let_through():
    audit = make_audit("reward/a", "reward/b")
    refuse_faults(audit, accepted=["reward/a"], kept=["reward/b"])
    with pytest.raises(core.RewardError, match=r"1 fault.*\n  reward/a:"):
        refuse_faults(audit, kept=["reward/b"])
    refuse_faults(make_audit(), kept=["reward/gone"])
    refuse_faults(make_audit("reward/a", level="warning"))
    with pytest.raises(core.RewardError, match=r"1 fault.*\n  reward/a:"):
        refuse_faults(make_audit("reward/a"))


@pytest.mark.parametrize("level", ["warning", "error"])
def test_accepting_what_is_no_fault_is_refused(level: str):
    with pytest.raises(ConfigError, match="did not find: reward/b"):
        refuse_faults(make_audit("reward/a", level=level), accepted=["reward/b"], kept=["reward/a"])


def test_names_are_checked_before_anything_runs():
    check_accepted(make_recipe(), ["reward/pays-empty"])
    check_accepted(make_recipe(has_rewards=False), [])
    with pytest.raises(ConfigError, match="did you mean 'reward/pays-echo'"):
        check_accepted(make_recipe(), ["reward/pays-ecko"])
    with pytest.raises(ConfigError, match="no rewards that are audited"):
        check_accepted(make_recipe(has_rewards=False), ["reward/pays-empty"])


def test_what_is_accepted_is_written_and_several_faults_are_accepted_together(tmp_path: Path):
    audit = make_audit("reward/a", "reward/b")
    with pytest.raises(core.RewardError, match=r"with --accept reward/a --accept reward/b$"):
        refuse_faults(audit)
    write_reward_audit(audit, tmp_path, accepted=["reward/b"])
    marks = [one["accepted"] for one in core.read_json(tmp_path / "audit.json", dict)["findings"]]
    assert marks == [False, True]


def test_samples_are_part_of_the_step_and_remembered(tmp_path: Path):
    config = SmallConfig(**LORA)

    def read(**given: object) -> Step:
        recipe = find_recipe("small_task:SmallTask")
        steps = plan_steps(recipe, config, tmp_path, **given)
        return next(step for step in steps if step.name == "audit_rewards")

    alone = read()
    assert "num_sampled" not in alone.settings
    sampled = read(num_sampled=8)
    assert sampled.settings["num_sampled"] == 8
    assert {*sampled.reads} - {*alone.reads} >= {"grpo.temperature", "model.base", "seed"}
    (tmp_path / "audit_rewards").mkdir()
    write_reward_audit(make_audit(), tmp_path / "audit_rewards", num_sampled=8)
    assert read().settings == sampled.settings


def test_samples_depend_on_the_base(tmp_path: Path):
    config = SmallConfig(**LORA | {"model": {"base": str(tmp_path), "max_pixels": 784}})
    core.write_json(tmp_path / "config.json", {})
    recipe = replace(make_recipe("prepare"), task=SmallTask)
    _, step = plan_steps(recipe, config, tmp_path, num_sampled=8)
    assert step.inputs["model.base"] == digest_models({"model.base": tmp_path})["model.base"]


class TestDryRun:
    """The audit in a dry run."""

    def preview(self, tmp_path: Path, reward, said=lambda line: None, **given):
        examples = [
            core.make_example([Message("user", f"Say {n}")], cluster=str(n)) for n in range(4)
        ]
        case = RewardCase(lambda e, c: reward(c.text), examples, TextParser())
        given = {"accepted": (), "kept": (), "num_sampled": 0, **given}
        recipe, preview = make_recipe(), Preview(case=lambda: case)
        return preview_audit(recipe, preview, AnyConfig(), tmp_path, say=said, **given)

    def test_faults_stop_it_unless_they_are_accepted(self, tmp_path: Path):
        found, problems = self.preview(tmp_path, lambda text: 1.0)
        assert "reward/pays-empty" in [row[0] for row in found.tables[-1].rows]
        assert "go on all the same with --accept reward/" in problems[0]
        own = problems[0].rpartition(" with ")[2].split()[1::2]
        assert self.preview(tmp_path, lambda text: 1.0, accepted=own)[1] == []
        assert self.preview(tmp_path, lambda text: 0.99 * (text == ""), accepted=own)[1] != []

    def test_sound_rewards_have_one_row(self, tmp_path: Path):
        found, problems = self.preview(tmp_path, lambda text: 0.0)
        assert (problems, len(found.tables[-1].rows)) == ([], 1)

    def test_samples_are_drawn_when_asked_for(self, tmp_path: Path, monkeypatch):
        def draw_nothing_but_yes(task, config, run, examples, number, say):
            say(f"{number} answers")
            return {example.id: ["yes"] for example in examples}

        monkeypatch.setattr(running, "sample_base", draw_nothing_but_yes)
        said: list[str] = []
        found, _ = self.preview(tmp_path, lambda text: 0.0, said.append, num_sampled=4)
        assert said == ["4 answers"]
        assert "reward/samples-earn-the-same" in [row[0] for row in found.tables[-1].rows]

    def test_it_says_when_it_is_not_known_or_was_made_with_samples(self, tmp_path: Path):
        given = {"accepted": (), "kept": (), "num_sampled": 0, "say": lambda line: None}
        found, _ = preview_audit(make_recipe(), Preview(), AnyConfig(), tmp_path, **given)
        assert "prepared its data" in found.facts[-1][1]
        (tmp_path / "audit_rewards").mkdir()
        write_reward_audit(make_audit(), tmp_path / "audit_rewards", num_sampled=8)
        found, _ = self.preview(tmp_path, lambda text: 1.0)
        assert "--sample 8" in found.facts[-1][1]
