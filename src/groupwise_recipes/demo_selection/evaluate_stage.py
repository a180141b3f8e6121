"""The stage ``evaluate``: cells are filled, and shown as a run's policies and measures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import Example, derive_seed, digest_file, dump_config
from groupwise.evaluation import (
    METRIC_VERSIONS,
    Conditions,
    Prediction,
    collect_prompts,
    compare_pairs,
    compute_metrics,
    describe_examples,
    digest_prompts,
    record_look,
    write_evaluation,
)
from groupwise.inference import StreamLine
from groupwise.pipeline import StepContext
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
from groupwise_recipes.demo_selection.data_stages import USE
from groupwise_recipes.demo_selection.evaluation import (
    ORACLE,
    REVERSED,
    Evaluator,
    begin_evaluation,
    describe_evaluation,
    plan_cells,
)
from groupwise_recipes.demo_selection.list_stages import (
    ANSWERS,
    SELECTOR,
    Material,
    find_recorded,
    open_answerer,
    read_material,
)
from groupwise_recipes.demo_selection.pointwise import POINTWISE, read_pointwise
from groupwise_recipes.demo_selection.report_sections import make_sections
from groupwise_recipes.demo_selection.results import (
    MEAN,
    list_measures,
    list_policies,
    make_predictions,
)
from groupwise_recipes.demo_selection.selector import PointerSelector


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
    rows = _fill(evaluator, context, subsets)
    predictions = make_predictions(test, rows, shots=config.evaluation.shots)
    _write(context, evaluator, {**material.items, "test": test}, predictions, rows)


def list_run_cells(config: Any) -> list[Cell]:
    """Return the cells of a run: rivals, the oracle, and trainings after each epoch or the last.

    The oracle is asked with as many lists as are recorded, so only at their number of shots.
    """
    shots, last = (
        config.evaluation.shots,
        {"rce": config.rce.num_epochs, "grpo": config.grpo.epochs},
    )
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
    evaluator: Evaluator, context: StepContext, subsets: Subsets
) -> dict[Cell, Sequence[CellRow]]:
    """Fill all cells and return those that the report is of, each training after its last epoch."""
    config = context.config
    last = {"rce": config.rce.num_epochs, "grpo": config.grpo.epochs}
    cells = list_run_cells(config)
    found: dict[Cell, Sequence[CellRow]] = {}
    for number, cell in enumerate(cells, start=1):
        context.say(f"cell {number} of {len(cells)}: {cell.name}")
        rows = evaluator.evaluate(cell, subsets.largest, report_progress=StreamLine(context.say))
        if cell.epoch in (None, last.get(cell.system.removesuffix(REVERSED))):
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
    """Return what fills cells.

    Args:
        task: of the recipe.
        config: of the run.
        run: with trained selectors.
        folder: of the cells.
        material: of the run.
        device: of an answerer in this process; None: as policies choose it.
    """
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
    epoch = config.grpo_from_epoch or config.rce.num_epochs
    return EvaluationFacts(
        conditions=describe_evaluation(
            recording, answerer=evaluator.answerer, asked=evaluator.asked
        ),
        base=Base(
            f"RCE epoch {epoch}" if config.rce.weights is None else config.rce.weights.name,
            digest_file(context.output_of("grpo") / "start.safetensors"),
        ),
        trained_shots=config.recording.num_shots,
        planned_epochs={"rce": config.rce.num_epochs, "grpo": config.grpo.epochs},
    )


def _write(
    context: StepContext,
    evaluator: Evaluator,
    splits: Mapping[str, Sequence[Example]],
    predictions: Sequence[Prediction],
    cells: Mapping[Cell, Sequence[CellRow]],
) -> None:
    config, seed = context.config, context.config.seed
    policies = list_policies({one.policy for one in predictions})
    last = policies[-1].name
    pairs = [(one.name, last) for one in policies[:-1] if one.name != ORACLE]
    metrics = compute_metrics(predictions, labels=(), seed=seed)
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
            template=None,
            tokenizer=None,
            base_weights=evaluator.answerer.identity,
            decoding=dump_config(evaluator.answerer.sampling),
            parser={"kind": "VqaParser"},
            normalizer=None,
            metrics=METRIC_VERSIONS,
            measures=list_measures(config.evaluation.shots),
        ),
        policies=policies,
        prompts=collect_prompts(splits["test"]),
        sections=make_sections(
            metrics, cells, use=context.run / "answerer" / USE, shots=config.evaluation.shots
        ),
    )
