"""The public sets of problems that are known: where they are, what may train, how rows read.

A row of any set, and of a user's own, becomes the fields of a ``Problem``. What a solver of code
may see and run, and what decides, are kept apart.
"""

import ast
import doctest
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any, Literal, Self, cast, get_args

from pydantic import Field, model_validator

from groupwise.core import Config, digest_bytes, parse_python
from groupwise.data.rows import UnusableRowError, as_mapping

ProblemType = Literal["math", "code", "qa"]
SetName = Literal["gsm8k", "math", "humaneval", "mbpp", "mmlu", "hotpotqa", "commonsenseqa"]
TRAINING_PARTS = ("train", "auxiliary_train")
"""What publishers call their parts for training; every other part is for tests only."""
FEW_SHOT_PART = "prompt"
WHOLE = "whole"
"""The part of rows of a user's own of which nothing says what they are for."""

_BOX = re.compile(r"\\f?boxed\s*(?:\{|(?=\S))")
_LONG = 400
"""Characters of a question from which on it holds a passage that others ask about, too."""
_STATEMENTS = (ast.Assert, ast.For, ast.While)
_Functions = ast.FunctionDef | ast.AsyncFunctionDef
_Fields = dict[str, Any]


class Problem(Config):
    """A row of any set, in one form; it is written as JSON.

    Attributes:
        id: unique in a mix: the set's name, and the row's name in it.
        source: the set it is from (``gsm8k``).
        problem_type: how an answer is decided.
        problem: the whole text that is asked, with options and contexts where there are any;
            nothing that decides is in it.
        ground_truth: the reference: a number or expression (math), a solution (code), the letter
            of the right option, or an answer in words (qa).
        answers: further answers in words that are right, too (qa without options).
        options: texts of the options A, B, C ... in order; empty where there are none.
        entry_point: the function that code has to define.
        setup: code that tests need before them.
        public_tests: what a solver may see and run; asserts, one each.
        hidden_tests: what decides; none of them is public.
        cluster: problems that resemble each other (a subject, an article); never divided.
    """

    id: str = Field(min_length=1)
    source: str = Field(min_length=1)
    problem_type: ProblemType
    problem: str = Field(min_length=1)
    ground_truth: str = Field(min_length=1)
    answers: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    entry_point: str | None = None
    setup: str = ""
    public_tests: tuple[str, ...] = ()
    hidden_tests: tuple[str, ...] = ()
    cluster: str = Field(min_length=1)

    @model_validator(mode="after")
    def _check_code(self) -> Self:
        is_code = self.problem_type == "code"
        if is_code != (self.entry_point is not None) or is_code != bool(self.hidden_tests):
            raise ValueError("code, and only code, has an entry point and hidden tests")
        return self


