"""Where the reward audit stands in a plan, and what it stops."""

from pathlib import Path

import pytest

from groupwise.core import Config, ConfigError, RewardError
from groupwise.pipeline import Preview, Recipe, RewardSource, Step
from groupwise.pipeline.reward_audit import check_accepted, plan_steps, refuse_faults
from groupwise.rewards import RewardAudit
from groupwise.rewards.audit import AuditRow, Evidence


class AnyConfig(Config):
    seed: int = 0
    rewards: str = "a"
    other: str = "b"


def make_recipe(*uses: str, has_rewards: bool = True) -> Recipe[AnyConfig]:
    names = ("prepare", "audit", "train", "report")
    source = RewardSource(lambda config, run: None, uses=uses, reads="rewards")
    return Recipe(
        name="any",
        summary="",
        config_type=AnyConfig,
        config_folder=Path(),
        plan=lambda config, run: [Step(name, lambda context: None) for name in names],
        preview=lambda config: Preview(),
        rewards=(lambda: source) if has_rewards else None,
    )


def make_audit(*names: str, level: str = "error") -> RewardAudit:
    shown = Evidence("ab", "yes", "no", 1.0, "it is wrong")
    rows = [AuditRow(name, level, "t", "must", 3, 1.0, 1, (shown,)) for name in names]
    return RewardAudit(tuple(rows), 1, 3)


@pytest.mark.parametrize(
    ("uses", "place"),
    [(("prepare",), 1), (("prepare", "audit"), 2), (("audit", "prepare"), 2), ((), 0)],
)
def test_it_stands_behind_the_steps_that_it_uses(uses: tuple[str, ...], place: int):
    steps = plan_steps(make_recipe(*uses), AnyConfig(), Path())
    assert [step.name for step in steps].index("audit_rewards") == place
    assert steps[place].uses == uses


def test_a_recipe_without_rewards_has_no_such_step():
    steps = plan_steps(make_recipe(has_rewards=False), AnyConfig(), Path())
    assert "audit_rewards" not in [step.name for step in steps]


def test_a_use_of_no_step_is_a_bug_of_the_recipe():
    with pytest.raises(ValueError, match="gone"):
        plan_steps(make_recipe("gone"), AnyConfig(), Path())


def test_it_depends_on_its_sections_and_on_what_is_accepted():
    def read(config: AnyConfig, **accepted: object) -> object:
        return plan_steps(make_recipe("prepare"), config, Path(), **accepted)[1].settings

    first = read(AnyConfig())
    assert read(AnyConfig(other="c")) == first
    assert read(AnyConfig(rewards="c")) != first
    assert read(AnyConfig(), accepted=["x"]) == read(AnyConfig(), kept=["x"]) != first


def test_errors_are_refused_with_an_answer_that_shows_them():
    with pytest.raises(RewardError) as refused:
        refuse_faults(make_audit("reward/a", "reward/b"), accepted=["reward/a"])
    message = str(refused.value)
    assert "found 1 fault(s)" in message
    assert "reward/b: t: must; 1 of 3 break this." in message
    assert "'no' earns 1 on ab: it is wrong" in message
    assert message.endswith("go on all the same with --accept reward/b")


def test_what_is_accepted_or_kept_or_a_warning_is_let_through():
    audit = make_audit("reward/a", "reward/b")
    refuse_faults(audit, accepted=["reward/a"], kept=["reward/b"])
    with pytest.raises(RewardError, match=r"1 fault.*\n  reward/a:"):
        refuse_faults(audit, kept=["reward/b"])
    refuse_faults(make_audit(), kept=["reward/gone"])
    refuse_faults(make_audit("reward/a", level="warning"))
    with pytest.raises(RewardError, match=r"1 fault.*\n  reward/a:"):
        refuse_faults(make_audit("reward/a"))


@pytest.mark.parametrize("level", ["warning", "error"])
def test_accepting_what_is_no_fault_is_refused(level: str):
    with pytest.raises(ConfigError, match="did not find: reward/b"):
        refuse_faults(make_audit("reward/a", level=level), accepted=["reward/b"], kept=["reward/a"])


def test_names_are_checked_before_anything_runs():
    check_accepted(make_recipe("prepare"), ["reward/pays-empty"])
    check_accepted(make_recipe(has_rewards=False), [])
    with pytest.raises(ConfigError, match="did you mean 'reward/pays-echo'"):
        check_accepted(make_recipe("prepare"), ["reward/pays-ecko"])
    with pytest.raises(ConfigError, match="no rewards that are audited"):
        check_accepted(make_recipe(has_rewards=False), ["reward/pays-empty"])
