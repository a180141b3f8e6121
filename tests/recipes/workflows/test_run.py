"""Whole tiny runs of workflows, and outages."""

import os
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
import yaml
from faulty_server import MODEL, Fault
from plan_keys import list_done
from recipe_plans import list_all_steps
from recipe_runs import RecipeJob
from sandbox_host import needs_bubblewrap, skip_without_sandbox
from stub_process import StubProcess
from tables import read_tables
from workflow_problems import CHOICE, CODE, PROBLEMS, SUM, make_abilities, open_stub

from groupwise.core import (
    DataError,
    dump_config,
    load_config,
    read_json,
    read_jsonl,
    write_jsonl,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.predictions import read_policies, read_predictions
from groupwise.evaluation.report.page import read_sections
from groupwise.inference.settings import RetrySettings
from groupwise.models.tiny import write_tiny_policy
from groupwise.serving import Request
from groupwise_recipes.workflows import opening
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import ExecutorStub
from groupwise_recipes.workflows.opening import read_problems
from groupwise_recipes.workflows.outcome import ExecutionSettings
from groupwise_recipes.workflows.predictor import read_asked
from groupwise_recipes.workflows.problems import PROBLEMS as FILE
from groupwise_recipes.workflows.problems import ask_about_problem
from groupwise_recipes.workflows.rivals import RIVALS
from groupwise_recipes.workflows.scoring import read_problem
from groupwise_recipes.workflows.task import TASK
from groupwise_recipes.workflows.traces import write_traces

TABLES = read_tables(__file__)


@pytest.mark.slow
def test_every_stage_there_is_did_its_work_with_what_it_declares(tiny_run, tmp_path):
    assert list_done(tiny_run) == list_all_steps("workflows", tmp_path)


WITHOUT_WARMUP = TABLES["without_warmup"]


@needs_bubblewrap
def test_without_a_warmup_all_training_problems_are_grpos(command_line, tmp_path):
    job = RecipeJob("workflows", WITHOUT_WARMUP)
    command_line.succeed(*job.list_arguments(tmp_path / "run", "--until", "prepare"))
    prepared = tmp_path / "run" / "prepare"
    assert not (prepared / "warmup.jsonl").exists()
    assert len(read_examples(prepared / "train.jsonl")) == 60


@needs_bubblewrap
@pytest.mark.slow
def test_without_a_warmup_a_run_goes_the_whole_way(tmp_path):
    run = RecipeJob("workflows", WITHOUT_WARMUP).finish(tmp_path / "run")
    found = {one.policy for one in read_predictions(run / "evaluate" / "predictions.jsonl")}
    assert "grpo" in found
    assert "sft" not in found


@pytest.mark.slow
def test_every_policy_answers_the_same_problems(tiny_run):
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    found = read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
    by_policy = {}
    for one in found:
        by_policy.setdefault(one.policy, set()).add(one.example_id)
    assert set(by_policy) == {*RIVALS, "prompt", "sft", "gepa", "grpo"}
    assert set(map(frozenset, by_policy.values())) == {frozenset(one.id for one in test)}
    direct = [one for one in found if one.policy == "direct"]
    assert all(one.fields["tokens"] > 0 and one.fields["calls"] == 1 for one in direct)


@pytest.mark.slow
def test_a_policy_is_measured_on_problems_of_somebody_else(tiny_run, command_line):
    """Programs are run with the executor of the run; its stub is told of these problems."""
    maths = {"source": "mine", "problem_type": "math"}
    rows = [
        {**maths, "problem": f"What is {n} times 7?", "ground_truth": str(7 * n)} for n in range(4)
    ]
    rows += [{**maths, "problem": "No truth."}, {**maths, **rows[0]}]
    write_jsonl(Path("rows.jsonl"), rows)
    before = (tiny_run / "evaluate" / "predictions.jsonl").read_bytes()
    done = command_line.succeed("evaluate", tiny_run, "rows.jsonl", "--out", "out")
    assert "6 rows, 4 asked" in done.stdout
    assert "not used: 1 the column ground_truth is missing" in done.stderr
    assert "is a stub, not a model" in done.stderr
    found = read_predictions(Path("out/evaluate/predictions.jsonl"))
    assert {one.policy for one in found} == {*RIVALS, "grpo"}
    assert {one.fields["source"] for one in found} == {"mine"}
    by_vote = [one for one in found if one.policy == "self_consistency"]
    assert len(by_vote) == 4
    assert any(one.predicted == one.label for one in by_vote)
    assert all(one.fields["calls"] >= 5 and one.fields["tokens"] > 0 for one in by_vote)
    page = Path("out/report.md").read_text(encoding="utf-8")
    assert "one alone was asked about these problems" in page
    assert "is a stub, not a model" in page
    assert (tiny_run / "evaluate" / "predictions.jsonl").read_bytes() == before


@pytest.mark.slow
def test_no_problem_is_in_two_splits_and_all_are_accounted_for(tiny_run):
    prepared = tiny_run / "prepare"
    splits = {
        name: [read_problem(one).problem for one in read_examples(prepared / f"{name}.jsonl")]
        for name in ("warmup", "train", "validation", "test")
    }
    seen = [text for texts in splits.values() for text in texts]
    assert all(splits.values())
    assert len(seen) == len(set(seen)) == len(read_jsonl(prepared / "problems.jsonl"))
    source = read_json(prepared / "source.json", dict)
    assert source["num_rows"] == len(seen) + source["drops"]["total"]


@pytest.mark.slow
def test_what_decides_is_shown_to_nobody(tiny_run):
    for one in read_examples(tiny_run / "prepare" / "train.jsonl"):
        asked = "".join(str(message.text) for message in one.prompt)
        problem = read_problem(one)
        assert not any(test in asked for test in problem.hidden_tests)
    report = (tiny_run / "report.md").read_text(encoding="utf-8")
    assert "The executor of this run is a stub, not a model" in report
    assert "needed here" in report or "none is compared" in report


@pytest.mark.slow
def test_a_prompt_is_optimised_with_as_many_programs_as_grpo_had(tiny_run):
    folder = tiny_run / "optimise_prompt"
    spent = read_json(tiny_run / "grpo" / "budget.json", dict)["num_samples"]
    found = read_json(folder / "search.json", dict)
    assert 0 < found["num_executions"] <= spent
    assert len(read_jsonl(folder / "trials.jsonl")) <= found["num_executions"]
    assert found["refused"] == {"lost_place": 1}
    pasted = yaml.safe_load((folder / "prompt.yaml").read_text(encoding="utf-8"))
    assert pasted == {"prompt": found["prompt"]}
    [told] = [one for one in read_policies(tiny_run).listed if one.name == "gepa"]
    assert (told.kind, told.trained_from) == ("prompted", "sft")
    assert told.budget == {"num_samples": found["num_executions"]}


@pytest.mark.slow
def test_rules_and_judge_are_compared_in_both_languages(tiny_run):
    answers = [
        one
        for one in read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
        if "answer" in one.fields
    ]
    assert {one.policy for one in answers} >= set(RIVALS)
    assert all(set(one.fields["opinions"]) == {"rule", "judge"} for one in answers)
    ruled = [one for one in answers if one.fields["opinions"]["rule"] is not None]
    assert ruled
    assert all((one.predicted == one.label) == one.fields["opinions"]["rule"] for one in ruled)
    sections = read_sections(tiny_run / "evaluate" / "sections.json")
    for language, title in (("en", "Rules and judge"), ("zh", "规则与裁判")):
        [found] = [one for one in sections if one.title == title]
        assert found.is_for(language)
        assert f"{len(answers)}" in found.text
        different = {(one.example_id, one.fields["answer"]) for one in answers}
        assert [table.rows[-1][1] for table in found.tables] == [f"{len(different)}"] * 2
    report = (tiny_run / "report.md").read_text(encoding="utf-8")
    assert "## Rules and judge" in report
    assert "规则与裁判" not in report


@pytest.mark.slow
def test_the_curves_have_both_rates_and_every_type(tiny_run):
    rows = [row for row in read_jsonl(tiny_run / "grpo" / "metrics.jsonl") if "loss" in row]
    assert rows
    assert all({"reward/executed", "reward/correct"} <= set(row) for row in rows)
    for row in rows:
        facts = row["facts"]
        without = {name: one["num"] for name, one in facts["texts"].items() if "/" not in name}
        assert set(without) <= {"refused", "failed", "no value"}
        assert facts["shares"]["executed"][0] + sum(without.values()) == facts["num"] == 3 * 2
    counted = read_json(tiny_run / "grpo" / "judge.json", dict)
    assert sum(counted["reasons"].values()) > 0
    assert counted["deciding"]["mode"] == "rules_first"


PROGRAM = """
async def workflow(problem):
    a = await answer_generate(problem)
    r = await review(problem, a.answer)
    if r.ok:
        return a.answer
    return (await revise(problem, a.answer, r.feedback)).solution
"""
SUMS = [
    SUM.model_copy(update={"id": f"s{n}", "problem": f"What is {n} + 1?", "ground_truth": str(n)})
    for n in range(12)
]
PAIRS = [(PROGRAM, problem) for problem in SUMS]


class Watched:
    """A responder that lets something happen before one of the requests."""

    def __init__(self, responder, *, before, happen):
        self.responder = responder
        self.left = before
        self.happen = happen

    @property
    def identity(self):
        return self.responder.identity

    async def reply(self, example, *, sampling):
        self.left -= 1
        if self.left == 0:
            self.happen()
        return await self.responder.reply(example, sampling=sampling)

    async def label_shares(self, example, *, labels):
        raise NotImplementedError


@pytest.fixture(scope="module")
def undisturbed():
    skip_without_sandbox()
    with ExecutorStub(SUMS) as stub:
        outcomes = Executor(open_stub(stub)).run_all(PAIRS)
    assert {outcome.fault for outcome in outcomes} == {None}
    return outcomes


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    skip_without_sandbox()
    path = tmp_path_factory.mktemp("stub") / "problems.jsonl"
    write_jsonl(path, [dump_config(problem) for problem in SUMS])
    server = StubProcess(path)
    yield server
    server.kill()


def test_an_outage_shorter_than_the_retries_changes_nothing(server, undisturbed):
    starting = threading.Thread(target=server.restart)

    def kill():
        server.kill()
        starting.start()

    retry = RetrySettings(max_attempts=200, base_delay_s=0.05)
    watched = Watched(open_stub(server), before=8, happen=kill)  # pyright: ignore
    executor = Executor(watched, settings=ExecutionSettings(retry=retry, max_at_once=4))
    assert executor.run_all(PAIRS) == undisturbed
    starting.join()
    report = executor.report()
    assert report["outcomes"] == {"value": len(PAIRS)}
    assert report["failed_requests"]["connection"] > 0


def test_a_longer_outage_leaves_the_rewards_of_its_requests_open(server, undisturbed):
    retry = RetrySettings(max_attempts=2, base_delay_s=0.01)
    watched = Watched(open_stub(server), before=8, happen=server.kill)  # pyright: ignore
    executor = Executor(watched, settings=ExecutionSettings(retry=retry, max_at_once=1))
    outcomes = executor.run_all(PAIRS)
    num_before = [outcome.fault for outcome in outcomes].index("executor")
    assert 2 <= num_before <= 4
    assert outcomes[:num_before] == undisturbed[:num_before]
    for outcome in outcomes[num_before:]:
        assert (outcome.value, outcome.fault, outcome.reason) == (None, "executor", "connection")
    num_failed = len(PAIRS) - num_before
    report = executor.report()
    assert report["outcomes"] == {"value": num_before, "executor": num_failed}
    assert report["failed_requests"] == {"connection": num_failed * retry.max_attempts}
    server.restart()
    assert executor.run_all(PAIRS) == undisturbed


SHOWN = ("problem", "entry_point", "setup", "public_tests", "options")
PROMPT = "{{ operators }} {{ rules }} {{ problem }} {{ entry_point }}"
ASKS = "async def workflow(problem):\n    a = await answer_generate(problem)\n    return a.answer"
UNASSIGNED = "async def workflow(problem):\n    if problem:\n        a = '7'\n    return a"
FAILS = "async def workflow(problem):\n    return 1 // 0"


def configure(executor):
    values = {
        "model": {"base": "tiny-qwen2", "max_pixels": 16384},
        "prompt": PROMPT,
        "executor": executor,
        "sft": None,
        "grpo": {},
    }
    return load_config(WorkflowsConfig, values)


def show(problem):
    return Request(problem.id, {name: dump_config(problem)[name] for name in SHOWN})


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.id)
def test_a_problem_is_asked_as_in_training(problem, tmp_path):
    config = configure({"stub": True})
    asked = TASK.make_question(config, show(problem), tmp_path)
    assert asked.prompt == ask_about_problem(config, problem).prompt
    with_answers = Request(problem.id, dump_config(problem))
    assert TASK.make_question(config, with_answers, tmp_path) == TASK.make_question(
        config,
        Request(problem.id, {**show(problem).row, "problem_type": problem.problem_type}),
        tmp_path,
    )


