"""The step between data and training that audits the rewards and refuses to go on with a fault.

A fault can be accepted by its name; that is recorded in the step's files and reported.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import (
    Config,
    ConfigError,
    RewardError,
    describe_unknown,
    write_json,
    write_text,
)
from groupwise.pipeline.plans import collect_settings, digest_code, view_config
from groupwise.pipeline.recipe import Recipe
from groupwise.pipeline.steps import Step, StepContext

if TYPE_CHECKING:
    from groupwise.rewards import RewardAudit

AUDIT_REWARDS = "audit_rewards"


def check_accepted(recipe: Recipe[Any], accepted: Sequence[str]) -> None:
    """Refuse names that no audit of this recipe's rewards can find.

    Raises:
        ConfigError: with the nearest name, or because the recipe trains on no rewards.
    """
    if not accepted:
        return
    if recipe.rewards is None:
        raise ConfigError(
            f"the recipe {recipe.name} has no rewards that are audited", fix="leave out --accept"
        )
    from groupwise.rewards import REWARD_FINDINGS

    for name in accepted:
        if name not in REWARD_FINDINGS:
            raise ConfigError(f"--accept: {describe_unknown('finding', name, REWARD_FINDINGS)}")


def plan_steps(
    recipe: Recipe[Any],
    config: Config,
    out: Path,
    *,
    accepted: Sequence[str] = (),
    kept: Sequence[str] = (),
) -> list[Step]:
    """Return the recipe's steps, with the reward audit behind the steps that it uses.

    Args:
        recipe: whose steps.
        config: its resolved config.
        out: the run folder.
        accepted: faults to go on with; each has to be found.
        kept: those that an earlier start accepted; they may be gone.

    Raises:
        ValueError: if the recipe has no step that the audit uses.
    """
    steps = recipe.plan(config, out)
    if recipe.rewards is None:
        return steps
    source = recipe.rewards()
    names = [step.name for step in steps]
    place = max(map(names.index, source.uses), default=-1) + 1
    reads = source.reads.split()
    step = Step(
        name=AUDIT_REWARDS,
        run=_bind(source.collect, accepted, kept),
        uses=source.uses,
        settings={
            **collect_settings(config, reads),
            "accepted": sorted({*accepted, *kept}),
        },
        config=view_config(config, reads, step=AUDIT_REWARDS),
        reads=tuple(reads),
        inputs={
            **digest_code("groupwise.rewards.audit", *source.code.split()),
            **(source.inputs(config) if source.inputs else {}),
        },
        summary="what the rewards pay for",
    )
    return [*steps[:place], step, *steps[place:]]


def write_reward_audit(audit: "RewardAudit", folder: Path, *, accepted: Sequence[str] = ()) -> None:
    """Write ``audit.json`` for programs and ``audit.md`` for people."""
    from groupwise.rewards import render_reward_audit

    values = audit.to_json()
    for finding in values["findings"]:
        finding["accepted"] = finding["name"] in accepted
    write_json(folder / "audit.json", values)
    write_text(folder / "audit.md", render_reward_audit(audit, accepted=accepted))


def refuse_faults(
    audit: "RewardAudit", *, accepted: Sequence[str] = (), kept: Sequence[str] = ()
) -> None:
    """Stop unless every error is accepted or kept, and nothing that is not there is accepted.

    Raises:
        RewardError: with each finding and an answer that shows it.
        ConfigError: if something is accepted that was not found: it would hide the next fault.
    """
    refused = [finding for finding in audit.errors if finding.name not in {*accepted, *kept}]
    if refused:
        lines = "".join(f"\n  {f.name}: {f.message}\n    {f.where[0]}" for f in refused)
        raise RewardError(
            f"the reward audit found {len(refused)} fault(s), so nothing is trained:{lines}\n"
            "fix the rewards, or go on all the same with "
            + " ".join(f"--accept {finding.name}" for finding in refused)
        )
    found = [finding.name for finding in audit.errors]
    unfounded = [name for name in accepted if name not in found]
    if unfounded:
        raise ConfigError(
            f"--accept names what the reward audit did not find: {', '.join(unfounded)}",
            got=f"the faults {', '.join(found)}" if found else "no faults",
            fix="leave it out, so that it cannot hide a later fault",
        )


def _bind(
    collect: Callable[[Any, Path], Any], accepted: Sequence[str], kept: Sequence[str]
) -> Callable[[StepContext], None]:
    def work(context: StepContext) -> None:
        from groupwise.rewards import audit_rewards

        (context.folder / "audit.json").unlink(missing_ok=True)
        audit = audit_rewards(collect(context.config, context.run))
        write_reward_audit(audit, context.folder, accepted=[*accepted, *kept])
        refuse_faults(audit, accepted=accepted, kept=kept)

    return work
