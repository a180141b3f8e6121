"""What holds for every recipe: settings that stages read, values that are refused, one language.

That what a stage declares suffices is shown where its work is done with that same view: by the
tiny runs of ``on_task/test_run.py``, ``group_qc/test_run.py`` and ``task/test_task.py``, each of
which checks that it did the work of every stage there is. Sentences that a run's files have in
English are Chinese in a Chinese report: each is collected from the source as it is written there,
its places filled with 7. Reports of runs that are made up are in one language.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import get_args

import pytest
from group_words import FAIL, PARSER, PASS
from one_language import list_foreign
from plan_keys import (
    copy_sources,
    list_changed,
    plan,
    read_config,
    read_keys,
    write_base,
    write_done,
)
from recipe_plans import PLANS, make_plan
from run_folders import CONDITIONS, MANIFEST, POLICIES
from tables import read_tables

import groupwise
import groupwise_recipes
from groupwise.core import (
    Config,
    ConfigError,
    Message,
    load_config,
    make_example,
    write_json,
    write_jsonl,
)
from groupwise.evaluation.metrics import compare_pairs, compute_metrics
from groupwise.evaluation.predictions import (
    NEAR_DUPLICATE,
    Measure,
    Policies,
    Prediction,
    Prompts,
    RunPolicy,
)
from groupwise.evaluation.report.page import Section
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases
from groupwise.evaluation.report.run import write_report
from groupwise.evaluation.results import Conditions
from groupwise.inference.model import RequestCause
from groupwise.own_task.config import TaskConfig
from groupwise.own_task.task import TASK as OWN_TASK
from groupwise.rewards.audit.rows import Evidence, Outcome, point_at
from groupwise.rewards.audit.rows import read_tables as read_rules
from groupwise.run.asking import Temperature
from groupwise.run.evaluating import describe_origin, make_calibration_sections, write_evaluation
from groupwise.run.recipe import find_recipe, find_recipes, list_configs
from groupwise.run.rivals import tell_rivals
from groupwise.run.running import check_recipe
from groupwise.run.settings import RivalSettings
from groupwise.run.steps import run_steps
from groupwise.sandbox.result import Status
from groupwise_recipes.demo_selection.cells import Cell, CellRow
from groupwise_recipes.demo_selection.results import list_measures as list_shots
from groupwise_recipes.demo_selection.results import list_policies
from groupwise_recipes.demo_selection.results import make_sections as of_demo_selection
from groupwise_recipes.group_qc import measures as group_qc
from groupwise_recipes.visual_reasoning.config import AlignmentSettings
from groupwise_recipes.visual_reasoning.measuring import MEASURES as VISUAL_MEASURES
from groupwise_recipes.visual_reasoning.sections import make_sections as of_visual_reasoning
from groupwise_recipes.visual_reasoning.sections import make_source_sections
from groupwise_recipes.workflows.measuring import MEASURES as WORKFLOWS_MEASURES
from groupwise_recipes.workflows.outcome import PolicyReason
from groupwise_recipes.workflows.programs.reasons import REASONS
from groupwise_recipes.workflows.sections import make_sections as of_workflows


def load(name):
    recipe, config, settings = PLANS[name]
    return read_config(recipe, config, *settings)


def list_paths(section, prefix=""):
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Config):
            yield from list_paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def is_declared(step, path):
    return any(path == one or path.startswith(f"{one}.") for one in step.reads)


def say_refused(step, path):
    """Return the sentence about a setting: it names the outermost section that is not declared."""
    parts = path.split(".")
    outer = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
    name = next(p for p in outer if not any(f"{one}.".startswith(f"{p}.") for one in step.reads))
    return f"step '{step.name}' reads {name} but does not list it in reads"


def test_every_recipe_is_looked_at():
    # A round is planned from its loop; tests/learning runs its stages with their views.
    assert {recipe for recipe, _, _ in PLANS.values()} == set(find_recipes()) - {"round"}


@pytest.mark.parametrize("name", PLANS)
def test_each_stage_sees_what_it_declares_and_one_that_reads_more_stops_the_run(name, tmp_path):
    config = load(name)
    steps = make_plan(name, tmp_path)
    for number, step in enumerate(steps):
        hidden = []
        for path in list_paths(config):
            read = attrgetter(path)
            if is_declared(step, path):
                assert read(step.config) == read(config)
                continue
            hidden.append(path)
            with pytest.raises(ValueError) as refused:  # noqa: PT011 (the words are compared)
                read(step.config)
            assert str(refused.value) == say_refused(step, path)
        read = attrgetter(hidden[0])
        greedy = replace(step, run=lambda context, read=read: read(context.config))
        before = [replace(one, run=write_done, files=()) for one in steps[:number]]
        run = tmp_path / step.name
        run.mkdir()
        with pytest.raises(ValueError, match=say_refused(step, hidden[0])):
            run_steps([*before, greedy], run)


TABLES = read_tables(__file__)


@pytest.mark.parametrize("value", TABLES["they_are_refused_by_key"])
def test_they_are_refused_by_key(value):
    with pytest.raises(ConfigError, match=r"^1 problem\(s\)") as caught:
        read_config("on_task", "demo", value)
    assert f"{value.partition('=')[0]}: " in str(caught.value)


@pytest.mark.parametrize(("recipe", "configs"), TABLES["configs"].items())
def test_files_that_are_only_included_are_no_configs(recipe, configs):
    assert list_configs(find_recipe(recipe)) == configs


@pytest.mark.parametrize("recipe", ["on_task", "group_qc"])
def test_grpo_may_start_from_the_base(recipe, tmp_path):
    config = read_config(recipe, "demo", "sft=null", "data.warmup_share=0")
    steps = {step.name for step in find_recipe(recipe).plan(config, tmp_path / "run")}
    assert "grpo" in steps
    assert not {"sft", "sft_control"} & steps
    preview = check_recipe(find_recipe(recipe), config, out=tmp_path / "run")
    assert preview.problems == []
    assert "sft steps" not in dict(preview.facts)


@pytest.mark.parametrize(("recipe", "settings", "changed"), TABLES["redone_by_weights"])
def test_replaced_weights_redo_every_step_that_loads_them(recipe, settings, changed, tmp_path):
    base = write_base(tmp_path / "base")
    given = [one.replace("BASE", str(base)) for one in settings]
    before = read_keys(plan(recipe, tmp_path, "demo", *given))
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    found = list_changed(before, read_keys(plan(recipe, tmp_path, "demo", *given)))
    assert found == set(changed)


@pytest.mark.parametrize(("file", "old", "new", "changed"), TABLES["redone_by_code"])
def test_code_that_is_edited_redoes_what_it_decides(tmp_path, monkeypatch, file, old, new, changed):
    recipe = "group_qc" if "group_qc" in file else "on_task"
    judged = (f"judge={{model: {write_base(tmp_path / 'base')}}}",) if recipe == "on_task" else ()
    source = copy_sources(tmp_path / "src", monkeypatch) / file
    before = read_keys(plan(recipe, tmp_path, "demo", *judged))
    text = source.read_text(encoding="utf-8")
    assert old in text
    source.write_text(text.replace(old, new, 1), encoding="utf-8")
    after = read_keys(plan(recipe, tmp_path, "demo", *judged))
    assert list_changed(before, after) == set(changed)


CALLS = TABLES["calls"]
"""What is given such a sentence, and at which place."""
PROBLEM = "problem"
NAMED = {"reason": r"\w+", PROBLEM: "Sample|Found|Reference"}
"""Arguments that are one, and of what."""
LOGS = re.compile(r"(.+\.)?(drops|skipped)\.add")
FOLDERS = ("data", "judge_calibration", "judges", "learning", "own_task", "rewards", "run")
FOLLOWED = re.compile(
    "_.+|describe_forms|judge_file|find_(tags|problem|summary_problem)|explain_.+"
)
"""Functions whose texts are followed; those that begin with ``_`` only in their own file."""
TELLS = re.compile(
    rf"\b(?:{'|'.join(CALLS)}|drops)\b|def (?:{FOLLOWED.pattern.split('|', 1)[1]})\b"
)
"""What a file has that such a sentence may come from."""
DEPTH = 4
TEXTS = re.compile(r"\bstr\b")

Scope = ast.Module | ast.FunctionDef


class Source:
    """The functions of all files that may tell something, and what their variables may be."""

    def __init__(self):
        self.trees = {}
        self.functions = defaultdict(list)
        self.values = {}
        own = Path(groupwise.__file__).parent
        folders = [*(own / name for name in FOLDERS), Path(groupwise_recipes.__file__).parent]
        for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "executor_stub" in path.parts or not TELLS.search(text):
                continue
            self.trees[path] = tree = ast.parse(text)
            for scope in ast.walk(tree):
                if isinstance(scope, Scope):
                    self.values[scope] = note_values(scope)
                if isinstance(scope, ast.FunctionDef):
                    self.functions[scope.name].append((path, scope))

    def list_sentences(self):
        """Yield what is told, each with 7 in its places."""
        for path, tree in self.trees.items():
            for scope in ast.walk(tree):
                if isinstance(scope, Scope):
                    for node in walk_own(scope):
                        for value in list_told(node):
                            yield from self.spell(value, scope, path, DEPTH)

    def spell(self, value, scope, path, depth):
        """Yield the texts that an expression may be, where that is known."""
        known = []
        match value:
            case ast.Constant(value=str(text)):
                yield text
            case ast.JoinedStr(values=parts):
                spelled = [list(self.spell(part, scope, path, depth)) for part in parts]
                yield from map("".join, product(*spelled))
            case ast.FormattedValue(value=inner):
                yield from list(self.spell(inner, scope, path, depth)) or ["7"]
            case ast.BinOp(left=left, right=right):
                ends = list(self.spell(right, scope, path, depth)) or ["7"]
                yield from map("".join, product(self.spell(left, scope, path, depth), ends))
            case ast.IfExp(body=body, orelse=orelse):
                known = [body, orelse]
            case ast.BoolOp(values=several) | ast.Tuple(elts=several):
                known = several
            case ast.Name(id=name) if depth:
                own = self.values[scope].get(name, ())
                known = list(own or self.values[self.trees[path]].get(name, ()))
            case ast.Call() if depth:
                yield from self._spell_call(value, path, depth - 1)
            case _:
                pass
        for one in known:
            yield from self.spell(one, scope, path, depth - isinstance(value, ast.Name))

    def _spell_call(self, call, path, depth):
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        for file, function in self.functions[name] if FOLLOWED.fullmatch(name) else ():
            is_near = file == path or not name.startswith("_")
            if is_near and function.returns and TEXTS.search(ast.unparse(function.returns)):
                for node in walk_own(function):
                    if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
                        yield from self.spell(node.value, function, file, depth)


def walk_own(scope):
    """Yield the nodes of a scope that are of no function inside it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            waiting.extend(ast.iter_child_nodes(node))


