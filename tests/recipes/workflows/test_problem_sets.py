"""Every form a set is published in, on made rows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import ConfigError, DataError, load_config
from groupwise_recipes.workflows.problem_loading import (
    LoadedProblems,
    ProblemSource,
    load_problems,
)
from groupwise_recipes.workflows.problem_mixes import problem_mixes
from groupwise_recipes.workflows.problem_sets import (
    PUBLISHED_SETS,
    Problem,
    find_boxed,
    letter_options,
    list_examples,
)


def load(folder: Path, name: Any, files: dict[str, Any], **settings: Any) -> LoadedProblems:
    for path, content in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        rows: Any = content
        if path.endswith(".jsonl"):
            content = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        place.write_text(content if isinstance(content, str) else json.dumps(content))
    loaded = load_problems(ProblemSource(name=name, path=str(folder), **settings))
    assert loaded.num_rows == len(loaded.train) + len(loaded.test) + loaded.drops.total
    return loaded


def load_one(folder: Path, name: Any, files: dict[str, Any]) -> Problem:
    loaded = load(folder, name, files)
    (problem,) = (*loaded.train, *loaded.test)
    return problem


def test_gsm8k_answers_stand_behind_the_mark(tmp_path: Path):
    rows = [
        {"question": "How many?", "answer": "1,000+1 <<x>>\n#### 1,001"},
        {"question": "Which?", "answer": "none"},
        {"question": "How many?", "answer": "#### 1001"},
        {"question": "Twice?", "answer": "#### 1"},
        {"question": "twice?", "answer": "#### 2"},
        {"question": "", "answer": "#### 2"},
    ]
    loaded = load(tmp_path, "gsm8k", {"train.jsonl": rows, "test.jsonl": rows[:1]})
    assert [problem.ground_truth for problem in loaded.train] == ["1001"]
    assert loaded.drops.counts == {
        "same problem as another row, other answer": 2,
        "the column question is missing": 1,
        "no answer behind ####": 1,
        "repeats another row": 1,
    }


def test_math_takes_the_last_box(tmp_path: Path):
    row = {"problem": "1/2?", "solution": r"\boxed{3}, no: $\boxed{\frac{1}{2}}$.", "level": "1"}
    loaded = load(tmp_path, "math", {"train/algebra.jsonl": [row, {**row, "solution": "3"}]})
    assert [(p.problem, p.ground_truth) for p in loaded.train] == [("1/2?", r"\frac{1}{2}")]
    assert loaded.drops.counts == {r"no \boxed{} answer": 1}


braced = st.recursive(
    st.text("ab1+ ", max_size=4),
    lambda inner: st.tuples(inner, inner).map(lambda both: f"{both[0]}{{{both[1]}}}"),
    max_leaves=6,
)


@given(braced, st.text("ab $.", max_size=5))
def test_a_box_is_read_up_to_the_brace_that_closes_it(inner: str, around: str):
    text = rf"{around}\boxed{{0}} {around}\boxed{{{inner}}}{around}"
    assert find_boxed(text) == (inner.strip() or None)
    assert find_boxed(rf"{around}\boxed{{{inner}") is None


def test_a_box_without_braces_is_one():
    assert find_boxed(r"so $\boxed 5$.") == "5"
    assert find_boxed("none") is None


HUMAN_EVAL = {
    "task_id": "HumanEval/1",
    "prompt": "import math\n\ndef aid(x):\n    return x\n\ndef add(a, b):\n"
    '    """Add.\n    add(7, 7) = 14\n    >>> add(1, 2)\n    3\n    '
    '>>> add(2, 2)\n    5\n    """\n',
    "entry_point": "add",
    "canonical_solution": "    return a + b\n",
    "test": "METADATA = {}\ndef check(candidate):\n    n = 2\n    assert candidate(1, 2) == 3\n"
    "    assert candidate(7, 7) == 14, 'x'\n    assert candidate(2, 2) == 4\n    assert True\n"
    "    for x in range(n):\n        assert candidate(x, aid(x)) == 2 * x\n",
}


