"""Running a recipe in a run folder: checks first, then the lock, the manifest and the steps.

Between data and training a step of its own audits the rewards and refuses to go on with a fault,
unless that is accepted by its name, which is recorded in the step's files and reported.
"""

import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise import core
from groupwise.core import Config, ConfigError, Example, GroupwiseError, RunError, Say
from groupwise.run.distributed import find_team, introduce, join_launched
from groupwise.run.recipe import Preview, PreviewTable, Recipe, find_recipe
from groupwise.run.settings import RunConfig
from groupwise.run.stages import ASKED, UNKNOWN, Planner, digest_models, make_step
from groupwise.run.steps import (
    AUDIT_REWARDS,
    Siblings,
    Step,
    StepContext,
    StepProgress,
    check_plan,
    describe_plan,
    find_other_packages,
    judge_steps,
    run_steps,
)
from groupwise.run.task import Task

if TYPE_CHECKING:
    from groupwise.rewards import RewardCase
    from groupwise.rewards.audit.audit import RewardAudit

_PER_PROMPT = 4


def check_accepted(recipe: Recipe[Any], accepted: Sequence[str]) -> None:
    """Refuse names that no audit of this recipe's rewards can find."""
    if not accepted:
        return
    if recipe.find_rewarded() is None:
        raise ConfigError(
            f"the recipe {recipe.name} has no rewards that are audited", fix="leave out --accept"
        )
    from groupwise.rewards.audit.rows import list_reward_findings

    known = list_reward_findings()
    for name in accepted:
        if name not in known:
            raise ConfigError(f"--accept: {core.describe_unknown('finding', name, known)}")


def _count_sampled(out: Path) -> int:
    """Return how many answers of the base the audit in a run's folder has looked at."""
    path = out / AUDIT_REWARDS / "audit.json"
    return core.read_json(path, dict).get("num_sampled", 0) if path.is_file() else 0


def plan_steps(
    recipe: Recipe[Any],
    config: Any,
    out: Path,
    *,
    accepted: Sequence[str] = (),
    kept: Sequence[str] = (),
    num_sampled: int = 0,
) -> list[Step]:
    """Return the recipe's steps, with the reward audit behind the data and their audit."""
    steps, task = recipe.plan(config, out), recipe.find_rewarded()
    if task is None:
        return steps
    part, names = task.parts["rewards"], [step.name for step in steps]
    # A plan without the data stage is refused: other data would not be audited again.
    uses = ["audit", task.data_stage] if "audit" in names else [task.data_stage]
    place = max(map(names.index, uses)) + 1
    num_sampled = num_sampled or _count_sampled(out)

    def work(context: StepContext) -> None:
        (context.folder / "audit.json").unlink(missing_ok=True)
        given, run = context.config, context.run
        case = task.make_case(given, run / task.data_stage)
        audit = audit_case(task, case, given, run, num_sampled=num_sampled, say=context.say)
        every = [*accepted, *kept]
        write_reward_audit(audit, context.folder, accepted=every, num_sampled=num_sampled)
        refuse_faults(audit, accepted=accepted, kept=kept)

    reads = f"{part.reads} {ASKED} grpo.temperature" if num_sampled else part.reads
    step = Planner(config).make_step(
        AUDIT_REWARDS,
        work,
        reads=" ".join(dict.fromkeys(reads.split())),
        uses=" ".join(uses),
        code=f"groupwise.rewards.audit {part.code}",
        summary="what the rewards pay for",
    )
    settings: dict[str, Any] = {**step.settings, "accepted": sorted({*accepted, *kept})}
    inputs = {**step.inputs, **task.reward_inputs(config)}
    if num_sampled:
        model = config.model
        settings["num_sampled"] = num_sampled
        inputs |= digest_models({"model.base": None if model.is_tiny else model.base})
    return [*steps[:place], replace(step, settings=settings, inputs=inputs), *steps[place:]]


def audit_case(
    task: Task[Any], case: "RewardCase", config: Any, run: Path, *, num_sampled: int, say: Say
) -> "RewardAudit":
    """Audit a case, with so many answers of the base where some are asked for."""
    from groupwise.rewards.audit.audit import audit_rewards

    if num_sampled:
        case = replace(
            case, samples=sample_base(task, config, run, case.examples, num_sampled, say)
        )
    return audit_rewards(case)


