"""The stages of the bootstrap recipe, each a function of what the one before wrote."""

from typing import Any

from groupwise.core import (
    DataError,
    Picture,
    ProgressLine,
    ResultFile,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
    write_text,
)
from groupwise.data.examples import DropLog
from groupwise.judges import Question, judge_all
from groupwise.rewards import LabelParser
from groupwise.run.recipe import Preview
from groupwise.run.stages import Planner, digest_models
from groupwise.run.steps import Step, StepContext
from groupwise_recipes.on_task.bootstrap.captioner import (
    Captioner,
    caption_in_batches,
    open_captioner,
)
from groupwise_recipes.on_task.bootstrap.config import BootstrapConfig
from groupwise_recipes.on_task.bootstrap.pictures import (
    digest_sources,
    list_sources,
    store_pictures,
)
from groupwise_recipes.on_task.bootstrap.rows import (
    check_number,
    choose_rows,
    copy_pictures,
    count_rows,
    describe_verdict,
    write_summary,
)
from groupwise_recipes.on_task.bootstrap.scenarios import keep_captions, make_scenarios
from groupwise_recipes.on_task.config import LABELS
from groupwise_recipes.on_task.rewards import open_judge

_OWN = "groupwise_recipes.on_task.bootstrap"
_ROWS = "rows.jsonl"
_STORED_PIXELS = 1_000_000
"""Pictures are stored scaled down to at most so many."""
_CAME_ALONG = {"model": None, "revision": None}
"""Of a caption that came with its picture."""


def plan_stages(config: BootstrapConfig) -> list[Step]:
    """Return the steps."""
    captioner, judge = config.captioner, config.judge
    models = {
        "captioner.model": captioner and captioner.model,
        "judge.model": judge.model,
        "judge.tokenizer": judge.tokenizer,
    }
    inputs = {"pictures": digest_sources(config.pictures), **digest_models(models)}
    planner = Planner(config, inputs=inputs)
    return [
        planner.make_step(
            "pictures",
            run_pictures,
            reads="pictures",
            summary="find pictures and store each once",
        ),
        planner.make_step(
            "captions",
            run_captions,
            reads="captioner",
            uses="pictures",
            code=f"{_OWN}.captioner",
            summary="say what each picture shows",
        ),
        planner.make_step(
            "scenarios",
            run_scenarios,
            reads="seed",
            uses="pictures captions",
            code=f"{_OWN}.scenarios groupwise_recipes.on_task.vocabulary "
            "groupwise_recipes.on_task.vocabularies groupwise_drawn.desktops.vocabulary",
            summary="word a task that fits and one that was written for another picture",
        ),
        planner.make_step(
            "judge",
            run_judge,
            reads="judge",
            uses="pictures scenarios",
            code="groupwise.judges groupwise_recipes.on_task.rewards "
            "groupwise_recipes.on_task.prompts",
            summary="ask the judge, in both orders, whether picture and task fit",
        ),
        planner.make_step(
            "rows",
            run_rows,
            reads="min_rows",
            uses="pictures captions scenarios judge",
            code=f"{_OWN}.rows",
            summary="rows for on_task, easy first",
        ),
    ]


def preview_run(config: BootstrapConfig) -> Preview:
    """Return how many pictures there are, and what would stop a run."""
    try:
        sources = list_sources(config.pictures)
    except DataError as error:
        return Preview(problems=[f"pictures: {error}"])
    has_shards = sources[0].suffix == ".tar"
    problems: list[str] = []
    if config.captioner is None and not has_shards:
        problems.append("captioner: pictures outside of shards have no captions; name a model")
    if not has_shards and 2 * len(sources) < config.min_rows:
        problems.append(
            f"min_rows: {len(sources):,} pictures give at most {2 * len(sources):,} rows; "
            f"lower it from {config.min_rows:,}, or give more"
        )
    model = config.judge.model or (config.judge.server and config.judge.server.model)
    facts = [
        ("shards" if has_shards else "pictures", f"{len(sources):,}"),
        ("captions", config.captioner.name if config.captioner else "as in the shards"),
        ("labels", f"of the judge {model}; nobody checks them"),
        ("rows", "at most two for each picture"),
    ]
    return Preview(facts=facts, problems=problems)


def run_pictures(context: StepContext) -> None:
    """Write ``rows.jsonl`` and ``pictures``."""
    config = context.config
    rows, drops, num_found = store_pictures(
        config.pictures, context.folder, max_pixels=_STORED_PIXELS
    )
    _finish(context, rows, given=num_found, drops=drops)


