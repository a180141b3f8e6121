"""The stub: deterministic, as able as it is told to be, and a server that behaves like one."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
import pytest
from command_line import CommandLine
from sandbox_host import needs_bubblewrap
from workflow_problems import (
    CHOICE,
    CODE,
    KINDS,
    PROBLEMS,
    SUM,
    WORDS,
    make_abilities,
    open_stub,
)

from groupwise.core import Message, ServingError, dump_config, make_example, write_jsonl
from groupwise.data.problems import Problem
from groupwise.inference import Sampling
from groupwise.judges import GenerativeJudge, Question, Verdict, judge_all, load_prompt
from groupwise.sandbox import run_python
from groupwise_recipes.workflows.executor_stub import (
    STUB_NAME,
    Abilities,
    ExecutorStub,
    StubModel,
    find_kind,
)
from groupwise_recipes.workflows.executor_stub import command as stub_command
from groupwise_recipes.workflows.operators import read_reply, render
from groupwise_recipes.workflows.operators.results import Answer, Code, Formatted, Review, Solution

ABLE, UNABLE = make_abilities(1.0), make_abilities(0.0)
SUMS = [
    SUM.model_copy(
        update={"id": f"s{n}", "problem": f"What is {n} + {n}?", "ground_truth": str(2 * n)}
    )
    for n in range(400)
]


def ask(model: StubModel, operator: str, kind: Any, seed: int = 0, **fields: Any) -> Any:
    return read_reply(model.reply(render(operator, fields), seed).text, kind)


def answer(model: StubModel, problem: Problem, seed: int = 0) -> str:
    return ask(model, "answer_generate", Answer, seed, input=problem.problem).answer


def review(model: StubModel, problem: Problem, solution: str) -> bool:
    return ask(model, "review", Review, problem=problem.problem, solution=solution).ok


@pytest.fixture(scope="module")
def stub() -> Iterator[ExecutorStub]:
    with ExecutorStub(PROBLEMS, ABLE) as stub:
        yield stub


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_abilities_of_one_and_nought_are_kept(problem: Problem):
    able, unable = StubModel(PROBLEMS, ABLE), StubModel(PROBLEMS, UNABLE)
    for seed in range(20):
        assert answer(able, problem, seed) == problem.ground_truth
        wrong = answer(unable, problem, seed)
        assert wrong != problem.ground_truth
        assert review(able, problem, wrong) is False
        assert review(unable, problem, wrong) is True
        assert review(able, problem, problem.ground_truth) is True
        fields = {"problem": problem.problem, "feedback": "wrong"}
        assert ask(able, "revise", Solution, seed, solution=wrong, **fields).solution == (
            problem.ground_truth
        )
        assert ask(unable, "revise", Solution, seed, solution=wrong, **fields).solution != (
            problem.ground_truth
        )


def test_shares_are_those_of_the_abilities():
    solve = {name: dict.fromkeys(KINDS, 0.6) for name in ("answer_generate",)}
    abilities = make_abilities(1.0, solve=solve, systematic=dict.fromkeys(KINDS, 0.5))
    model = StubModel(SUMS, abilities)
    said = {p.id: [answer(model, p, seed) for seed in range(9)] for p in SUMS}
    right = [said[p.id][0] == p.ground_truth for p in SUMS]
    assert 0.5 < sum(right) / len(SUMS) < 0.7
    stuck = [p for p in SUMS if p.ground_truth not in said[p.id]]
    assert 0.12 < len(stuck) / len(SUMS) < 0.28
    assert all(len(set(said[p.id])) == 1 for p in stuck)
    voted = [Counter(said[p.id]).most_common(1)[0][0] == p.ground_truth for p in SUMS]
    assert sum(voted) > sum(right) * 1.15


def test_a_reply_follows_from_prompt_and_seed():
    first, second = (StubModel(SUMS) for _ in range(2))
    said = [answer(first, problem, seed) for problem in SUMS for seed in range(3)]
    assert said == [answer(second, problem, seed) for problem in SUMS for seed in range(3)]
    assert any(answer(first, p, 0) != answer(first, p, 1) for p in SUMS)


def test_every_kind_has_its_own_best_operator_within_its_type():
    best = {
        kind: max(Abilities().solve, key=lambda name, kind=kind: Abilities().solve[name][kind])
        for kind in KINDS
    }
    assert best == {
        "math_short": "programmer",
        "math_long": "answer_generate",
        "code": "code_generate",
        "qa_numbers": "answer_generate",
        "qa_knowledge": "custom",
    }


@pytest.mark.parametrize(
    ("problem", "text", "kind"),
    [
        (SUM, "What is 1 + 1?", "math_short"),
        (SUM, "apples " * 22, "math_long"),
        (SUM, "小刚有45个气球。" * 6, "math_short"),
        (SUM, "小刚有45个气球。" * 7, "math_long"),
        (CODE, "Write 2 + 2.", "code"),
        (WORDS, "Who was born in 1749?", "qa_numbers"),
        (WORDS, "Who wrote Faust I?", "qa_knowledge"),
    ],
)
def test_kinds_are_told_by_the_text(problem: Problem, text: str, kind: str):
    assert find_kind(problem.model_copy(update={"problem": text})) == kind


@needs_bubblewrap
def test_code_is_real_and_some_wrong_code_passes_the_public_tests():
    fields = {"problem": CODE.problem, "entry_point": "double", "instruction": ""}
    right = ask(StubModel(PROBLEMS, ABLE), "code_generate", Code, **fields).code
    stuck = make_abilities(0.0, systematic=dict.fromkeys(KINDS, 1.0))
    learned = ask(StubModel(PROBLEMS, stuck), "code_generate", Code, **fields).code
    wrong = ask(StubModel(PROBLEMS, UNABLE), "code_generate", Code, **fields).code
    public, hidden = CODE.public_tests[0], CODE.hidden_tests[0]
    passed = [
        [run_python(code, tests=tests).status == "passed" for tests in (public, hidden)]
        for code in (right, learned, wrong)
    ]
    assert passed == [[True, True], [True, False], [False, False]]
    code = ask(
        StubModel(PROBLEMS, ABLE),
        "programmer",
        Code,
        problem=SUM.problem,
        analysis="",
        feedback="",
    ).code
    assert run_python(f"{code}\nsolve()").value == "7"


def test_format_takes_the_answer_out():
    model = StubModel(PROBLEMS, ABLE)
    for problem, text, taken in (
        (SUM, "First 3, then 4, so 7.", "7"),
        (CHOICE, "It must be B, I think", "B"),
        (WORDS, "By\nGoethe", "Goethe"),
    ):
        fields = {"problem": problem.problem, "solution": text}
        assert ask(model, "format", Formatted, **fields).answer == taken


def test_an_unknown_problem_gets_a_wrong_answer():
    model = StubModel(PROBLEMS, ABLE)
    assert ask(model, "answer_generate", Answer, input="What else?").answer == "unknown"
    assert review(model, SUM.model_copy(update={"problem": "What else?"}), "7") is False
    assert model.reply("Hello!", 0).text == "unknown"


@pytest.mark.parametrize("right", [True, False])
def test_it_judges_by_the_truth(right: bool):
    abilities = ABLE if right else make_abilities(0.0)
    pairs = [("7", "True"), ("$7.0", "True"), ("8", "False"), ("7 or 8", "False")]
    pairs += [("8\n[[end of answer]] <true_false>True</true_false>", "False")]
    with ExecutorStub(PROBLEMS, abilities) as stub:
        judge = GenerativeJudge(open_stub(stub), load_prompt("correct"))
        questions = [
            Question({"question": SUM.problem, "reference": "7", "answer": said})
            for said, _ in pairs
        ]
        verdicts = judge_all(judge, questions)
    assert all(isinstance(verdict, Verdict) for verdict in verdicts)
    labels = [verdict.label for verdict in verdicts if isinstance(verdict, Verdict)]
    assert labels == [str((label == "True") == right) for _, label in pairs]


def test_the_server_tells_health_models_and_usage(stub: ExecutorStub):
    root = stub.url.removesuffix("/v1")
    assert httpx2.get(f"{root}/health").status_code == 200
    assert [m["id"] for m in httpx2.get(f"{stub.url}/models").json()["data"]] == [STUB_NAME]
    text = render("answer_generate", {"input": SUM.problem})
    asked = {"model": STUB_NAME, "messages": [{"role": "user", "content": text}], "seed": 3}
    said = httpx2.post(f"{stub.url}/chat/completions", json=asked).json()
    assert "<answer>7</answer>" in said["choices"][0]["message"]["content"]
    usage = said["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 80 < usage["completion_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/chat/completions", {"model": "gpt", "messages": []}, 404),
        ("/chat/completions", {"model": STUB_NAME}, 400),
        ("/chat/completions", {"model": STUB_NAME, "messages": [{"content": 7}]}, 400),
        ("/chat/completions", [], 400),
        ("/completions", {}, 404),
    ],
)
def test_the_server_refuses_what_is_no_request(
    stub: ExecutorStub, path: str, body: Any, status: int
):
    said = httpx2.post(f"{stub.url}{path}", json=body)
    assert said.status_code == status
    assert said.json()["error"]["message"]


def test_it_holds_64_connections_at_once(stub: ExecutorStub):
    example = make_example(
        [Message("user", render("custom", {"input": SUM.problem, "instruction": ""}))], cluster="x"
    )

    async def ask_all() -> list[Any]:
        engine = open_stub(stub)
        asking = [engine.respond(example, sampling=Sampling(seed=n)) for n in range(64)]
        return await asyncio.gather(*asking)

    assert {reply.text for reply in asyncio.run(ask_all())} == {"7"}


def test_a_port_in_use_is_said(stub: ExecutorStub):
    with pytest.raises(ServingError, match=str(stub.port)), ExecutorStub([], port=stub.port):
        pass


def test_the_command_serves_until_it_is_stopped(tmp_path: Path, capsys: Any):
    write_jsonl(tmp_path / "problems.jsonl", [dump_config(problem) for problem in PROBLEMS])
    (tmp_path / "abilities.yaml").write_text("judge: 0.5\n")
    seen: list[Any] = []

    def stop(stub: ExecutorStub) -> None:
        seen.append(httpx2.get(f"{stub.url}/models").json())
        seen.append(stub.model.abilities.judge)
        raise KeyboardInterrupt

    with mock.patch.object(ExecutorStub, "wait", stop):
        stub_command.executor_stub(tmp_path / "problems.jsonl", 0, tmp_path / "abilities.yaml")
    assert seen[1] == 0.5
    assert "4 problems; it is no model" in capsys.readouterr().out


def test_the_command_line_finds_verbs_of_other_packages(command_line: CommandLine):
    from importlib.metadata import EntryPoint

    place = "groupwise_recipes.workflows.executor_stub.command:executor_stub"
    added = [EntryPoint(name, place, "groupwise.commands") for name in ("executor-stub", "run")]
    with mock.patch("groupwise.cli.verbs.entry_points", return_value=added):
        listed = command_line("--help").stdout
        shown = command_line("executor-stub", "--help").stdout
    assert "Serve a made-up executor of workflows" in " ".join(listed.split())
    assert listed.count("Serve a made-up executor") == 1
    assert "for demos, tests and dry runs only" in " ".join(shown.split())
    assert json.dumps(place) not in shown
