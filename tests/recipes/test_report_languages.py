"""The report of each recipe is in one language: no sentence, heading or title of the other.

Runs are made up of a few predictions; sections, measures and policies are the recipes' own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest
from group_words import FAIL, PARSER, PASS
from one_language import list_foreign
from run_folders import CONDITIONS, MANIFEST, POLICIES
from tables import read_tables

from groupwise.core import load_config, write_json, write_jsonl
from groupwise.evaluation.conditions import Conditions
from groupwise.evaluation.label_metrics import Temperature
from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.paired import compare_pairs
from groupwise.evaluation.policies import Policies, RunPolicy
from groupwise.evaluation.predictions import NEAR_DUPLICATE, Measure, Prediction, Prompts
from groupwise.evaluation.report.page import render_html, render_markdown
from groupwise.evaluation.report.phrases import LANGUAGES
from groupwise.evaluation.report.run import build_report
from groupwise.evaluation.report.run_page import lay_out
from groupwise.evaluation.report.tables import Section
from groupwise.evaluation.results import write_evaluation
from groupwise.flow.calibrating import make_calibration_sections
from groupwise.flow.other_data import describe_origin
from groupwise.flow.rivals import tell_rivals
from groupwise.flow.settings import RivalSettings
from groupwise.pipeline import find_recipe
from groupwise_recipes.demo_selection.cells import Cell, CellRow
from groupwise_recipes.demo_selection.report_sections import make_sections as of_demo_selection
from groupwise_recipes.demo_selection.results import list_measures as list_shots
from groupwise_recipes.demo_selection.results import list_policies
from groupwise_recipes.group_qc import measures as group_qc
from groupwise_recipes.task.config import TaskConfig
from groupwise_recipes.task.measuring import list_measures as list_task_measures
from groupwise_recipes.visual_reasoning.config import AlignmentSettings
from groupwise_recipes.visual_reasoning.measuring import MEASURES as VISUAL_MEASURES
from groupwise_recipes.visual_reasoning.sections import make_sections as of_visual_reasoning
from groupwise_recipes.visual_reasoning.transfer import make_source_sections
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.measuring import MEASURES as WORKFLOWS_MEASURES
from groupwise_recipes.workflows.sections import make_sections as of_workflows

TABLES = read_tables(__file__)


@dataclass(frozen=True)
class Made:
    """What a recipe adds to a run.

    Attributes:
        predictions: of its test split.
        sections: of its report.
        measures: its own.
        policies: of the run.
        data: the user's own texts, which may be in any language.
    """

    predictions: Sequence[Prediction]
    sections: Sequence[Section]
    measures: Sequence[Measure] = ()
    policies: Sequence[RunPolicy] = POLICIES
    data: tuple[str, ...] = ()


def predict(policy, labels, **named):
    """Answer four items: two right, one wrong, one invalid."""
    answers = ((0, labels[0]), (1, labels[1]), (0, labels[1]), (1, None))
    return [
        Prediction(
            example_id=f"i{n}",
            cluster=f"g{n}",
            split="test",
            policy=policy,
            label=labels[truth],
            predicted=answer,
            reason="" if answer else "no label",
            text=answer or "",
            fields={"task": labels[0], NEAR_DUPLICATE: "yes", "relation": "7", **named},
        )
        for n, (truth, answer) in enumerate(answers)
    ]


def predict_all(names, labels, **named):
    return [one for name in names for one in predict(name, labels, **named)]


def tell_flow(predictions, labels):
    """Return what every recipe's report may have: calibration, rivals, other data."""
    sure = [
        replace(one, probabilities=dict(zip(labels, (0.9, 0.1), strict=True)))
        for one in predictions
    ]
    known = {"grpo": Temperature(1.5, 40, 9), "sft": Temperature(None, 40, 0, "no mistake")}
    origin = {"run": "/1", "policy": "2", "weights": "3", "data": "/4", "data_digest": "5"}
    calibration = make_calibration_sections(sure, known, labels=labels, policies=POLICIES, seed=0)
    return [
        *calibration,
        *tell_rivals(RivalSettings(), POLICIES),
        *describe_origin(origin, (), num_seen=3),
    ]