def test_options_are_put_below_a_problem_without_them():
    bare = CHOICE.problem.partition("\n")[0]
    request = Request("x", {"problem": bare, "options": list(CHOICE.options)})
    assert read_asked(request).problem == CHOICE.problem
    assert read_asked(request).problem_type == "qa"


@pytest.mark.parametrize(("row", "message"), TABLES["a_row_that_is_no_problem_is_refused"])
def test_a_row_that_is_no_problem_is_refused(row, message):
    with pytest.raises(DataError, match=message):
        read_asked(Request("x", row))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_tiny_policy("tiny-qwen2", tmp_path_factory.mktemp("base") / "model")


@pytest.fixture
def run(tmp_path):
    """Return the folder of a run whose stub knows the problems."""
    (tmp_path / "prepare").mkdir()
    write_jsonl(tmp_path / "prepare" / FILE, map(dump_config, PROBLEMS))
    return tmp_path


@pytest.fixture
def away(serve):
    return serve(lambda _: Fault(status=500))


def answer(predictor, problem, program):
    """Return the answer where a policy writes ``program``."""
    predictor._ask = lambda examples, **_: [program for _ in examples]
    [found] = predictor.answer([predictor.make_question(show(problem), Path())])
    return found


@needs_bubblewrap
def test_an_answer_has_its_program_and_every_call(base, run, monkeypatch):
    able = partial(ExecutorStub, abilities=make_abilities(1.0))
    monkeypatch.setattr(
        opening, "_start_stub", lambda path, _: able(read_problems(path)).__enter__()
    )
    config = configure({"stub": True})
    predictor = TASK.open_predictor(config, base, run)
    found = answer(predictor, SUM, f"```python\n{ASKS}\n```")
    assert (found.answer, found.needs_person) == ("7", False)
    assert "no model" in found.reason
    assert found.details["program"].strip() == ASKS
    assert [one["reason"] for one in found.details["repairs"]] == ["fence"]
    [call] = found.details["calls"]
    assert (call["operator"], call["result"]["answer"]) == ("answer_generate", "7")
    used = found.details["usage"]
    assert call["tokens"] == used["prompt_tokens"] + used["completion_tokens"] > 0
    assert "no model" in found.details["executor"]
    refused = answer(predictor, SUM, UNASSIGNED)
    assert (refused.answer, refused.text, refused.needs_person) == (None, UNASSIGNED, True)
    assert refused.details["refusal"]["reason"] == "unassigned"
    assert refused.reason.startswith("refused (unassigned, line 4): ")
    assert refused.details["program"] == UNASSIGNED
    failed = answer(predictor, CODE, FAILS)
    assert (failed.answer, failed.details["refusal"]) == (None, None)
    assert "ZeroDivisionError" in failed.reason
    assert predictor.describe()["executor"]["model"] == "executor-stub"


