"""The step between data and training that audits the rewards and refuses to go on with a fault.

A fault can be accepted by its name, and all that an audit has shown by the audit's digest, so that
another audit is not accepted with it. Either is recorded in the step's files and reported.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import (
    Config,
    ConfigError,
    GroupwiseError,
    RewardError,
    Say,
    describe_unknown,
    read_json,
    write_json,
    write_text,
)
from groupwise.pipeline.plans import collect_settings, digest_code, view_config
from groupwise.pipeline.recipe import Preview, PreviewTable, Recipe, RewardSource
from groupwise.pipeline.steps import Step, StepContext

if TYPE_CHECKING:
    from groupwise.rewards import RewardCase
    from groupwise.rewards.audit.audit import RewardAudit

AUDIT_REWARDS = "audit_rewards"
_ALL = "audit"
_BY_DIGEST = f"{_ALL}:"


def check_accepted(recipe: Recipe[Any], accepted: Sequence[str]) -> None:
    """Refuse names that no audit of this recipe's rewards can find."""
    if not accepted:
        return
    if recipe.rewards is None:
        raise ConfigError(
            f"the recipe {recipe.name} has no rewards that are audited", fix="leave out --accept"
        )
    from groupwise.rewards.audit.rows import list_reward_findings

    known = list_reward_findings()
    for name in accepted:
        if name != _ALL and not name.startswith(_BY_DIGEST) and name not in known:
            raise ConfigError(f"--accept: {describe_unknown('finding', name, known)}")


def resolve_accepted(accepted: Sequence[str], out: Path) -> list[str]:
    """Return what is accepted, with ``audit`` as the digest of what this run's audit has shown."""
    shown = _read_audit(out).get("digest")
    if _ALL in accepted and shown is None:
        raise ConfigError(
            f"--accept audit accepts what an audit has shown, and {out} holds none",
            fix="run it without first, or give --accept audit:DIGEST as the dry run prints it",
        )
    return [f"{_BY_DIGEST}{shown}" if name == _ALL else name for name in accepted]


def _read_audit(out: Path) -> dict[str, Any]:
    """Return the audit that a run's folder has; empty if it has none."""
    path = out / AUDIT_REWARDS / "audit.json"
    return read_json(path, dict) if path.is_file() else {}


def plan_steps(
    recipe: Recipe[Any],
    config: Config,
    out: Path,
    *,
    accepted: Sequence[str] = (),
    kept: Sequence[str] = (),
    num_sampled: int = 0,
) -> list[Step]:
    """Return the recipe's steps, with the reward audit behind the steps that it uses."""
    steps = recipe.plan(config, out)
    if recipe.rewards is None:
        return steps
    source = recipe.rewards()
    names = [step.name for step in steps]
    place = max(map(names.index, source.uses), default=-1) + 1
    accepted = resolve_accepted(accepted, out)
    num_sampled = num_sampled or _read_audit(out).get("num_sampled", 0)
    sampler = source.sampler if num_sampled else None
    reads = [*dict.fromkeys(f"{source.reads} {sampler.reads if sampler else ''}".split())]

    def work(context: StepContext) -> None:
        (context.folder / "audit.json").unlink(missing_ok=True)
        case = source.collect(context.config, context.run)
        audit = audit_case(
            source, case, context.config, context.run, num_sampled=num_sampled, say=context.say
        )
        every = [*accepted, *kept]
        write_reward_audit(audit, context.folder, accepted=every, num_sampled=num_sampled)
        refuse_faults(audit, accepted=accepted, kept=kept)

    step = Step(
        name=AUDIT_REWARDS,
        run=work,
        uses=source.uses,
        settings={
            **collect_settings(config, reads),
            "accepted": sorted({*accepted, *kept}),
            **({"num_sampled": num_sampled} if num_sampled else {}),
        },
        config=view_config(config, reads, step=AUDIT_REWARDS),
        reads=tuple(reads),
        inputs={
            **digest_code("groupwise.rewards.audit", *source.code.split()),
            **(source.inputs(config) if source.inputs else {}),
            **(sampler.inputs(config) if sampler else {}),
        },
        summary="what the rewards pay for",
    )
    return [*steps[:place], step, *steps[place:]]


def audit_case(
    source: RewardSource[Any],
    case: "RewardCase",
    config: Any,
    run: Path,
    *,
    num_sampled: int,
    say: Say,
) -> "RewardAudit":
    """Audit a case, with so many answers of the base where some are asked for."""
    from groupwise.rewards.audit.audit import audit_rewards

    if num_sampled and source.sampler is not None:
        samples = source.sampler.draw(config, run, case.examples, num_sampled, say)
        case = replace(case, samples=samples)
    return audit_rewards(case)


