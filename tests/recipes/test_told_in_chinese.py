"""Every sentence that a run's files have in English is Chinese in a Chinese report.

Findings and the answers that show them, why rows are dropped and answers invalid, and what rewards
say: each is collected from the source as it is written there, its places filled with 7.
"""

import ast
import re
from collections import defaultdict
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from one_language import list_foreign
from tables import read_tables

import groupwise
import groupwise_recipes
from groupwise.core import Message, make_example
from groupwise.evaluation.report.phrases import Phrases
from groupwise.inference import RequestCause
from groupwise.rewards.audit.rows import Evidence, Outcome, Rule, point_at
from groupwise.sandbox.result import Status
from groupwise_recipes.workflows.outcome import PolicyReason
from groupwise_recipes.workflows.programs.reasons import REASONS

TABLES = read_tables(__file__)

CALLS = TABLES["calls"]
"""What is given such a sentence, and at which place."""
PROBLEM = "problem"
NAMED = {"reason": r"\w+", PROBLEM: "Sample|Found|Reference"}
"""Arguments that are one, and of what."""
LOGS = re.compile(r"(.+\.)?(drops|skipped)\.add")
FOLDERS = ("data", "flow", "judge_calibration", "judges", "learning", "rewards")
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
        is_apart = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        values = value.elts if is_apart else [value] * len(targets)
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
    rules = [
        rule
        for path in sorted(Path(groupwise.__file__).parent.glob("rewards/audit/*.py"))
        for value in vars(import_module(f"groupwise.rewards.audit.{path.stem}")).values()
        for one in (value if isinstance(value, tuple) else (value,))
        for rule in [getattr(one, "rule", one)]
        if isinstance(rule, Rule)
    ]
    assert len({rule.name for rule in rules}) > 40
    said = {one for r in rules for one in (r.title, r.must, f"{r.must}, not counting 7")}
    assert [one for one in sorted(said) if find_english(one)] == []


def test_why_a_program_has_no_answer_is_said_in_chinese():
    words = {*get_args(PolicyReason), *get_args(RequestCause), *get_args(Status)}
    ended = {f"{status} (over 7 s)" for status in get_args(Status) if status != "passed"}
    assert [one for one in sorted({*REASONS.values(), *words, *ended}) if find_english(one)] == []


@pytest.mark.parametrize(("evidence", "said"), TABLES["an_answer_that_shows_a_fault_stays"])
def test_an_answer_that_shows_a_fault_stays_as_it_is(evidence, said):
    assert Phrases("zh").translate(Evidence(*evidence).describe()) == said


def test_what_a_reward_says_is_told_part_by_part():
    outcome = Outcome(0.5, "label: 通过 is right; mine: so be it; form: two lines")
    shown = point_at(
        make_example([Message("user", "?")], cluster="c"), "x", outcome, "it must earn 0"
    )
    _, _, said = Phrases("zh").translate(shown.describe()).partition("：")
    assert said == "应得 0（它说：'label: 通过 正确; mine: so be it; form: 两行'）"


@pytest.mark.parametrize(("told", "said"), TABLES["the_users_own_words_stay"])
def test_the_users_own_words_stay(told, said):
    assert Phrases("zh").translate(told) == said