@needs_bubblewrap
def test_what_the_executor_let_down_is_asked_again(base, run, away):
    server = {"url": away.url, "model": MODEL, "prompt_price": 1e6}
    retry = {"max_attempts": 1}
    config = configure({"model": {"server": server}, "execution": {"retry": retry}})
    predictor = TASK.open_predictor(config, base, run)
    found = answer(predictor, SUM, ASKS)
    assert (found.text, found.answer, found.needs_person) == (None, None, True)
    assert "the executor failed (server_error)" in found.reason
    away.script = [Fault("<thought>x</thought><answer>8</answer>")]
    found = answer(predictor, SUM, ASKS)
    assert (found.answer, found.reason, found.details["executor"]) == ("8", "", MODEL)
    assert found.details["calls"][0]["cost"] == 10.0


CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
USED = {"num_calls": 3, "prompt_tokens": 41, "completion_tokens": 52, "reasoning_tokens": 17}
SHOWN_PROGRAM = "async def workflow(problem):\n    return (await custom(problem, '<b>')).response"


def call(operator, *, error=""):
    return {
        "operator": operator,
        "arguments": {"input": f"given to {operator} <script>alert(1)</script>"},
        "result": None if error else {"response": f"said by {operator}"},
        "error": error,
        "tokens": 31,
        "seconds": 1.25,
        "cost": 0.5,
    }