def note_values(scope):
    """Return what is given to the variables of a scope."""
    found = defaultdict(list)
    for node in walk_own(scope):
        match node:
            case ast.Assign(targets=[target], value=value) | ast.For(target=target, iter=value):
                pass
            case ast.NamedExpr(target=target, value=value):
                pass
            case _:
                continue
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        apart = value.elts if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) else []
        values = apart if len(apart) == len(targets) else [value] * len(targets)
        for one, given in zip(targets, values, strict=True):
            if isinstance(one, ast.Name):
                found[one.id].append(given)
    return found


def list_told(node):
    """Yield the arguments of a call that tell something."""
    if isinstance(node, ast.Dict):
        given = {
            getattr(key, "value", ""): value
            for key, value in zip(node.keys, node.values, strict=True)
        }
        yield from [given[PROBLEM]] if given.keys() >= {PROBLEM, "label"} else []
    if not isinstance(node, ast.Call):
        return
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    place = 0 if LOGS.fullmatch(ast.unparse(node.func)) else CALLS.get(name)
    if place is not None:
        yield from node.args[place:][:1]
    for one in node.keywords:
        if one.arg in NAMED and re.fullmatch(NAMED[one.arg], name):
            yield one.value


def find_english(told):
    """Return what is English in the Chinese of a sentence, but for a stock word that it quotes."""
    return list_foreign(Phrases("zh").translate(told), "zh", ("because",))