def test_human_eval_shows_its_examples_and_hides_other_tests(tmp_path: Path):
    loaded = load(tmp_path, "humaneval", {"anything.jsonl": [HUMAN_EVAL]})
    assert not loaded.train
    (problem,) = loaded.test
    assert problem.public_tests == (
        "assert add(1, 2) == 3",
        "assert add(7, 7) == 14, 'x'",
        "assert add(2, 2) == 4",
    )
    assert problem.hidden_tests == ("for x in range(n):\n    assert add(x, aid(x)) == 2 * x",)
    assert problem.setup == "import math\ndef aid(x):\n    return x\nn = 2"
    assert "return a + b" in problem.ground_truth
    assert "return a + b" not in problem.problem


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"name": "humaneval", "path": "x", "split_test_part": True},
            "humaneval is for tests only and may never train",
        ),
        ({"name": "own"}, "own problems need a path"),
        ({"name": "gsm8k", "path": "x", "hub": "y"}, "by either path or hub"),
    ],
)
def test_a_source_that_cannot_be_is_refused(settings: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        load_config(ProblemSource, settings)


@given(
    st.lists(
        st.tuples(
            st.integers() | st.text("ab'\\"),
            st.none() | st.text("ab'") | st.lists(st.integers() | st.text("ab'\\")),
        ),
        max_size=4,
    )
)
def test_examples_become_assertions_that_mean_the_same(pairs: list[tuple[Any, Any]]):
    shown = [(given, want) for given, want in pairs if want is not None]
    text = "\n".join(f"    >>> f({given!r})\n    {want!r}" for given, want in shown)
    found = list_examples(f"Does it.\n{text}\n    >>> g(1)\n    1\n", "f")
    assert found == [f"assert f({given!r}) == {want!r}" for given, want in shown]


MBPP = {
    "task_id": 601,
    "text": "Add two numbers.",
    "code": "def add(a, b):\r\n  return a + b",
    "test_setup_code": "",
    "test_list": ["assert add(1, 1) == 2", "assert add(1,1)==2", "assert add(2, 3) == 5"],
    "challenge_test_list": [],
}


def test_mbpp_shows_its_first_assertion_and_hides_the_others(tmp_path: Path):
    problem = load_one(tmp_path, "mbpp", {"mbpp.jsonl": [MBPP]})
    assert (problem.entry_point, problem.public_tests) == ("add", ("assert add(1, 1) == 2",))
    assert problem.hidden_tests == ("assert add(2, 3) == 5",)
    assert "assert add(2, 3)" not in problem.problem
    assert problem.ground_truth not in problem.problem


def test_mbpp_has_its_parts_by_number_and_drops_what_cannot_decide(tmp_path: Path):
    rows = [{**MBPP, "task_id": n, "text": f"Task {n}."} for n in (10, 11, 510, 511, 600, 974)]
    broken = {
        "no hidden tests are left": {"test_list": MBPP["test_list"][:2]},
        "no tests": {"test_list": []},
        "code cannot be parsed": {"code": "def add("},
        "the first test calls no function of the solution": {"code": "x = 1"},
        "the problem shows its solution": {"text": "def add(a, b):\n  return a + b"},
        "the column code is missing": {"code": None},
    }
    rows += [{**MBPP, "task_id": 700 + n, **row} for n, row in enumerate(broken.values())]
    loaded = load(tmp_path, "mbpp", {"mbpp.jsonl": rows})
    assert [problem.id for problem in loaded.train] == ["mbpp:974"]
    assert len(loaded.test) == 4
    assert loaded.drops.counts == dict.fromkeys(
        sorted(broken | {"of the part for few-shot prompts": {}}), 1
    )


def test_the_sanitized_mbpp_is_read_too(tmp_path: Path):
    row = {k: v for k, v in MBPP.items() if k not in ("text", "test_setup_code")}
    row |= {"prompt": "Add two numbers.", "test_imports": ["import math"]}
    problem = load_one(tmp_path, "mbpp", {"sanitized.json": [row]})
    assert problem.setup == "import math"
    assert problem.problem.startswith("Add two numbers.")


OPTIONS = "Which?\nA. one\nB. two\nC. three"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("dev/law_dev.csv", "question,choice0,choice1,choice2,answer\nWhich?,one,two,three,1"),
        (
            "law/test.jsonl",
            [
                {
                    "question": "Which?",
                    "subject": "law",
                    "answer": 1,
                    "choices": ["one", "two", "three"],
                }
            ],
        ),
    ],
)
def test_mmlu_is_read_as_it_is_published(tmp_path: Path, path: str, content: Any):
    problem = load_one(tmp_path, "mmlu", {path: content})
    assert (problem.problem, problem.ground_truth) == (OPTIONS, "B")
    assert problem.options == ("one", "two", "three")
    assert problem.cluster == "mmlu:law"