def make_answer(name, said, *, executor="gpt", **more):
    usage = {**USED, "cost": 2.5}
    details = {"executor": executor, "program": SHOWN_PROGRAM, "calls": [], "usage": usage, **more}
    return {"id": name, "answer": said, "reason": "refused (syntax, line 3)", "details": details}


ROWS = [
    make_answer("first", "forty-two", calls=[call("custom"), call("review", error="it broke")]),
    make_answer("second", None),
    {"id": "third", "answer": None, "reason": "a row needs a problem", "details": {}},
]
TOLD = (
    *("first", "second", "forty-two", "given to custom", "said by custom", "it broke"),
    *("31", "1.25", "0.5", "41", "52", "17", "2.5", "refused (syntax, line 3)"),
)


def test_a_page_shows_every_call(tmp_path):
    english, chinese = write_traces(ROWS, tmp_path / "pages")
    for path in (english, chinese):
        text = path.read_text(encoding="utf-8")
        assert [one for one in TOLD if one not in text] == []
        assert "third" not in text
        assert "<script>alert" not in text
    assert "Calls of operators" in english.read_text(encoding="utf-8")
    assert "算子调用" in chinese.read_text(encoding="utf-8")
    assert "stub" not in english.read_text(encoding="utf-8")


def test_a_stub_is_named_at_the_top(tmp_path):
    rows = [make_answer("first", "7", executor="made up by executor-stub, which is no model")]
    text = write_traces(rows, tmp_path)[0].read_text(encoding="utf-8")
    assert text.index("is a stub, not a model") < text.index("async def workflow")


def test_rows_without_a_program_make_no_page(tmp_path):
    with pytest.raises(DataError, match="no answer with a program"):
        write_traces(ROWS[2:], tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
@pytest.mark.parametrize("width", [1200, 390])
def test_a_page_reads_well_in_a_browser(tmp_path, width):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        page = browser.new_page(viewport={"width": width, "height": 844})
        faults = []
        page.on("console", lambda one: faults.append(one.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        for path in write_traces(ROWS, tmp_path):
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
            assert page.locator("tbody tr").count() == 2
            assert page.get_by_text("said by custom").is_visible()
        assert faults == []
        browser.close()