def test_every_sentence_of_the_source_has_a_chinese_one():
    """What ends with a space is the beginning of one."""
    told = {one.replace("{count}", "7") for one in Source().list_sentences() if one[-1:] != " "}
    assert len(told) > 380
    assert [one for one in sorted(told) if find_english(one)] == []


def test_every_fault_that_a_reward_audit_looks_for_has_a_chinese_name():
    tables = read_rules()
    rules = [*tables["rules"].values(), *tables["checks"].values()]
    assert len(rules) > 60
    musts = {tables["bars"].get(must, must) for _, _, must in rules}
    said = {title for _, title, _ in rules} | musts | {f"{one}, not counting 7" for one in musts}
    assert [one for one in sorted(said) if find_english(one)] == []


def test_why_a_program_has_no_answer_is_said_in_chinese():
    words = {*get_args(PolicyReason), *get_args(RequestCause), *get_args(Status)}
    ended = {f"{status} (over 7 s)" for status in get_args(Status) if status != "passed"}
    assert [one for one in sorted({*REASONS.values(), *words, *ended}) if find_english(one)] == []


@pytest.mark.parametrize(
    ("told", "said"),
    [
        *((Evidence(*one).describe(), said) for one, said in TABLES["answers_that_show_a_fault"]),
        *TABLES["the_users_own_words_stay"],
    ],
)
def test_the_users_own_words_and_an_answer_that_shows_a_fault_stay(told, said):
    assert Phrases("zh").translate(told) == said