@dataclass(frozen=True, slots=True)
class SetRow:
    """A row as it was found.

    Attributes:
        values: by column.
        where: file and line, or data set and row.
        part: as its publisher calls it (``train``, ``dev``); empty if nothing says so.
        group: the file's name without the part (of MMLU, the subject).
        name: its place within the set, no other row's.
    """

    values: Mapping[str, Any]
    where: str
    part: str
    group: str
    name: str

    def require_text(self, column: str) -> str:
        """Return a value as text without outer spaces."""
        value = self.values.get(column)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise UnusableRowError(f"the column {column} is missing", self.where)
        return value.strip()

    def list_texts(self, column: str) -> list[str]:
        """Return a value that is a list of texts; a missing one is empty."""
        value: object = self.values.get(column) or []
        texts = cast("list[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise UnusableRowError("a column is no list of texts", column)
        return cast("list[str]", texts)


def _read_gsm8k(row: SetRow) -> _Fields:
    """The answer stands behind the last ``####``."""
    return {
        "problem": row.require_text("question"),
        "ground_truth": _read_number(row.require_text("answer"), row.where),
    }


def _read_number(solution: str, where: str) -> str:
    _, mark, answer = solution.rpartition("####")
    number = answer.strip().replace(",", "")
    if not mark or not number:
        raise UnusableRowError("no answer behind ####", where)
    return number


def _read_math(row: SetRow) -> _Fields:
    answer = find_boxed(row.require_text("solution"))
    if not answer:
        raise UnusableRowError(r"no \boxed{} answer", row.where)
    return {"problem": row.require_text("problem"), "ground_truth": answer}


def find_boxed(solution: str) -> str | None:
    r"""Return what is in the last ``\boxed{}`` or ``\fbox{}``, with the braces inside it.

    ``\boxed 5`` is a box, too. None: there is no box, or its braces are not closed.
    """
    boxes = list(_BOX.finditer(solution))
    if not boxes:
        return None
    start = boxes[-1].end()
    if not boxes[-1][0].endswith("{"):
        return re.split(r"[\s$.,]", solution[start:], maxsplit=1)[0] or None
    depth, place = 1, start
    while place < len(solution):
        if solution[place] == "\\":  # an escaped brace is no brace
            place += 2
            continue
        depth += {"{": 1, "}": -1}.get(solution[place], 0)
        if depth == 0:
            return solution[start:place].strip() or None
        place += 1
    return None


def letter_options(question: str, options: Sequence[str]) -> str:
    """Return a question with its options below it, a line each: ``A. first``."""
    lines = [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, options, strict=False)]
    return "\n".join([question, *lines])


def _choose_option(question: str, options: Sequence[str], answer: str) -> _Fields:
    """Return the fields of a problem; the answer is a letter or counts the options from 0."""
    letters = ascii_uppercase[: len(options)]
    letter = letters[int(answer) : int(answer) + 1] if answer.isdecimal() else answer
    if not 2 <= len(options) <= len(ascii_uppercase) or not all(o.strip() for o in options):
        raise UnusableRowError("an option is missing", f"{len(options)} options")
    if not letter or letter not in letters:
        raise UnusableRowError("the answer is no option", answer)
    problem = letter_options(question, options)
    return {"problem": problem, "ground_truth": letter, "options": tuple(options)}