def write_reward_audit(
    audit: "RewardAudit", folder: Path, *, accepted: Sequence[str] = (), num_sampled: int = 0
) -> None:
    """Write ``audit.json`` for programs and ``audit.md`` for people."""
    from groupwise.rewards.audit.audit import render_reward_audit

    names = _list_accepted(audit, accepted)
    values = {**audit.to_json(), "num_sampled": num_sampled}
    for finding in values["findings"]:
        finding["accepted"] = finding["name"] in names
    write_json(folder / "audit.json", values)
    write_text(folder / "audit.md", render_reward_audit(audit, accepted=names))


def _list_accepted(audit: "RewardAudit", accepted: Collection[str]) -> list[str]:
    """Return the names of findings that are accepted: all of them by the audit's own digest."""
    is_all = f"{_BY_DIGEST}{audit.digest}" in accepted
    return [finding.name for finding in audit.findings if is_all or finding.name in accepted]


def refuse_faults(
    audit: "RewardAudit",
    *,
    accepted: Sequence[str] = (),
    kept: Sequence[str] = (),
    is_written: bool = True,
) -> None:
    """Stop unless every error is accepted or kept, and nothing that is not there is accepted."""
    names, own = _list_accepted(audit, {*accepted, *kept}), f"{_BY_DIGEST}{audit.digest}"
    refused = [finding for finding in audit.errors if finding.name not in names]
    others = [name for name in {*accepted, *kept} if name.startswith(_BY_DIGEST) and name != own]
    if refused:
        lines = "".join(f"\n  {f.name}: {f.message}\n    {f.where[0]}" for f in refused)
        other = f", and {others[0]} that was accepted is another" if others else ""
        whole = _ALL if is_written else own
        how = refused[0].name if len(refused) == 1 else whole
        raise RewardError(
            f"the reward audit found {len(refused)} fault(s){other}, so nothing is trained:{lines}"
            f"\nfix the rewards, or go on all the same with --accept {how}"
        )
    found = [*names, own]
    unfounded = [name for name in accepted if name not in found]
    if unfounded:
        faults = [finding.name for finding in audit.errors]
        raise ConfigError(
            f"--accept names what the reward audit did not find: {', '.join(unfounded)}",
            got=f"the faults {', '.join(faults)} in {own}" if faults else f"no faults in {own}",
            fix="leave it out, so that it cannot hide a later fault",
        )


def preview_audit(
    recipe: Recipe[Any],
    preview: Preview,
    config: Config,
    out: Path,
    *,
    accepted: Sequence[str],
    kept: Sequence[str],
    num_sampled: int,
    say: Say,
) -> tuple[Preview, list[str]]:
    """Return a preview with the audit that a run would begin with, and what that would stop.

    Only where the examples are known before a run has prepared its data.
    """
    source = recipe.rewards() if recipe.rewards is not None else None
    earlier = _read_audit(out).get("num_sampled", 0)
    why = None
    if source is None or preview.case is None:
        why = "when the run has prepared its data; groupwise audit --only rewards does no more"
    elif earlier and not num_sampled:
        why = f"with {earlier} answers of the base as before; --sample {earlier} shows it"
    if why or source is None or preview.case is None:
        return replace(preview, facts=[*preview.facts, ("reward audit", str(why))]), []
    problems: list[str] = []
    try:
        case = preview.case()
        audit = audit_case(source, case, config, out, num_sampled=num_sampled, say=say)
    except GroupwiseError as error:
        return preview, [str(error)]
    try:
        refuse_faults(audit, accepted=accepted, kept=kept, is_written=False)
    except GroupwiseError as error:
        problems.append(str(error))
    # A row for each finding, and one for all others.
    rows: list[tuple[str, str, str, str]] = []
    for row in audit.rows:
        if not row.is_passed:
            shown = row.evidence[0].show_answer() if row.evidence else ""
            counted = f"{row.level}: {row.num_failed} of {row.num_tried}"
            rows.append((row.name, row.title, shown, counted))
    num_passed = sum(row.is_passed for row in audit.rows)
    tried = f"{audit.num_scored:,} answers to {audit.num_examples} rows were scored"
    rows.append((f"{num_passed} {'others' if rows else 'kinds'}", tried, "", "passed"))
    columns = ("finding", "what was tried", "such as", "result")
    table = PreviewTable(f"Reward audit ({_BY_DIGEST}{audit.digest})", columns, rows)
    return replace(preview, tables=[*preview.tables, table]), problems