def test_what_a_reward_says_is_told_part_by_part():
    outcome = Outcome(0.5, "label: 通过 is right; mine: so be it; form: two lines")
    pair = (make_example([Message("user", "?")], cluster="c"), "x")
    shown = point_at(pair, outcome, "it must earn 0")
    _, _, said = Phrases("zh").translate(shown.describe()).partition("：")
    assert said == "应得 0（它说：'label: 通过 正确; mine: so be it; form: 两行'）"


@dataclass(frozen=True)
class Made:
    """What a recipe adds to a run; its data are a user's own texts, in whatever language."""

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
    config = load_config(TaskConfig, TABLES["make_task"])
    data = (*labels, "my_checks", "My checks")
    return Made(rows, tell_flow(rows, labels), OWN_TASK.list_measures(config), data=data)


def make_group_qc(folder):
    mission, verdicts = "BBU接地线检查", (PASS, FAIL)
    rows = [
        group_qc.score_defects(one, PARSER)
        for one in predict_all(("majority", "sft", "grpo"), verdicts, task_type=mission)
    ]
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
    config = read_config("workflows", "demo")
    gepa = RunPolicy(name="gepa", title="GEPA", title_zh="GEPA", kind="prompted")
    policies = [*POLICIES[:-1], gepa, POLICIES[-1]]
    sections = [
        section
        for found in (TABLES["make_workflows"], None)
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
    measured = compute_metrics(made.predictions, labels=(), slices=(NEAR_DUPLICATE, "relation"))
    pairs = [(name, last) for name in names if name != last]
    write_evaluation(
        folder / "evaluate",
        made.predictions,
        metrics=measured,
        comparisons=compare_pairs(made.predictions, pairs),
        conditions=Conditions(**{**CONDITIONS, "measures": made.measures}),
        policies=made.policies,
        prompts=Prompts(),
        sections=made.sections,
    )
    write_json(folder / "manifest.json", {**MANIFEST, "recipe": recipe, "config": {"seed": None}})
    write_json(folder / "audit/audit.json", TABLES["audit"])
    write_json(folder / "audit_rewards/audit.json", REWARDS)
    rows = [{"step": n, "reward": 0.5, "loss": 0.1, "kl": 0.1, "dead_groups": 0.9} for n in (1, 2)]
    write_jsonl(folder / "grpo/metrics.jsonl", rows)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_report_is_in_one_language(recipe, tmp_path):
    made = RECIPES[recipe](tmp_path)
    run = tmp_path / "r"
    write_run(run, recipe, made)
    data = (*made.data, recipe, "r", "label")
    for language in LANGUAGES:
        for path in write_report(run, language=language):
            assert list_foreign(path.read_text("utf-8"), language, data) == []


def test_what_is_not_of_the_language_is_found():
    assert list_foreign("## 按任务\n\nBy mission `by_mission`", "zh", ()) == ["By", "mission"]
    assert list_foreign("## By mission\n\n按任务 接地", "en", ("接地",)) == ["按任务"]