def _read_mmlu(row: SetRow) -> _Fields:
    question, options = row.require_text("question"), row.list_texts("choices")
    if not options:
        names = sorted(name for name in row.values if name.startswith("choice"))
        options = [str(row.values[name]) for name in names]
    subject = str(row.values.get("subject") or row.group)
    if row.part == "auxiliary_train":
        passage = question[: _LONG // 2].encode()
        subject = digest_bytes(passage)[:12] if len(question) > _LONG else ""
    return {**_choose_option(question, options, row.require_text("answer")), "cluster": subject}


def _read_commonsense_qa(row: SetRow) -> _Fields:
    """Read the official nested form, or the hub's flat one."""
    nested = as_mapping(row.values.get("question"))
    stem = nested.get("stem") if nested else row.values.get("question")
    choices = (nested or row.values).get("choices")
    if flat := as_mapping(choices):
        pairs = dict(zip(flat.get("label") or (), flat.get("text") or (), strict=False))
    else:
        rows = cast("Sequence[Mapping[str, str]]", choices or ())
        pairs = {str(choice.get("label")): str(choice.get("text")) for choice in rows}
    answer = row.values.get("answerKey")
    if not isinstance(stem, str) or not stem.strip():
        raise UnusableRowError("the column question is missing", "")
    if not answer:
        raise UnusableRowError("no answer", row.where)
    if answer not in pairs:
        raise UnusableRowError("the answer is no option", str(answer))
    letter = ascii_uppercase[list(pairs).index(answer)]
    return _choose_option(stem.strip(), list(pairs.values()), letter)


def _read_hotpot_qa(row: SetRow) -> _Fields:
    """Return the fields of a problem: all its paragraphs, then the question."""
    context = row.values.get("context")
    if flat := as_mapping(context):
        pairs = list(zip(flat.get("title") or (), flat.get("sentences") or (), strict=False))
    else:
        pairs = [(str(title), texts) for title, texts in cast("Any", context or ())]
    if not pairs:
        raise UnusableRowError("the column context is missing", "")
    paragraphs = [f"{title}\n{''.join(sentences).strip()}" for title, sentences in pairs]
    facts: Any = row.values.get("supporting_facts") or ()
    flat_facts = as_mapping(facts)
    titles: list[str] = flat_facts["title"] if flat_facts else [fact[0] for fact in facts]
    return {
        "problem": "\n\n".join([*paragraphs, f"Question: {row.require_text('question')}"]),
        "ground_truth": row.require_text("answer"),
        "cluster": min(titles, default=""),
    }


def _read_human_eval(row: SetRow) -> _Fields:
    """Return the fields of a problem: its docstring's examples are public, other tests hidden."""
    prompt, name = row.require_text("prompt"), row.require_text("entry_point")
    solution = f"{row.values['prompt']}{row.values.get('canonical_solution') or ''}"
    setup, tests = _take_apart(_parse(row.require_text("test"), "test"), name)
    shown = [test for test in tests if _is_shown(test, prompt, name)]
    settled = {_find_asked(test) for test in shown}
    body = _parse(solution, "prompt").body
    asked = next((n for n in body if isinstance(n, _Functions) and n.name == name), None)
    if asked is None:
        raise UnusableRowError("the entry point is not defined", name)
    examples = list_examples(ast.get_docstring(asked) or "", name)
    # One published example is wrong: where tests ask the same, they say what is right.
    public = [test for test in examples if _find_asked(test) not in settled]
    # The imports and functions that a prompt defines beside the one it asks for.
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef)
    others = [n for n in body if isinstance(n, kinds) and getattr(n, "name", "") != name]
    return _fill_code(
        problem=f"Complete this Python function.\n\n{prompt}",
        ground_truth=solution,
        entry_point=name,
        setup="\n".join([*map(ast.unparse, others), *setup]),
        tests=([*public, *shown], tests),
    )


def _take_apart(tests: ast.Module, name: str) -> tuple[list[str], list[str]]:
    """Return what the tests need, and each test, of a module with ``check(candidate)``."""
    check = next((n for n in tests.body if isinstance(n, _Functions) and n.name == "check"), None)
    if check is None:
        raise UnusableRowError("no tests", "no check(candidate)")
    candidate = check.args.args[0].arg
    for node in ast.walk(check):
        if isinstance(node, ast.Name) and node.id == candidate:
            node.id = name
    found = [node for node in check.body if isinstance(node, _STATEMENTS)]
    # Some tests assert that True is true.
    asked = [ast.unparse(node) for node in found if name in _list_names(node)]
    others = [node for node in check.body if not isinstance(node, _STATEMENTS)]
    return [ast.unparse(node) for node in others], asked


def _read_mbpp(row: SetRow) -> _Fields:
    """Return the fields of a problem: its first assertion is public, all others are hidden."""
    text = row.require_text("text" if "text" in row.values else "prompt")
    code = row.require_text("code").replace("\r\n", "\n")
    tests = [test for name in ("test_list", "challenge_test_list") for test in row.list_texts(name)]
    if not tests:
        raise UnusableRowError("no tests", row.where)
    setup = row.list_texts("test_imports") or [str(row.values.get("test_setup_code") or "")]
    names, kinds = _list_names(_parse(tests[0], "test")), (ast.FunctionDef, ast.ClassDef)
    defined = {node.name for node in _parse(code, "code").body if isinstance(node, kinds)}
    called = [name for name in names if name in defined]
    if not called:
        raise UnusableRowError("the first test calls no function of the solution", "")
    name = called[0]
    return _fill_code(
        problem=f"{text}\n\nThe function is called `{name}`; this holds:\n\n{tests[0].strip()}",
        ground_truth=code,
        entry_point=name,
        setup="\n".join(setup).replace("\r\n", "\n"),
        tests=(tests[:1], tests),
    )


