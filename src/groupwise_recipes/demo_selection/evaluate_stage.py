"""The stage ``evaluate``: cells are filled, and shown as a run's policies and measures."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import (
    ConfigError,
    Example,
    ProgressLine,
    derive_seed,
    digest_file,
    dump_config,
)
from groupwise.data.audit import DataAudit, audit_data, find_seen, list_near_examples
from groupwise.evaluation.metrics import Metric, compare_pairs, compute_metrics
from groupwise.evaluation.predictions import METRIC_VERSIONS, NEAR_DUPLICATE, SEEN, mark_items
from groupwise.evaluation.report.page import Section
from groupwise.evaluation.results import Conditions, record_look
from groupwise.run.evaluating import (
    collect_prompts,
    describe_examples,
    digest_prompts,
    write_evaluation,
)
from groupwise.run.steps import StepContext
from groupwise_recipes.demo_selection.candidate_files import read_candidates
from groupwise_recipes.demo_selection.cells import (
    Base,
    Cell,
    CellRow,
    EvaluationFacts,
    Subsets,
    draw_subsets,
)
from groupwise_recipes.demo_selection.choosing import BASELINES
from groupwise_recipes.demo_selection.data_stages import USE, list_shown, open_features
from groupwise_recipes.demo_selection.evaluation import (
    ORACLE,
    REVERSED,
    Evaluator,
    begin_evaluation,
    describe_evaluation,
    plan_cells,
)
from groupwise_recipes.demo_selection.items import list_contents
from groupwise_recipes.demo_selection.list_stages import (
    ANSWERS,
    SELECTOR,
    Material,
    find_recorded,
    open_answerer,
    read_material,
)
from groupwise_recipes.demo_selection.pointwise import POINTWISE, read_pointwise
from groupwise_recipes.demo_selection.results import (
    MEAN,
    list_measures,
    list_policies,
    make_predictions,
    make_sections,
)
from groupwise_recipes.demo_selection.selector import PointerSelector

if TYPE_CHECKING:
    from groupwise.run.evaluating import Labelled


def run_evaluate(task: Any, context: StepContext) -> None:
    """Fill the cells of every way of choosing, and measure and compare the last of each."""
    config = context.config
    material = read_material(config, context.run)
    subsets = draw_subsets(
        [one.id for one in material.items["test"]], config.evaluation.sizes, seed=config.seed
    )
    test = [one for one in material.items["test"] if one.id in set(subsets.largest)]
    record_look(context.run, test, is_continued=context.is_resumed)
    evaluator = make_evaluator(task, config, context.run, folder=context.folder, material=material)
    begin_evaluation(context.folder, _find_facts(evaluator, context), subsets)
    rows = _fill(evaluator, context, subsets, list_run_cells(config))
    _write(context, evaluator, {**material.items, "test": test}, rows)


def measure_labelled(task: Any, asked: "Labelled") -> tuple[DataAudit, int]:
    """Fill the cells of a selector and of what is not trained on other questions; measure them.

    Returns:
        The audit, and the number of questions about a picture that training has shown.
    """
    context, test = asked.context, list(asked.examples)
    config, last = context.config, _find_last(context.config)
    names = [one.name for one in asked.chain]
    if not set(names) <= last.keys():
        raise ConfigError(
            "demo_selection measures a selector after its last epoch",
            got=names[-1],
            expected=" or ".join(last),
        )
    material = read_material(config, context.run)
    shown = list_shown(material.items)
    audit = audit_data({"train": shown, "test": test}, drops=asked.drops, num_rows=asked.num_rows)
    asked.keep_audit(audit)
    table = open_features(config, context.run).tabulate(list_contents(test))
    material = Material({**material.items, "test": test}, {**material.tables, "test": table})
    subsets = draw_subsets(table.ids, [len(test)], seed=config.seed)
    evaluator = make_evaluator(task, config, context.run, folder=context.folder, material=material)
    begin_evaluation(context.folder, _find_facts(evaluator, context), subsets)
    cells = [
        one
        for one in list_run_cells(config)
        if one.epoch is None or (one.system.removesuffix(REVERSED) in names and _is_last(one, last))
    ]
    rows = _fill(evaluator, context, subsets, cells)
    seen = find_seen(shown, test)
    near = list_near_examples(context.folder.parent / "audit", test, split="test")
    _write(
        context,
        evaluator,
        material.items,
        rows,
        marks={NEAR_DUPLICATE: near, SEEN: seen},
        describe=partial(asked.describe, num_seen=len(seen)),
    )
    return audit, len(seen)


def _find_last(config: Any) -> dict[str, int]:
    """Return the last epoch of each training."""
    return {"rce": config.rce.num_epochs, "grpo": config.grpo.epochs}


def _is_last(cell: Cell, last: Mapping[str, int]) -> bool:
    """Whether a cell is of no training, or of the last epoch of one."""
    return cell.epoch in (None, last.get(cell.system.removesuffix(REVERSED)))


def list_run_cells(config: Any) -> list[Cell]:
    """Return the cells of a run: rivals, the oracle, and trainings after each epoch or the last.

    The oracle is asked with as many lists as are recorded, so only at their number of shots.
    """
    shots, last = config.evaluation.shots, _find_last(config)
    epochs = {
        name: range(1, number + 1) if config.evaluation.every_epoch else (number,)
        for name, number in last.items()
    }
    reversed_too = {f"grpo{REVERSED}": (last["grpo"],)}
    oracle = Cell(ORACLE, config.recording.num_shots)
    systems = (*BASELINES, POINTWISE, f"{POINTWISE}{REVERSED}")
    planned = plan_cells(shots, epochs={**epochs, **reversed_too}, systems=systems)
    return [*planned, *([oracle] if oracle.shots in shots else [])]


def _fill(
    evaluator: Evaluator, context: StepContext, subsets: Subsets, cells: Sequence[Cell]
) -> dict[Cell, Sequence[CellRow]]:
    """Fill all cells and return those that the report is of, each training after its last epoch."""
    last = _find_last(context.config)
    found: dict[Cell, Sequence[CellRow]] = {}
    for number, cell in enumerate(cells, start=1):
        context.say(f"cell {number} of {len(cells)}: {cell.name}")
        rows = evaluator.evaluate(
            cell, subsets.largest, report_progress=ProgressLine("items", context.say)
        )
        if _is_last(cell, last):
            found[cell] = rows
    return found


def make_evaluator(
    task: Any,
    config: Any,
    run: Path,
    *,
    folder: Path,
    material: Material,
    device: str | None = None,
) -> Evaluator:
    """Return what fills cells."""
    return Evaluator(
        folder,
        open_answerer(
            config,
            task.find_base(config, run),
            material.items["train"],
            cache=run / ANSWERS,
            device=device,
        ),
        material.pool(config, "test"),
        {name: run / name for name in ("rce", "grpo")},
        recorder=PointerSelector.load(run / "rce" / "policy" / SELECTOR),
        pointwise=read_pointwise(run / POINTWISE),
        recording=config.recording,
        seed=derive_seed(config.seed, "evaluate"),
    )


def _find_facts(evaluator: Evaluator, context: StepContext) -> EvaluationFacts:
    config = context.config
    recording = read_candidates(context.output_of(find_recorded(context)) / "anchors.jsonl")
    return EvaluationFacts(
        conditions=describe_evaluation(
            recording, answerer=evaluator.answerer, asked=evaluator.asked
        ),
        base=Base(
            f"RCE epoch {config.rce.num_epochs}"
            if config.rce.weights is None
            else config.rce.weights.name,
            digest_file(context.output_of("grpo") / "start.safetensors"),
        ),
        trained_shots=config.recording.num_shots,
        planned_epochs={"rce": config.rce.num_epochs, "grpo": config.grpo.epochs},
    )


def _write(
    context: StepContext,
    evaluator: Evaluator,
    splits: Mapping[str, Sequence[Example]],
    cells: Mapping[Cell, Sequence[CellRow]],
    *,
    marks: Mapping[str, Collection[str]] | None = None,
    describe: Callable[[Sequence[Metric]], Sequence[Section]] = lambda _: (),
) -> None:
    """Write the files of an evaluation; ``marks`` and ``describe`` as of ``measure_policies``."""
    config, seed = context.config, context.config.seed
    predictions = make_predictions(splits["test"], cells, shots=config.evaluation.shots)
    predictions, slices = mark_items(predictions, marks or {})
    policies = list_policies({one.policy for one in predictions})
    last = policies[-1].name
    pairs = [(one.name, last) for one in policies[:-1] if one.name != ORACLE]
    metrics = compute_metrics(predictions, labels=(), seed=seed, slices=slices)
    write_evaluation(
        context.folder,
        predictions,
        metrics=metrics,
        comparisons=[
            one
            for measure in (MEAN, "accuracy")
            for one in compare_pairs(predictions, pairs, split="test", seed=seed, measure=measure)
        ],
        conditions=Conditions(
            data={name: describe_examples(rows) for name, rows in splits.items()},
            prompts={name: digest_prompts(rows) for name, rows in splits.items()},
            base_weights=evaluator.answerer.identity,
            decoding=dump_config(evaluator.answerer.sampling),
            parser={"kind": "VqaParser"},
            metrics=METRIC_VERSIONS,
            measures=list_measures(config.evaluation.shots),
        ),
        policies=policies,
        prompts=collect_prompts(splits["test"]),
        sections=[
            *describe(metrics),
            *make_sections(
                metrics, cells, use=context.run / "answerer" / USE, shots=config.evaluation.shots
            ),
        ],
    )