def run_captions(context: StepContext) -> None:
    """Write ``rows.jsonl``, the pictures with captions."""
    rows, settings = _read(context, "pictures"), context.config.captioner
    said, source = {row["digest"]: row["caption"] for row in rows}, dict[str, Any](_CAME_ALONG)
    if settings is not None:
        captioner = open_captioner(settings, revision=context.inputs.get("captioner.model"))
        said, source = _ask_captioner(context, captioner, rows), captioner.source
    drops = DropLog()
    captioned = [{**row, "caption": said[row["digest"]], "caption_source": source} for row in rows]
    _finish(context, keep_captions(captioned, drops), given=len(rows), drops=drops)


def run_scenarios(context: StepContext) -> None:
    """Write ``rows.jsonl``, two tasks for every picture."""
    rows = _read(context, "captions")
    if not rows:
        raise DataError("no picture has a caption that can be used")
    made = make_scenarios(rows, context.output_of("pictures"), seed=context.config.seed)
    _finish(context, made, given=len(made), drops=DropLog())


def run_judge(context: StepContext) -> None:
    """Write ``rows.jsonl``, with a verdict or why there is none; replies are kept."""
    rows, folder = _read(context, "scenarios"), context.output_of("pictures")
    judge = open_judge(context.config.judge, LabelParser(labels=LABELS), context.folder)
    questions = [
        Question({"task": row["task"]}, (Picture(folder / row["image"], row["digest"]),))
        for row in rows
    ]
    progress = ProgressLine("verdicts", context.say)
    verdicts = judge_all(judge, questions, report_progress=progress)
    identity = {key: judge.describe().get(key) for key in ("model", "revision")}
    judged = [
        {**row, "judge": {**identity, **describe_verdict(verdict)}}
        for row, verdict in zip(rows, verdicts, strict=True)
    ]
    _finish(context, judged, given=len(rows), drops=DropLog())
    write_json(context.folder / "judge.json", {**judge.report(), "asked": dict(judge.describe())})


def run_rows(context: StepContext) -> None:
    """Write ``index.jsonl``, ``pictures``, ``summary.json``, ``README.md`` and its Chinese one."""
    judged, drops, config = _read(context, "judge"), DropLog(), context.config
    rows = choose_rows(judged, drops)
    check_number(rows, drops, min_rows=config.min_rows)
    copy_pictures(rows, context.output_of("pictures"), context.folder)
    write_jsonl(context.folder / "index.jsonl", rows)
    write_json(context.folder / "drops.json", drops.to_json())
    before = ("pictures", "captions", "scenarios")
    stages = {name: read_json(context.output_of(name) / "counts.json", dict) for name in before}
    own = {"given": len(judged), "kept": len(rows), "dropped": drops.counts}
    numbers = count_rows(rows, {**stages, "judge": own})
    write_json(context.folder / "summary.json", numbers)
    model = judged[0]["judge"]["model"]
    write_text(context.folder / "README.md", write_summary(numbers, judge=model))
    chinese = write_summary(numbers, judge=model, language="zh")
    write_text(context.folder / "README.zh.md", chinese)
    context.say(f"{len(rows):,} rows; their labels are a judge's, and nobody has checked them")


def _ask_captioner(
    context: StepContext, captioner: Captioner, rows: list[dict[str, Any]]
) -> dict[str, str]:
    """Return the caption by digest; those of an interrupted attempt are not asked for again."""
    folder, progress = context.output_of("pictures"), ProgressLine("captions", context.say)
    with ResultFile(context.folder / "said.jsonl", key="digest") as kept:
        open_rows = [row for row in rows if row["digest"] not in kept.finished]

        def keep(picture: Picture, caption: str) -> None:
            kept.append({"digest": picture.digest, "caption": caption})
            progress(len(kept.finished), len(rows))

        pictures = [Picture(folder / row["image"], row["digest"]) for row in open_rows]
        size = context.config.captioner.batch_size
        caption_in_batches(captioner, pictures, batch_size=size, keep=keep)
        return {row["digest"]: row["caption"] for row in kept.rows()}


def _read(context: StepContext, step: str) -> list[dict[str, Any]]:
    return read_jsonl(context.output_of(step) / _ROWS)


def _finish(
    context: StepContext, rows: list[dict[str, Any]], *, given: int, drops: DropLog
) -> None:
    """Write the rows, and what was dropped and why."""
    write_jsonl(context.folder / _ROWS, rows)
    write_json(context.folder / "drops.json", drops.to_json())
    counts = {"given": given, "kept": len(rows), "dropped": drops.counts}
    write_json(context.folder / "counts.json", counts)