def sample_base(
    task: Task[Any], config: Any, run: Path, examples: Sequence[Example], number: int, say: Say
) -> dict[str, list[str]]:
    """Return answers of a task's base by the ids of training prompts, as GRPO will draw them.

    They are about as many as asked for, four to a prompt. The first prompt is asked alone: from
    its time follows what is said of the others.
    """
    from groupwise.inference.local import LocalModel
    from groupwise.inference.model import Sampling
    from groupwise.run.asking import choose_items, open_policy

    base = task.find_base(config, run)
    if config.model.is_tiny and not Path(base).is_dir():
        raise ConfigError(
            f"--sample needs the base, and {config.model.base} is built by the run",
            fix="leave it out here; `groupwise audit --sample` builds the base first",
        )
    size = min(number, _PER_PROMPT)
    asked = choose_items(examples, core.derive_seed(config.seed, "sampled"), -(-number // size))
    engine = LocalModel(open_policy(config, base), batch_size=config.evaluation.batch_size)
    sampling = Sampling(
        temperature=config.grpo.temperature,
        max_new_tokens=config.grpo.max_new_tokens,
        seed=core.derive_seed(config.seed, "sample"),
    )
    started = time.perf_counter()
    found = list(engine.generate(asked[:1], sampling=sampling, num_completions=size))
    each_s = time.perf_counter() - started
    left = core.describe_duration(each_s * (len(asked) - 1))
    say(
        f"{size * len(asked)} answers of the base are sampled, {size} to a prompt: at most "
        f"{left}, as the first {size} took {each_s:.1f} s"
    )
    found += engine.generate(asked[1:], sampling=sampling, num_completions=size)
    drawn = zip(asked, found, strict=True)
    return {example.id: [one.text for one in texts] for example, texts in drawn}


def write_reward_audit(
    audit: "RewardAudit", folder: Path, *, accepted: Sequence[str] = (), num_sampled: int = 0
) -> None:
    """Write ``audit.json`` for programs and ``audit.md`` for people."""
    from groupwise.rewards.audit.audit import render_reward_audit

    values = {**audit.to_json(), "num_sampled": num_sampled}
    for finding in values["findings"]:
        finding["accepted"] = finding["name"] in accepted
    core.write_json(folder / "audit.json", values)
    core.write_text(folder / "audit.md", render_reward_audit(audit, accepted=accepted))


def refuse_faults(
    audit: "RewardAudit", *, accepted: Sequence[str] = (), kept: Sequence[str] = ()
) -> None:
    """Stop unless every error is accepted or kept, and nothing that is not there is accepted."""
    refused = [finding for finding in audit.errors if finding.name not in {*accepted, *kept}]
    if refused:
        lines = "".join(f"\n  {f.name}: {f.message}\n    {f.where[0]}" for f in refused)
        how = " ".join(f"--accept {finding.name}" for finding in refused)
        raise core.RewardError(
            f"the reward audit found {len(refused)} fault(s), so nothing is trained:{lines}\n"
            f"fix the rewards, or go on all the same with {how}"
        )
    found = [finding.name for finding in audit.findings]
    unfounded = [name for name in accepted if name not in found]
    if unfounded:
        faults = [finding.name for finding in audit.errors]
        raise ConfigError(
            f"--accept names what the reward audit did not find: {', '.join(unfounded)}",
            got=f"the faults {', '.join(faults)}" if faults else "no faults",
            fix="leave it out, so that it cannot hide a later fault",
        )


def preview_audit(
    recipe: Recipe[Any],
    preview: Preview,
    config: Config,
    out: Path,
    *,
    accepted: Sequence[str] = (),
    kept: Sequence[str] = (),
    num_sampled: int = 0,
    say: Say,
) -> tuple[Preview, list[str]]:
    """Return a preview with the audit that a run would begin with, and what that would stop.

    Only where the examples are known before a run has prepared its data.
    """
    task, earlier, why = recipe.find_rewarded(), _count_sampled(out), ""
    if task is None or preview.case is None:
        why = "when the run has prepared its data; groupwise audit --only rewards does no more"
    elif earlier and not num_sampled:
        why = f"with {earlier} answers of the base as before; --sample {earlier} shows it"
    if why or task is None or preview.case is None:
        return replace(preview, facts=[*preview.facts, ("reward audit", why)]), []
    problems: list[str] = []
    try:
        case = preview.case()
        audit = audit_case(task, case, config, out, num_sampled=num_sampled, say=say)
    except GroupwiseError as error:
        return preview, [str(error)]
    try:
        refuse_faults(audit, accepted=accepted, kept=kept)
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
    table = PreviewTable("Reward audit", columns, rows)
    return replace(preview, tables=[*preview.tables, table]), problems


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
    """Run a recipe with its resolved config into the folder ``out``, or continue the run there.

    With ``is_resume`` nothing new is started; ``until`` is the last step to run, None: all.
    ``accepted`` are names of faults of the rewards to go on with; a resumed run keeps those that it
    was started with. The audit of rewards looks at ``num_sampled`` answers of the base. The others
    are as for ``run_steps``.

    Raises:
        ConfigError: if the preview finds problems, the recipe has no step ``until``, or
            something is accepted that cannot be found.
        RunError: if the folder cannot be used for this, or its disk is full or read-only.
    """

    def refuse(problems: Sequence[str]) -> None:
        if problems:
            raise ConfigError("the run cannot start:" + "".join(f"\n  {line}" for line in problems))

    check_accepted(recipe, accepted)
    _check_folder(recipe, out, is_resume=is_resume)
    preview = recipe.preview(config)
    refuse(preview.problems)
    kept = _list_kept(out) if is_resume else ()
    steps = plan_steps(recipe, config, out, accepted=accepted, kept=kept, num_sampled=num_sampled)
    names, states = _list_names(recipe, steps, until), judge_steps(steps, out)
    done_again = [name for name in names if states[name] != "reused"]
    refuse([*preview.list_problems(done_again), *_list_unknown(steps, names)])
    folder = core.RunFolder(out)
    others, told = find_other_packages(out)
    if told:
        say(told)
    # What steps that measure name in their settings, so that they redo it with others.
    settings = [step.settings for step in steps if isinstance(step.settings, Mapping)]
    effects = core.list_effects(type(config)).items()
    with core.explain_disk(out), folder.lock():
        folder.write_manifest(
            recipe=recipe.name,
            config=core.dump_config(config),
            inputs={name: digest for step in steps for name, digest in step.inputs.items()},
            seed=config.model_dump()["seed"],
            accepted=sorted({*accepted, *kept}),
            plan=describe_plan(steps),
            effects={path: asdict(effect) for path, effect in effects if effect.kind != "counts"},
            metric_versions={
                k: v for one in settings for k, v in one.get("metric_versions", {}).items()
            },
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
    say: Say = lambda _: None,
    **choices: Any,
) -> Preview:
    """Return what ``run_recipe`` would do and all that would stop it, writing nothing.

    ``choices`` are ``accepted`` and ``num_sampled``.
    """
    problems: list[str] = []
    preview = Preview()
    try:
        check_accepted(recipe, choices.get("accepted", ()))
        _check_folder(recipe, out, is_resume=is_resume)
    except GroupwiseError as error:
        problems.append(str(error))
    try:
        preview = recipe.preview(config)
        if problems or preview.problems:
            return replace(preview, problems=problems + preview.list_problems(preview.later))
        choices["kept"] = _list_kept(out) if is_resume else ()
        steps = plan_steps(recipe, config, out, **choices)
        check_plan(steps)
        names, states = _list_names(recipe, steps, until), judge_steps(steps, out)
        # Nothing stops what is only read again.
        problems = preview.list_problems([name for name in names if states[name] != "reused"])
        facts = [("at its start", line) for line in _list_unknown(steps, names)]
        for step, clauses in preview.later.items():
            facts += [(f"later, in {step}", one) for one in clauses if step not in names]
        words = {"reused": "reused", "resumed": "continued", "run": "run"}
        rows = [(one.name, one.summary, words[states[one.name]]) for one in steps[: len(names)]]
        stages = PreviewTable("Stages", ("stage", "what it does", "will be"), rows)
        preview = replace(preview, facts=[*preview.facts, *facts], tables=[*preview.tables, stages])
        if AUDIT_REWARDS in names and states[AUDIT_REWARDS] != "reused":
            preview, found = preview_audit(recipe, preview, config, out, say=say, **choices)
            problems += found
    except GroupwiseError as error:
        problems.append(str(error))
    return replace(preview, problems=problems)


def _list_kept(out: Path) -> Sequence[str]:
    """Return the findings that an earlier start of a run accepted."""
    return core.RunFolder(out).read_manifest().get("accepted_findings", ())


def _list_unknown(steps: Sequence[Step], names: Sequence[str]) -> list[str]:
    """Return a clause about each model that steps read and of which nobody can say which it is."""
    inputs = {k: v for step in steps if step.name in names for k, v in step.inputs.items()}
    return [
        f"{name}: it is neither a folder nor in the local cache, and the hub cannot be asked which "
        "commit it stands for; download it first (hf download), or give a folder"
        # Without its tokenizer a served judge's labels are found by their spelling.
        f"{', or leave it out' if name.endswith('.tokenizer') else ''}"
        for name, found in inputs.items()
        if found == UNKNOWN
    ]


def _list_names(recipe: Recipe[Any], steps: Sequence[Step], until: str | None) -> list[str]:
    """Return the names of the steps to run; ``until`` is the last of them."""
    names = [step.name for step in steps]
    if until is not None and until not in names:
        raise ConfigError(
            f"the recipe {recipe.name} has no step {until!r} with this configuration",
            expected=", ".join(names),
        )
    return names if until is None else names[: names.index(until) + 1]


def list_changed_settings(config: Config, *, out: Path) -> list[str]:
    """Return the keys whose values differ from what the run in ``out`` recorded, sorted."""
    if not core.RunFolder(out).manifest_path.is_file():
        return []
    return sorted(
        compare_settings(core.RunFolder(out).read_manifest()["config"], core.dump_config(config))
    )


def compare_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Return ``old and is new`` by key for all settings of two configs that differ."""
    old, new = dict(core.flatten_settings(before)), dict(core.flatten_settings(after))
    missing = object()
    return {
        key: f"{old.get(key, 'not there')} and is {new.get(key, 'not there')}"
        for key in old | new
        if old.get(key, missing) != new.get(key, missing)
    }


def _check_folder(recipe: Recipe[Any], out: Path, *, is_resume: bool) -> None:
    folder = core.RunFolder(out)
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


def run(
    task: type[Task[Any]],
    config: RunConfig,
    *,
    out: Path | str,
    until: str | None = None,
    accepted: Sequence[str] = (),
    say: Say = print,
) -> Path:
    """Run a task into ``out``, or continue the run that is there; return the folder.

    Where ``torchrun`` has started the program several times, all call this, and train together.
    Numbers are in ``evaluate/metrics.json``, the report in ``report.html``. Other processes
    (``groupwise serve``, workers) find the task again by its import path; one that has none, as
    in a notebook, is known to this process alone, and ``say`` is told so.
    """
    address = find_address(task)
    recipe = find_recipe(address) if address else task.make_recipe(task.__name__)
    with join_launched():
        if help_first(recipe, config, out=Path(out)):
            return Path(out)
        if address is None:
            say(
                f"{task.__name__} has no import path, so only this process can ask or serve its "
                "run; put it into a module"
            )
        run_recipe(
            recipe,
            config,
            out=Path(out),
            until=until,
            accepted=accepted,
            report_progress=lambda progress: say(progress.describe()),
            say=lambda line: say(f"  {line}"),
        )
    return Path(out)


def help_first(recipe: Recipe[Any], config: Config, *, out: Path) -> bool:
    """Train with the first process whenever it does, until it has ended; False: this is the first.

    All find the run folder ``out``. A RunError if this process was started with other settings or
    packages than the first one, or that is gone.
    """
    team = find_team()
    if team is None or team.rank == 0:
        return False
    while told := team.hear():
        assert recipe.task is not None
        task = recipe.task()
        planner = Planner(config, facts=task.facts(config, out), inputs=told["inputs"])
        stage = next((one for one in task.stages(config) if one.name == told["step"]), None)
        step = None if stage is None else make_step(stage, task, planner)
        own = {} if step is None else introduce(config, step.inputs)
        if step is None or (others := [name for name in own if own[name] != told[name]]):
            raise RunError(
                f"process {team.rank} on {socket.gethostname()} was started with other "
                f"{' and '.join(others) if step else 'settings'} than the first one",
                fix="start the same command everywhere, from the same installation",
            )
        step.run(step.make_context(out, is_resumed=told["is_resumed"]))
    return True


def find_address(task: Callable[..., Any]) -> str | None:
    """Return ``module:name`` by which another process can import a class, or None."""
    module = sys.modules.get(task.__module__)
    if task.__module__ == "__main__" or getattr(module, task.__name__, None) is not task:
        return None
    return f"{task.__module__}:{task.__qualname__}"