def make_on_task(_):
    labels = ("on-task", "off-task")
    rows = predict_all(("majority", "sft", "grpo"), labels)
    return Made(rows, tell_flow(rows, labels), data=labels)


def make_task(_):
    labels = ("yes", "no")
    rows = [
        replace(one, scores={"reward": 0.5, "fluency": 0.25, "my_checks": 1.0})
        for one in predict_all(("majority", "prompt", "grpo"), labels)
    ]
    config = load_config(
        TaskConfig,
        TABLES["make_task"],
    )
    data = (*labels, "my_checks", "My checks")
    return Made(rows, tell_flow(rows, labels), list_task_measures(config), data=data)


def make_group_qc(folder):
    mission, verdicts = "BBU接地线检查", (PASS, FAIL)
    rows = [
        group_qc.score_defects(one, PARSER)
        for one in predict_all(("majority", "sft", "grpo"), verdicts, task_type=mission)
    ]
    parts = ("vision", "aligner", "virtual tokens", "embeddings and head", "language block 2")
    trained = [{"part": name, "num_trainable": 3, "num_frozen": 5} for name in parts]
    write_json(folder / "trainable.json", trained)
    drops = {"total": 2, "counts": {"Stage A failed": 2}}
    given = {"drops": drops, "num_groups": 4, "num_files": 6}
    says = (partial(group_qc.say_failed, {mission: 1}), partial(group_qc.say_given, given))
    sections = [
        section
        for say in says
        for section in group_qc.make_sections(
            compute_metrics(rows, labels=verdicts),
            group_qc.measure_missions(rows, verdicts, seed=0),
            policies=Policies(POLICIES),
            verdicts=verdicts,
            say_stage_a=say,
            trainable=folder / "trainable.json",
        )
    ]
    return Made(rows, sections, group_qc.MEASURES, data=(mission, *verdicts))


def make_demo_selection(folder):
    systems = ("none", "random", "oracle", "rce", "grpo_reversed", "grpo")
    scores = {"vqa_1": 0.5, "vqa_2": 0.0, "vqa_mean": 0.25}
    rows = [replace(one, scores=scores) for one in predict_all(systems, ("lum", "zim"))]
    answers = (CellRow("i0", "g0", ("a", "b"), "lum", 1.0), CellRow("i1", "g1", ("c",), "zim", 0.0))
    names = ("rce", "grpo", "grpo_reversed")
    cells = {Cell(name, shots): answers for name in names for shots in (1, 2)}
    counts = {"num_asked": 4, "num_right": 2, "num_right_reversed": 1, "num_changed": 3}
    situations = ("no demonstrations", "random", "none right", "one right", "contradicting")
    figures = [{"situation": one, "num_shots": n, **counts} for n, one in enumerate(situations)]
    write_json(folder / "use.json", figures)
    metrics = compute_metrics(rows, labels=())
    sections = of_demo_selection(metrics, cells, use=folder / "use.json", shots=(1, 2))
    return Made(rows, sections, list_shots((1, 2)), list_policies(systems), ("lum", "zim"))


def make_workflows(_):
    fields = {"problem_type": "math", "tokens": 1, "calls": 1, "program": "p"}
    rows = [
        replace(
            one,
            scores={"executed": float(one.predicted is not None)},
            reason="timeout" if one.reason else "",
        )
        for one in predict_all(("majority", "sft", "gepa", "grpo"), ("12", "13"), **fields)
    ]
    opinions = {"rule": True, "judge": False}
    rows[0] = replace(rows[0], fields={**rows[0].fields, "opinions": opinions, "answer": "12"})
    config = load_config(WorkflowsConfig, find_recipe("workflows").config_folder / "demo.yaml")
    search = TABLES["make_workflows"]
    gepa = RunPolicy(name="gepa", title="GEPA", title_zh="GEPA", kind="prompted")
    policies = [*POLICIES[:-1], gepa, POLICIES[-1]]
    sections = [
        section
        for found in (search, None)
        for section in of_workflows(rows, config, Policies(tuple(policies)), optimised=found)
    ]
    data = ("math", "timeout", "lost_place", "{{ problem }}", "{{ rules }}")
    return Made(rows, sections, WORKFLOWS_MEASURES, policies, data)


