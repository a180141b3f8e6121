"""Running a recipe in a run folder: checks first, then the lock, the manifest and the steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from groupwise.core import (
    Config,
    ConfigError,
    GroupwiseError,
    RunError,
    RunFolder,
    Say,
    dump_config,
    explain_disk,
    flatten_settings,
    list_effects,
)
from groupwise.pipeline.plans import UNKNOWN
from groupwise.pipeline.recipe import Preview, PreviewTable, Recipe
from groupwise.pipeline.reward_audit import (
    AUDIT_REWARDS,
    check_accepted,
    plan_steps,
    preview_audit,
    resolve_accepted,
)
from groupwise.pipeline.runner import (
    Siblings,
    StepProgress,
    find_other_packages,
    judge_steps,
    run_steps,
)
from groupwise.pipeline.steps import Step, check_plan, describe_plan


def run_recipe(
    recipe: Recipe[Any],
    config: Config,
    *,
    out: Path,
    is_resume: bool = False,
    until: str | None = None,
    accepted: Sequence[str] = (),
    num_sampled: int = 0,
    siblings: Siblings | None = None,
    report_progress: Callable[[StepProgress], None] = lambda _: None,
    say: Say = lambda _: None,
) -> list[StepProgress]:
    """Run a recipe into ``out``, or continue the run that is there.

    Args:
        recipe: what to run.
        config: its resolved config.
        out: the run folder; made if it does not exist.
        is_resume: refuse to start anything new.
        until: the last step to run; all if None.
        accepted: names of faults of the rewards to go on with, ``audit`` for all that the audit
            in ``out`` has shown; a resumed run keeps those that it was started with.
        num_sampled: how many answers of the base the audit of rewards looks at.
        siblings: other runs; a step that one of them has finished with the same key is taken
            over.
        report_progress: see ``run_steps``.
        say: see ``run_steps``.

    Raises:
        ConfigError: if the preview finds problems, the recipe has no step ``until``, or
            something is accepted that cannot be found.
        RunError: if the folder cannot be used for this, or its disk is full or read-only.
    """
    check_accepted(recipe, accepted)
    _check_folder(recipe, out, is_resume=is_resume)
    accepted = resolve_accepted(accepted, out)
    preview = recipe.preview(config)
    _refuse(preview.problems)
    kept = _list_kept(out) if is_resume else ()
    steps = plan_steps(recipe, config, out, accepted=accepted, kept=kept, num_sampled=num_sampled)
    names, states = _list_names(recipe, steps, until), judge_steps(steps, out)
    done_again = [name for name in names if states[name] != "reused"]
    _refuse([*preview.list_problems(done_again), *_list_unknown(steps, names)])
    folder = RunFolder(out)
    others, told = find_other_packages(out)
    if told:
        say(told)
    # What steps that measure name in their settings, so that they redo it with others.
    settings = [step.settings for step in steps if isinstance(step.settings, Mapping)]
    versions = {k: v for one in settings for k, v in one.get("metric_versions", {}).items()}
    with explain_disk(out), folder.lock():
        folder.write_manifest(
            recipe=recipe.name,
            config=dump_config(config),
            inputs={name: digest for step in steps for name, digest in step.inputs.items()},
            seed=config.model_dump()["seed"],
            accepted=sorted({*accepted, *kept}),
            plan=describe_plan(steps),
            effects={
                path: asdict(effect)
                for path, effect in list_effects(type(config)).items()
                if effect.kind != "counts"
            },
            metric_versions=versions,
            other_packages=others,
        )
        return run_steps(
            steps, out, until=until, siblings=siblings, report_progress=report_progress, say=say
        )


def check_recipe(
    recipe: Recipe[Any],
    config: Config,
    *,
    out: Path,
    is_resume: bool = False,
    until: str | None = None,
    accepted: Sequence[str] = (),
    num_sampled: int = 0,
    say: Say = lambda _: None,
) -> Preview:
    """Return what ``run_recipe`` would do and all that would stop it, writing nothing."""
    problems: list[str] = []
    preview = Preview()
    try:
        check_accepted(recipe, accepted)
        _check_folder(recipe, out, is_resume=is_resume)
        accepted = resolve_accepted(accepted, out)
    except GroupwiseError as error:
        problems.append(str(error))
    try:
        preview = recipe.preview(config)
        if problems or preview.problems:
            return replace(preview, problems=problems + preview.list_problems(preview.later))
        kept = _list_kept(out) if is_resume else ()
        choices: Any = {"accepted": accepted, "kept": kept, "num_sampled": num_sampled}
        steps = plan_steps(recipe, config, out, **choices)
        check_plan(steps)
        names, states = _list_names(recipe, steps, until), judge_steps(steps, out)
        # Nothing stops what is only read again.
        problems = preview.list_problems([name for name in names if states[name] != "reused"])
        later = [
            (f"later, in {step}", clause)
            for step, clauses in preview.later.items()
            if step not in names
            for clause in clauses
        ]
        words = {"reused": "reused", "resumed": "continued", "run": "run"}
        rows = [(one.name, one.summary, words[states[one.name]]) for one in steps[: len(names)]]
        stages = PreviewTable("Stages", ("stage", "what it does", "will be"), rows)
        unknown = [("at its start", line) for line in _list_unknown(steps, names)]
        preview = replace(
            preview,
            facts=[*preview.facts, *unknown, *later],
            tables=[*preview.tables, stages],
        )
        if AUDIT_REWARDS in names and states[AUDIT_REWARDS] != "reused":
            preview, found = preview_audit(recipe, preview, config, out, say=say, **choices)
            problems += found
    except GroupwiseError as error:
        problems.append(str(error))
    return replace(preview, problems=problems)


def _list_kept(out: Path) -> Sequence[str]:
    """Return the findings that an earlier start of a run accepted."""
    return RunFolder(out).read_manifest().get("accepted_findings", ())


def _list_unknown(steps: Sequence[Step], names: Sequence[str]) -> list[str]:
    """Return a clause about each model that steps read and of which nobody can say which it is."""
    inputs = {
        name: found for step in steps if step.name in names for name, found in step.inputs.items()
    }
    return [
        f"{name}: it is neither a folder nor in the local cache, and the hub cannot be asked which "
        "commit it stands for; download it first (hf download), or give a folder"
        # Without its tokenizer a served judge's labels are found by their spelling.
        f"{', or leave it out' if name.endswith('.tokenizer') else ''}"
        for name, found in inputs.items()
        if found == UNKNOWN
    ]


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise ConfigError("the run cannot start:" + "".join(f"\n  {line}" for line in problems))


def _list_names(recipe: Recipe[Any], steps: Sequence[Step], until: str | None) -> list[str]:
    """Return the names of the steps to run; ``until`` is the last of them."""
    names = [step.name for step in steps]
    if until is None:
        return names
    if until not in names:
        raise ConfigError(
            f"the recipe {recipe.name} has no step {until!r} with this configuration",
            expected=", ".join(names),
        )
    return names[: names.index(until) + 1]


def list_changed_settings(config: Config, *, out: Path) -> list[str]:
    """Return the keys whose values differ from what the run in ``out`` recorded, sorted."""
    if not RunFolder(out).manifest_path.is_file():
        return []
    return sorted(compare_settings(RunFolder(out).read_manifest()["config"], dump_config(config)))


def compare_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Return ``old and is new`` by key for all settings of two configs that differ."""
    old, new = dict(flatten_settings(before)), dict(flatten_settings(after))
    missing = object()
    return {
        key: f"{old.get(key, 'not there')} and is {new.get(key, 'not there')}"
        for key in old | new
        if old.get(key, missing) != new.get(key, missing)
    }


def _check_folder(recipe: Recipe[Any], out: Path, *, is_resume: bool) -> None:
    folder = RunFolder(out)
    if folder.manifest_path.is_file():
        owner = folder.read_manifest()["recipe"]
        if owner != recipe.name:
            raise RunError(
                f"{out} holds a run of the recipe {owner}, not of {recipe.name}",
                fix="use another --out",
            )
        return
    if is_resume:
        raise RunError(f"{out} holds no run to resume", fix="check --out, or leave out --resume")
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is not a folder", fix="use another --out")
    if out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir()):
        raise RunError(f"{out} has files but holds no run", fix="use an empty or new --out")