def list_examples(docstring: str, name: str) -> list[str]:
    """Return the ``>>>`` examples of a docstring as assertions, in order.

    Only an example that calls ``name``, is one expression and shows a literal is one.
    """
    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:  # its lines do not stand one below the other
        return []
    found: list[str] = []
    for example in examples:
        try:
            # Some examples end in prose behind a blank line.
            value = ast.literal_eval(example.want.split("\n\n")[0].strip())
            call = parse_python(example.source.strip(), mode="eval").body
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            continue
        if example.exc_msg is None and name in _list_names(call):
            found.append(f"assert {ast.unparse(call)} == {value!r}")
    return found


def _fill_code(*, tests: tuple[Sequence[str], Sequence[str]], setup: str, **fields: str) -> _Fields:
    """Return the fields with the tests that decide: those that are not public or shown."""
    public, every = ({_write_plainly(test): test.strip() for test in part} for part in tests)
    hidden = tuple(test for plain, test in every.items() if plain not in public)
    if not hidden:
        raise UnusableRowError("no hidden tests are left", fields["entry_point"])
    if fields["ground_truth"].strip() in fields["problem"]:
        raise UnusableRowError("the problem shows its solution", fields["entry_point"])
    shown = tuple(public.values())
    return {**fields, "setup": setup.strip(), "public_tests": shown, "hidden_tests": hidden}


def _parse(source: str, column: str) -> ast.Module:
    try:
        with warnings.catch_warnings():  # of escapes that are none
            warnings.simplefilter("ignore")
            return parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnusableRowError("code cannot be parsed", f"{column}: {error}") from None