def make_visual_reasoning(_):
    labels = ("True", "False")
    rows = [
        replace(one, example_id=f"{source} {one.example_id}", scores={"alignment": 1.0})
        for source in ("flat", "textured")
        for one in predict_all(("majority", "sft", "grpo"), labels, source=source)
    ]
    metrics = compute_metrics(rows, labels=labels, slices=("source",))
    policies = Policies(POLICIES)
    sections = [
        *make_source_sections(metrics, policies),
        *of_visual_reasoning(rows, metrics, policies=policies, judge=AlignmentSettings()),
    ]
    return Made(rows, sections, VISUAL_MEASURES, data=(*labels, "flat", "textured", "source"))


RECIPES = {
    "on_task": make_on_task,
    "task": make_task,
    "group_qc": make_group_qc,
    "demo_selection": make_demo_selection,
    "workflows": make_workflows,
    "visual_reasoning": make_visual_reasoning,
}
AUDIT = TABLES["audit"]
REWARDS = {
    "findings": [
        {"level": "warning", "name": "denied", "count": 2}
        | {"message": "the right label denied: must earn 0; 2 of 9 break this."}
        | {"where": ["'12' earns 1 on 5: it must earn 0 (it says: 'label: 7 is right')"]}
    ]
}


def write_run(folder, recipe, made):
    """Write the files of a finished run that a report is made of."""
    *_, last = (one.policy for one in made.predictions)
    names = dict.fromkeys(one.policy for one in made.predictions)
    measured = [replace(one, latency_s=0.1) for one in made.predictions]
    write_evaluation(
        folder / "evaluate",
        measured,
        metrics=compute_metrics(measured, labels=(), slices=(NEAR_DUPLICATE, "relation")),
        comparisons=compare_pairs(measured, [(name, last) for name in names if name != last]),
        conditions=Conditions(**{**CONDITIONS, "measures": made.measures}),
        policies=made.policies,
        prompts=Prompts(),
        sections=made.sections,
    )
    write_json(folder / "manifest.json", {**MANIFEST, "recipe": recipe, "config": {"seed": None}})
    write_json(folder / "audit/audit.json", AUDIT)
    write_json(folder / "audit_rewards/audit.json", REWARDS)
    rows = [{"step": n, "reward": 0.5, "loss": 0.1, "kl": 0.1, "dead_groups": 0.9} for n in (1, 2)]
    write_jsonl(folder / "grpo/metrics.jsonl", rows)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_report_is_in_one_language(recipe, tmp_path):
    made = RECIPES[recipe](tmp_path)
    run = tmp_path / "r"
    write_run(run, recipe, made)
    report = build_report(run)
    data = (*made.data, recipe, "r", "label")
    # What HTML has of its own is the same for all recipes.
    renderers = (render_markdown, render_html) if recipe == "on_task" else (render_markdown,)
    for language in LANGUAGES:
        for render in renderers:
            page = lay_out(report, language)
            shown = render_html(page) if render is render_html else render(page, folder="report")
            assert list_foreign(shown, language, data) == []


def test_what_is_not_of_the_language_is_found():
    assert list_foreign("## 按任务\n\nBy mission `by_mission`", "zh", ()) == ["By", "mission"]
    assert list_foreign("## By mission\n\n按任务 接地", "en", ("接地",)) == ["按任务"]