def test_mmlu_trains_from_auxiliary_train_where_a_passage_is_a_cluster(tmp_path: Path):
    passage = "A long story. " * 40
    rest = {"choices": ["a", "b", "c", "d"], "answer": 3}
    asked = [f"{passage}{n}?" for n in range(3)] + ["Short?"]
    files = {
        "auxiliary_train/race.jsonl": [{"question": text, **rest} for text in asked],
        "test/law_test.jsonl": [{"question": "Q?", **rest}],
    }
    loaded = load(tmp_path, "mmlu", files)
    assert (len(loaded.train), len(loaded.test)) == (4, 1)
    assert len({problem.cluster for problem in loaded.train}) == 2


CHOICES = [{"label": "A", "text": "bank"}, {"label": "B", "text": "library"}]


@pytest.mark.parametrize(
    "row",
    [
        {"id": "1", "answerKey": "B", "question": {"stem": "Where?", "choices": CHOICES}},
        {
            "id": "1",
            "answerKey": "B",
            "question": "Where?",
            "choices": {"label": ["A", "B"], "text": ["bank", "library"]},
        },
    ],
)
def test_commonsense_qa_is_read_in_both_forms(tmp_path: Path, row: dict[str, Any]):
    unlabelled = {**row, "id": "2", "answerKey": ""}
    loaded = load(tmp_path, "commonsenseqa", {"train.jsonl": [row], "test.jsonl": [unlabelled]})
    (problem,) = loaded.train
    assert (problem.problem, problem.ground_truth) == ("Where?\nA. bank\nB. library", "B")
    assert loaded.drops.counts == {"no answer": 1}


@pytest.mark.parametrize(
    ("context", "facts"),
    [
        ([["Rome", ["It is old.", " It is big."]], ["Oslo", ["Cold."]]], [["Rome", 0]]),
        (
            {"title": ["Rome", "Oslo"], "sentences": [["It is old.", " It is big."], ["Cold."]]},
            {"title": ["Rome"], "sent_id": [0]},
        ),
    ],
)
def test_hotpot_qa_keeps_its_contexts(tmp_path: Path, context: Any, facts: Any):
    row = {
        "_id": "x",
        "question": "Which?",
        "answer": "Rome",
        "context": context,
        "supporting_facts": facts,
    }
    problem = load_one(tmp_path, "hotpotqa", {"train.json": [row]})
    assert problem.problem == "Rome\nIt is old. It is big.\n\nOslo\nCold.\n\nQuestion: Which?"
    assert (problem.ground_truth, problem.cluster) == ("Rome", "hotpotqa:Rome")


@given(st.text(min_size=1), st.lists(st.text("xyz", min_size=1), min_size=2, max_size=26))
def test_options_are_lettered_in_order(question: str, options: list[str]):
    text = letter_options(question, options)
    assert text.startswith(question)
    lines = text[len(question) + 1 :].split("\n")
    assert lines == [f"{chr(65 + n)}. {option}" for n, option in enumerate(options)]