def _list_names(tree: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _is_shown(test: str, prompt: str, name: str) -> bool:
    """Tell whether a call of the test stands in the prompt, with or without ``>>>``."""
    shown = "".join(prompt.split()).replace('"', "'")
    calls = [n for n in ast.walk(parse_python(test)) if isinstance(n, ast.Call)]
    texts = ["".join(ast.unparse(n).split()) for n in calls if name in _list_names(n.func)]
    return any(text.replace('"', "'") in shown for text in texts)


def _find_asked(test: str) -> str:
    """Return what an assertion is about: of a comparison, its left side."""
    node = parse_python(test).body[0]
    asked = node.test if isinstance(node, ast.Assert) else node
    return ast.unparse(asked.left if isinstance(asked, ast.Compare) else asked)


def _write_plainly(test: str) -> str:
    """Return a test as Python writes it, without its message."""
    tree = _parse(test.strip(), "test")
    for node in tree.body:
        if isinstance(node, ast.Assert):
            node.msg = None
    return ast.unparse(tree)


def _read_own(row: SetRow) -> _Fields:
    """Read a row of a user's own, which says its source and its type itself.

    Code may come with its tests as a mix has them (``hidden_tests``), as HumanEval has them
    (``test``) or as MBPP has them (``test_list``).
    """
    kind = row.require_text("problem_type")
    if kind not in get_args(ProblemType):
        raise UnusableRowError("problem_type is not math, code or qa", kind)
    problem, truth = row.require_text("problem"), row.require_text("ground_truth")
    if kind == "math":  # of a whole solution, what stands behind #### or in the last box
        is_whole = "####" in truth
        answer = _read_number(truth, truth) if is_whole else find_boxed(truth) or truth
        fields: _Fields = {"problem": problem, "ground_truth": answer}
    else:
        read = _read_own_code if kind == "code" else _read_own_question
        fields = read(row, problem, truth)
    cluster, source = str(row.values.get("cluster") or ""), str(row.values.get("source") or "own")
    return {"source": source, "problem_type": kind, "cluster": cluster, **fields}


def _read_own_code(row: SetRow, problem: str, truth: str) -> _Fields:
    values = row.values
    if values.get("test_list"):
        return _read_mbpp(replace(row, values={**values, "text": problem, "code": truth}))
    if values.get("test") and not values.get("hidden_tests"):
        prompt = str(values.get("prompt") or values["problem"])
        asked = {**values, "prompt": prompt, "canonical_solution": truth}
        return _read_human_eval(replace(row, values=asked))
    tests = row.list_texts("hidden_tests")
    if not tests:
        raise UnusableRowError("the column hidden_tests is missing", row.where)
    return {
        "problem": problem,
        "ground_truth": truth,
        "entry_point": row.require_text("entry_point"),
        "setup": str(values.get("setup") or ""),
        "public_tests": tuple(row.list_texts("public_tests")),
        "hidden_tests": tuple(tests),
    }


def _read_own_question(row: SetRow, problem: str, truth: str) -> _Fields:
    options = row.list_texts("options") or row.list_texts("choices")
    context = row.values.get("context")
    if options:
        answer = ascii_uppercase[options.index(truth)] if truth in options else truth
        fields = _choose_option(problem, options, answer)
        is_shown = all(option in problem for option in options)
        return {**fields, "problem": problem} if is_shown else fields
    if context and not isinstance(context, str):
        asked = {**row.values, "question": problem, "answer": truth}
        return _read_hotpot_qa(replace(row, values=asked))
    if context and context not in problem:
        problem = f"{context.strip()}\n\nQuestion: {problem}"
    answers = tuple(row.list_texts("answers"))
    return {"problem": problem, "ground_truth": truth, "answers": answers}


def _find_mbpp_part(row: SetRow) -> str:
    """Return the part of a row of MBPP, which its number decides wherever it stands."""
    number = int(row.require_text("task_id"))
    limits = {"prompt": 10, "test": 510, "validation": 600, "train": 974}
    return next((part for part, last in limits.items() if number <= last), "")


def _find_own_part(row: SetRow) -> str:
    """Return the part that the file tells; what is of HumanEval is for tests, wherever it is."""
    source = "".join(filter(str.isalnum, str(row.values.get("source") or ""))).lower()
    return "test" if "humaneval" in source else row.part


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """A public set.

    Attributes:
        problem_type: of all its rows; None: each row says it, and the source that it is from.
        read: returns the fields of a problem; raises ``UnusableRowError``.
        hub: id of the data set on the hub.
        subsets: of the hub's data set; None is the only one.
        find_part: returns the part of a row, if it says so itself.
        usual_part: of rows of which nothing says it; empty: there is none.
    """

    problem_type: ProblemType | None
    read: Callable[[SetRow], _Fields]
    hub: str
    subsets: tuple[str | None, ...] = (None,)
    find_part: Callable[[SetRow], str] = lambda row: row.part
    usual_part: str = ""


_MATH_SUBJECTS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra"),
    *("number_theory", "prealgebra", "precalculus"),
)
_MBPP, _HOTPOT = "google-research-datasets/mbpp", "hotpotqa/hotpot_qa"
PUBLISHED_SETS: Mapping[SetName | Literal["own"], PublishedSet] = {
    "gsm8k": PublishedSet("math", _read_gsm8k, "openai/gsm8k", ("main",)),
    "math": PublishedSet("math", _read_math, "EleutherAI/hendrycks_math", _MATH_SUBJECTS),
    "humaneval": PublishedSet(
        "code", _read_human_eval, "openai/openai_humaneval", find_part=lambda row: "test"
    ),
    "mbpp": PublishedSet("code", _read_mbpp, _MBPP, ("full",), find_part=_find_mbpp_part),
    "mmlu": PublishedSet("qa", _read_mmlu, "cais/mmlu", ("all",)),
    "hotpotqa": PublishedSet("qa", _read_hotpot_qa, _HOTPOT, ("distractor",)),
    "commonsenseqa": PublishedSet("qa", _read_commonsense_qa, "tau/commonsense_qa"),
    "own": PublishedSet(None, _read_own, "", find_part=_find_own_part, usual_part=WHOLE),
}
"""All sets by name; ``own`` are the rows of a user's own."""
