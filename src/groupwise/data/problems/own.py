"""Rows of a user's own: id, source, problem_type, problem, ground_truth, and what their type needs.

Code may come with its tests as ``groupwise data mix`` writes them (``hidden_tests``), as HumanEval
has them (``test``) or as MBPP has them (``test_list``).
"""

from collections.abc import Mapping
from dataclasses import replace
from string import ascii_uppercase
from typing import Any, get_args

from groupwise.data.problems.choices import choose_option, read_hotpot_qa
from groupwise.data.problems.code import read_human_eval, read_mbpp
from groupwise.data.problems.maths import find_boxed
from groupwise.data.problems.problem import ProblemType
from groupwise.data.problems.rows import SetRow
from groupwise.data.tables.values import UnusableRowError

WHOLE = "whole"
"""The part of rows of which nothing says what they are for."""


def find_own_part(row: SetRow) -> str:
    """Return the part that the file tells; what is of HumanEval is for tests, wherever it is."""
    source = "".join(filter(str.isalnum, str(row.values.get("source") or ""))).lower()
    return "test" if "humaneval" in source else row.part


def read_own(row: SetRow) -> dict[str, Any]:
    """Return the fields of a problem, its source and its type among them."""
    kind = row.require_text("problem_type")
    if kind not in get_args(ProblemType):
        raise UnusableRowError("problem_type is not math, code or qa", kind)
    problem, truth = row.require_text("problem"), row.require_text("ground_truth")
    readers = {"math": _read_maths, "code": _read_code, "qa": _read_question}
    return {
        "source": str(row.values.get("source") or "own"),
        "problem_type": kind,
        "cluster": str(row.values.get("cluster") or ""),
        **readers[kind](row, problem, truth),
    }


def _read_maths(row: SetRow, problem: str, truth: str) -> dict[str, Any]:
    """Return the fields; of a whole solution, what stands behind ``####`` or in the last box."""
    del row
    _, mark, behind = truth.rpartition("####")
    answer = behind.strip().replace(",", "") if mark else find_boxed(truth) or truth
    if not answer:
        raise UnusableRowError("no answer behind ####", truth)
    return {"problem": problem, "ground_truth": answer}


def _read_code(row: SetRow, problem: str, truth: str) -> dict[str, Any]:
    values: Mapping[str, Any] = row.values
    if values.get("test_list"):
        fields = read_mbpp(replace(row, values={**values, "text": problem, "code": truth}))
    elif values.get("test") and not values.get("hidden_tests"):
        prompt = str(values.get("prompt") or values["problem"])
        asked = {**values, "prompt": prompt, "canonical_solution": truth}
        fields = read_human_eval(replace(row, values=asked))
    else:
        tests = row.list_texts("hidden_tests")
        if not tests:
            raise UnusableRowError("the column hidden_tests is missing", row.where)
        fields = {
            "problem": problem,
            "ground_truth": truth,
            "entry_point": row.require_text("entry_point"),
            "setup": str(values.get("setup") or ""),
            "public_tests": tuple(row.list_texts("public_tests")),
            "hidden_tests": tuple(tests),
        }
    return fields


def _read_question(row: SetRow, problem: str, truth: str) -> dict[str, Any]:
    options = row.list_texts("options") or row.list_texts("choices")
    context = row.values.get("context")
    if options:
        answer = ascii_uppercase[options.index(truth)] if truth in options else truth
        fields = choose_option(problem, options, answer)
        is_shown = all(option in problem for option in options)
        return {**fields, "problem": problem} if is_shown else fields
    if context and not isinstance(context, str):
        asked = {**row.values, "question": problem, "answer": truth}
        return read_hotpot_qa(replace(row, values=asked))
    if context and context not in problem:
        problem = f"{context.strip()}\n\nQuestion: {problem}"
    answers = tuple(row.list_texts("answers"))
    return {"problem": problem, "ground_truth": truth, "answers": answers}