def test_a_file_that_says_no_part_needs_one(tmp_path: Path):
    rows = {"problems.jsonl": [{"question": "1?", "answer": "#### 1"}]}
    with pytest.raises(DataError, match="nothing says which part of gsm8k"):
        load(tmp_path, "gsm8k", rows)
    assert len(load(tmp_path, "gsm8k", rows, part="test").test) == 1


def test_a_test_part_does_not_train_unless_it_is_said(tmp_path: Path):
    rows = {"test.jsonl": [{"question": f"{n}?", "answer": "#### 1"} for n in range(10)]}
    assert not load(tmp_path, "gsm8k", rows).train
    loaded = load(tmp_path, "gsm8k", rows, split_test_part=True)
    assert (len(loaded.train), len(loaded.test)) == (7, 3)
    rows["train.jsonl"] = rows["test.jsonl"]
    with pytest.raises(DataError, match="its test part is not split"):
        load(tmp_path, "gsm8k", rows, split_test_part=True)


def test_rows_that_are_too_long_or_that_no_file_can_hold_are_dropped(tmp_path: Path):
    rows = [{"question": text, "answer": "#### 1"} for text in ("a?", "b\0?", "c" * 9)]
    loaded = load(tmp_path, "gsm8k", {"train.jsonl": rows}, max_problem_characters=8)
    assert [problem.problem for problem in loaded.train] == ["a?"]
    assert loaded.drops.counts == {
        "no usable problem": 1,
        "longer than max_problem_characters": 1,
    }


def test_no_two_problems_have_one_id(tmp_path: Path):
    row = {"solution": r"\boxed{3}"}
    files = {f"train/{name}/1.jsonl": [{**row, "problem": f"{name}?"}] for name in ("sets", "sums")}
    assert len({problem.id for problem in load(tmp_path, "math", files).train}) == 2
    rows = [{**MBPP, "task_id": 700, "text": f"Task {n}."} for n in (1, 2)]
    loaded = load(tmp_path / "m", "mbpp", {"mbpp.jsonl": rows})
    assert loaded.drops.counts == {"id of another row": 1}


def test_a_data_set_of_the_hub_is_read_and_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    datasets: Any = pytest.importorskip("datasets")
    rows = {"question": ["1?"], "answer": ["#### 1"]}
    parts = {part: datasets.Dataset.from_dict(rows) for part in ("train", "test")}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "hub"))
    loaded = load_problems(ProblemSource(name="gsm8k", hub=str(tmp_path / "hub")))
    assert (len(loaded.train), len(loaded.test)) == (1, 1)
    gsm8k = replace(PUBLISHED_SETS["gsm8k"], hub=str(tmp_path / "hub"))
    monkeypatch.setitem(cast("dict[str, Any]", PUBLISHED_SETS), "gsm8k", gsm8k)
    said = CliRunner().invoke(problem_mixes, ["fetch", "gsm8k", "--out", str(tmp_path / "out")])
    assert sorted(line.split("/")[-1] for line in said.output.splitlines()) == [
        "test.jsonl: 1 rows",
        "train.jsonl: 1 rows",
    ]
    fetched = load_problems(ProblemSource(name="gsm8k", path=str(tmp_path / "out")))
    assert [p.problem for p in fetched.train] == [p.problem for p in loaded.train]


def test_own_rows_of_no_part_are_divided_by_cluster(tmp_path: Path):
    kind = {"problem_type": "math", "source": "mine"}
    rows = [
        {**kind, "problem": f"{n} + {n}?", "ground_truth": str(2 * n), "cluster": str(n // 2)}
        for n in range(20)
    ]
    loaded = load(tmp_path, "own", {"sums.jsonl": rows})
    assert (len(loaded.train), len(loaded.test), loaded.drops.total) == (14, 6, 0)
    assert not {p.cluster for p in loaded.train} & {p.cluster for p in loaded.test}
    assert loaded.test_part_trained == ()
    rows = [row | {"task_id": "sums"} for row in rows]
    assert len(load(tmp_path, "own", {"sums.jsonl": rows}, part="train").train) == 20
