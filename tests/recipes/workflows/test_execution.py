"""Execution of workflows: operators once each, and the bill."""

import asyncio

import pytest
from faulty_server import MODEL, Fault
from plan_keys import read_config
from sandbox_host import needs_bubblewrap, read_host_state, skip_without_sandbox, wait_for_children
from tables import read_tables
from workflow_problems import CHOICE, CODE, PROBLEMS, SUM, make_abilities, open_stub

from groupwise.core import ConfigError, ModelError
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import RetrySettings, ServerSettings
from groupwise.judges import ReplyCache
from groupwise_recipes.workflows.bill import count_requests, estimate_bill
from groupwise_recipes.workflows.estimate import estimate_run
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import ExecutorStub
from groupwise_recipes.workflows.once import Once
from groupwise_recipes.workflows.operators import OPERATORS, read_request, signatures
from groupwise_recipes.workflows.outcome import PROGRAM_LIMITS, ExecutionSettings, OperatorLimits
from groupwise_recipes.workflows.problems import choose_examples
from groupwise_recipes.workflows.programs import check_program
from groupwise_recipes.workflows.rivals import DIRECT, NUM_VOTERS, SELF_CONSISTENCY

TABLES = read_tables(__file__)


AT_ONCE = RetrySettings(max_attempts=3, base_delay_s=0.0)


NO_JSON = ({"body": b"<html>"}, "malformed")


def write(*lines, head="problem"):
    return "\n".join([f"async def workflow({head}):", *(f"    {line}" for line in lines)])


class Asked:
    """An executor whose server answers as a test says, and what it was asked."""

    def __init__(self, serve):
        self.server = serve(self._answer)
        self.say = lambda *_: ""
        self.requests = []
        self.prompts = []

    def _answer(self, request):
        text = request["messages"][-1]["content"]
        if "the word ready" in text:
            return Fault("ready")
        self.prompts.append(text)
        read = read_request(self.prompts[-1])
        assert read is not None
        self.requests.append((*read, request["seed"]))
        said = self.say(*self.requests[-1])
        return said if isinstance(said, Fault) else Fault(said)

    def run(self, source, problem=SUM, **given):
        return self.make(**given).run_all([(source, problem)])[0]

    def make(self, *, operators=OPERATORS, cache=None, **limits):
        server = ServerSettings(url=self.server.url, model=MODEL, timeout_s=5)
        given = {name: limits.pop(name) for name in ("limits", "program") if name in limits}
        settings = ExecutionSettings(**{"retry": AT_ONCE, **limits})
        return Executor(ServerModel(server), operators, settings=settings, cache=cache, **given)


@pytest.fixture
def asked(serve):
    skip_without_sandbox()
    return Asked(serve)


@pytest.fixture(scope="module")
def able():
    """An executor that never errs."""
    skip_without_sandbox()
    with ExecutorStub(PROBLEMS, make_abilities(1.0)) as stub:
        yield Executor(open_stub(stub))


SOUND = {
    "custom": write("r = await custom(problem, 'Answer.')", "return r.response"),
    "answer": write("r = await answer_generate(problem)", "return r['answer']"),
    "programmer": write("return (await programmer(problem)).output"),
    "vote": write(
        "s = []",
        "for i in range(3):",
        "    s.append((await answer_generate(problem)).answer)",
        "return (await sc_ensemble(s, problem)).response",
    ),
    "reviewed": write(
        "a = await answer_generate(problem)",
        "r = await review(problem, 'nonsense')",
        "f = await revise(problem, a.answer, r.feedback)",
        "return (await format(problem, f.solution)).answer if r.ok is False else 'no'",
    ),
}
TESTED = write(
    "c = await code_generate(problem, entry_point)",
    "t = await test(problem, 'def double(x): return 0', entry_point)",
    "return t.solution if t.result is True and c.code == t.solution else len(tests)",
    head="problem, entry_point, tests",
)


@pytest.mark.parametrize("name", sorted(SOUND))
def test_sound_programs_return_the_answer(able, name):
    for problem, outcome in zip(
        (SUM, CHOICE), able.run_all([(SOUND[name], p) for p in (SUM, CHOICE)]), strict=True
    ):
        assert (outcome.value, outcome.fault, outcome.reason) == (problem.ground_truth, None, "")
        assert outcome.calls == len(outcome.trace) > 0
        assert outcome.tokens == sum(call.tokens for call in outcome.trace) > 0


def test_code_is_written_and_mended_by_public_tests(able):
    [outcome] = able.run_all([(TESTED, CODE)])
    assert outcome.value == CODE.ground_truth
    assert [call.operator for call in outcome.trace] == ["code_generate", "test"]


@pytest.mark.parametrize(("lines", "reason", "message"), TABLES["failures_of_a_program"])
def test_failures_of_a_program_are_the_policys(asked, lines, reason, message):
    asked.say = lambda *_: "said"
    is_idle = "sleep" in lines[0]
    update = {"timeout_s": 1.0} if is_idle else {"cpu_s": 1}
    program = PROGRAM_LIMITS.model_copy(update=update)
    outcome = asked.run(write(*lines), program=program)
    assert (outcome.value, outcome.fault, outcome.reason) == (None, "policy", reason)
    assert message in outcome.message


@pytest.mark.parametrize(("fault", "reason"), [*TABLES["faults_of_the_executor"], NO_JSON])
@pytest.mark.parametrize("catches", [False, True])
def test_failures_of_the_executor_are_not_the_policys(asked, fault, reason, catches):
    asked.say = lambda *_: Fault(**fault)
    lines = ["try:", "    r = await custom(problem, 'x')", "except BaseException:", "    r = None"]
    lines = lines if catches else [lines[1].strip()]
    outcome = asked.run(write(*lines, "return '7'"))
    assert (outcome.value, outcome.fault, outcome.reason) == (None, "executor", reason)
    assert len(asked.requests) == (1 if reason == "refused" else AT_ONCE.max_attempts)


@pytest.mark.parametrize(
    ("fault", "message"),
    [(Fault(status=400), "status 400"), (Fault("half", finish_reason="length"), "truncated")],
)
def test_what_a_program_asks_too_much_is_an_operator_error(asked, fault, message):
    asked.say = lambda *_: fault
    caught = ["try:", "    r = await custom(problem, 'x')"]
    caught += ["except OperatorError as error:", "    return str(error)"]
    assert message in str(asked.run(write(*caught)).value)
    outcome = asked.run(write("return (await custom(problem, 'x')).response"))
    assert (outcome.fault, outcome.reason) == ("policy", "operator_error")


def test_a_cut_off_reply_is_asked_for_again_with_more_tokens(asked):
    asked.say = lambda *_: Fault("half", finish_reason="length")
    asked.server.script = [Fault("half", finish_reason="length"), Fault(""), Fault("whole")]
    outcome = asked.run(write("return (await custom(problem, 'x')).response"))
    assert outcome.value == "whole"
    limits = [request["max_tokens"] for request in asked.server.asked]
    assert limits == [1024, 2048, 4096]
    assert len({request["seed"] for request in asked.server.asked}) == 1


def test_an_unreadable_reply_is_asked_for_once_more_with_another_seed(asked):
    asked.say = lambda *_: "no tags"
    outcome = asked.run(write("return (await answer_generate(problem)).answer"))
    assert (outcome.fault, outcome.reason) == ("policy", "operator_error")
    assert "nothing in <answer>" in outcome.message
    assert len({seed for *_, seed in asked.requests}) == len(asked.requests) == 2


def test_programmer_has_three_tries_and_sees_the_error(asked):
    asked.say = lambda *_: "<code>def solve(): return 1 // 0</code>"
    outcome = asked.run(write("return (await programmer(problem)).output"))
    assert (outcome.fault, outcome.reason) == ("policy", "operator_error")
    feedback = [fields["feedback"] for _, fields, _ in asked.requests]
    assert len(feedback) == 3
    assert feedback[0] == ""
    assert "ZeroDivisionError" in feedback[1]


def test_test_has_three_repairs(asked):
    asked.say = lambda *_: "<solution>def double(x): return 0</solution>"
    source = write(
        "t = await test(problem, 'x = 1', entry_point)",
        "return f'{t.result} {t.solution}'",
        head="problem, entry_point",
    )
    assert asked.run(source, CODE).value == "False def double(x): return 0"
    assert [operator for operator, *_ in asked.requests] == ["test"] * 3
    assert "assert double(2) == 4" in asked.requests[0][1]["feedback"]


@pytest.mark.parametrize("problem", [SUM, CODE])
def test_test_refuses_an_unknown_entry_point(asked, problem):
    outcome = asked.run(write("return (await test(problem, 'x = 1', 'treble')).result"), problem)
    assert (outcome.reason, asked.requests) == ("operator_error", [])
    assert "no entry point 'treble'" in outcome.message


@pytest.mark.parametrize(("letter", "value"), [("B", "b True"), ("D", "c False"), ("?", "c False")])
def test_a_letter_out_of_range_is_a_failed_vote(asked, letter, value):
    asked.say = lambda *_: f"<letter>{letter}</letter>"
    lines = ["v = await sc_ensemble(['a', 'b', 'c', 'c'], problem)"]
    lines[0] = lines[0] if letter != "B" else lines[0].replace("'c', 'c'", "'c'")
    lines += ["return f'{v.response} {v.voted}'"]
    if letter == "D":
        lines[0] = lines[0].replace("['a', 'b', 'c', 'c']", "['c', 'b', 'c']")
    assert asked.run(write(*lines)).value == value


def test_what_decides_is_in_no_prompt_and_in_no_program(asked, monkeypatch):
    ran = []
    from groupwise.sandbox import cpython

    describe = cpython._describe
    monkeypatch.setattr(cpython, "_describe", lambda job: ran.append(str(job)) or describe(job))
    asked.say = lambda *_: (
        "<answer>x</answer><ok>False</ok><letter>A</letter><solution>def double(x): return 0"
        "</solution><code>def solve(): return 1</code>"
    )
    for problem in PROBLEMS:
        secret = problem.model_copy(
            update={
                "ground_truth": f"SECRET {problem.ground_truth}",
                "answers": ("SECRET answer",),
                "hidden_tests": ("assert 'SECRET test'",) if problem is CODE else (),
            }
        )
        sources = [*SOUND.values(), TESTED]
        asked.make().run_all([(source, secret) for source in sources])
    assert {operator for operator, *_ in asked.requests} == set(OPERATORS)
    assert len(ran) > len(PROBLEMS) * len(SOUND)
    assert not [text for text in [*asked.prompts, *ran] if "SECRET" in text]


def test_the_same_question_is_drawn_again_in_one_program_and_kept_for_a_repeated_run(
    asked, tmp_path
):
    asked.say = lambda _, __, seed: f"<answer>{seed}</answer>"
    source = write(
        "a = [(await answer_generate(problem)).answer for _ in range(3)]", "return ' '.join(a)"
    )
    first = asked.run(source)
    assert len(set(str(first.value).split())) == 3
    assert asked.run(source) == first
    num_asked = len(asked.server.asked)
    cache = ReplyCache(tmp_path / "replies.sqlite")
    asked.server.script = [Fault("<answer>7</answer>", reasoning_tokens=2)]
    executor = asked.make(cache=cache)
    [first] = executor.run_all([(SOUND["answer"], SUM)])
    assert asked.run(SOUND["answer"], cache=cache) == first
    assert len(asked.server.asked) == num_asked + 1
    assert (first.tokens, first.usage["answer_generate"].reasoning_tokens) == (13, 2)
    assert executor.report()["reasoning_tokens"] == 2


def test_equal_pairs_are_run_once(asked):
    asked.say = lambda _, __, seed: f"<answer>{seed}</answer>"
    executor = asked.make()
    outcomes = executor.run_all([(SOUND["answer"], SUM), (TESTED, SUM), (SOUND["answer"], SUM)])
    outcomes += executor.run_all([(TESTED, SUM)])
    assert outcomes[0] is outcomes[2]
    assert outcomes[1] is outcomes[3]
    report = executor.report()
    assert report["outcomes"] == {"value": 2, "policy": 2}
    assert (report["num_runs"], report["num_requests"]) == (2, 1)


def test_a_run_that_failed_by_the_executor_is_tried_again(asked):
    asked.say = lambda *_: Fault(status=500)
    executor = asked.make()
    assert executor.run_all([(SOUND["custom"], SUM)])[0].fault == "executor"
    asked.say = lambda *_: "7"
    assert executor.run_all([(SOUND["custom"], SUM)])[0].value == "7"
    report = executor.report()
    assert report["outcomes"] == {"executor": 1, "value": 1}
    assert report["failed_requests"] == {"server_error": AT_ONCE.max_attempts}


@needs_bubblewrap
@pytest.mark.parametrize(
    ("model", "message"), [(MODEL, "reply is empty"), ("gpt", "`gpt` does not exist")]
)
def test_a_wrong_setting_is_found_before_programs_are_blamed(serve, model, message):
    server = serve(lambda _: Fault(""))
    server.script = [Fault("ready")] if model == MODEL else []
    executor = Executor(ServerModel(ServerSettings(url=server.url, model=model)))
    if model == MODEL:
        asyncio.run(executor.check())
    with pytest.raises(ModelError, match=f"{message}.*served model name"):
        asyncio.run(executor.check())


@needs_bubblewrap
def test_a_refused_extra_ends_the_run_and_is_no_fault_of_a_program(serve):
    server = serve(lambda _: Fault(status=400, body=b"unknown parameter"))
    extras = {"reasoning_effort": "low"}
    executor = Executor(ServerModel(ServerSettings(url=server.url, model=MODEL, extras=extras)))
    with pytest.raises(ModelError, match=r"unknown parameter.*extras: reasoning_effort"):
        executor.run_all([(SOUND["custom"], SUM)])


def test_programs_that_are_given_up_leave_nothing_running(asked):
    asked.say = lambda *_: Fault("x", delay_s=30.0)
    before = read_host_state().children
    operators = {"custom": OPERATORS["custom"], "wrongly_set": wrongly_set}
    executor = asked.make(operators=operators)
    failing = write("return await wrongly_set(problem)")
    with pytest.raises(ConfigError):
        executor.run_all([(SOUND["custom"], SUM), (failing, SUM)])
    assert wait_for_children(before) == frozenset()
    assert executor._outcomes._open == executor._runs._open == {}


def test_draws_do_not_depend_on_which_reply_comes_first(asked):
    """Two equal calls at once, each of which asks equal requests again."""
    source = write(
        "import asyncio",
        "a, b = await asyncio.gather(programmer(problem), programmer(problem))",
        "return f'{a.output} {b.output}'",
    )

    def run(slow):
        seen = []

        def say(_, fields, seed):
            seen.append(seed)
            delay_s = 0.1 if len(seen) == slow else 0.0
            code = "1 // 0" if not fields["feedback"] else str(seed)
            return Fault(f"<code>def solve(): return {code}</code>", delay_s=delay_s)

        asked.say = say
        return asked.run(source).value

    values = {run(slow) for slow in (1, 2)}
    assert len(values) == 1
    assert len(set(str(values.pop()).split())) == 2


class OwnError(Exception):
    """An error that the sandbox does not know."""


async def fails(word: str) -> str:
    """Always fail."""
    raise OwnError(word)


async def wrongly_set(word: str) -> str:
    """Always fail."""
    raise ConfigError(word)


async def lists(word: str) -> list[str]:
    """Return no dataclass."""
    return [word, word]


def test_own_operators_and_their_own_errors(asked):
    given = {"fails": fails, "lists": lists}
    caught = write("try: await fails('so')", "except OperatorError as e: return str(e)")
    assert asked.run(caught, operators=given).value == "OwnError: so"
    outcome = asked.run(write("await fails('so')"), operators=given)
    assert (outcome.fault, outcome.reason) == ("policy", "operator_error")
    assert asked.run(write("return (await lists('x'))[1]"), operators=given).value == "x"
    with pytest.raises(ConfigError, match="so"):
        asked.run(write("await wrongly_set('so')"), operators={"wrongly_set": wrongly_set})


def test_limits_of_one_operator(asked):
    asked.say = lambda *_: Fault("x")
    source = write("for i in range(5): await custom(problem, str(i))", "return '7'")
    for limits, reason in (
        (OperatorLimits(max_calls=4), "calls"),
        (OperatorLimits(max_tokens=40), "tokens"),
        (OperatorLimits(max_characters=10), "operator_error"),
    ):
        outcome = asked.run(source, limits=limits)
        assert (outcome.fault, outcome.reason) == ("policy", reason)
    asked.say = lambda *_: Fault("x", delay_s=1.0)
    outcome = asked.run(source, timeout_s=0.1)
    assert (outcome.fault, outcome.reason) == ("executor", "timeout")


@pytest.mark.parametrize("source", [*SOUND.values(), TESTED])
def test_sound_programs_pass_the_checks_and_run_as_they_were_checked(able, source):
    checked = check_program(source, signatures(OPERATORS))
    assert checked.refusal is None
    problem = CODE if source is TESTED else SUM
    assert able.run_all([(checked.source, problem)])[0].value == problem.ground_truth


def test_a_program_that_passes_the_checks_gathers(able):
    source = "import asyncio\n" + write(
        "a, b = await asyncio.gather(custom(problem, 'x'), answer_generate(problem))",
        "return a.response if a.response == b.answer else 'no'",
    )
    checked = check_program(source, signatures(OPERATORS))
    assert checked.refusal is None
    assert able.run_all([(checked.source, SUM)])[0].value == "7"


class Work:
    """Counts how often it is begun and ended; it waits until it is let go."""

    def __init__(self):
        self.num_begun = self.num_ended = 0
        self.go = asyncio.Event()

    async def do(self):
        self.num_begun += 1
        await self.go.wait()
        self.num_ended += 1
        return self.num_begun


@pytest.mark.parametrize("is_kept", [True, False])
def test_who_asks_meanwhile_shares_and_later_ones_only_what_is_kept(is_kept):
    async def ask() -> tuple[list[int], int]:
        once, work = Once[int](lambda _: is_kept), Work()
        asking = [asyncio.ensure_future(once.get("a", work.do)) for _ in range(3)]
        await asyncio.sleep(0)
        work.go.set()
        return await asyncio.gather(*asking), await once.get("a", work.do)

    assert asyncio.run(ask()) == ([1, 1, 1], 1 if is_kept else 2)


def test_work_is_given_up_with_the_last_who_waits():
    async def ask() -> tuple[int, int, int]:
        once, work = Once[int](lambda _: True), Work()
        asking = [asyncio.ensure_future(once.get("a", work.do)) for _ in range(2)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        work.go.set()
        first = await asking[1]
        work.go.clear()
        late = asyncio.ensure_future(once.get("b", work.do))
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        work.go.set()
        await asyncio.sleep(0.01)
        return first, work.num_begun, work.num_ended

    assert asyncio.run(ask()) == (1, 2, 1)


def test_all_who_wait_hear_of_an_error_and_the_next_tries_again():
    async def ask() -> tuple[list[object], int]:
        once = Once[int](lambda _: True)

        async def fail():
            raise LookupError

        async def succeed():
            return 7

        asking = [once.get("a", fail) for _ in range(2)]
        return await asyncio.gather(*asking, return_exceptions=True), await once.get("a", succeed)

    errors, value = asyncio.run(ask())
    assert [type(error) for error in errors] == [LookupError, LookupError]
    assert value == 7


def test_the_oldest_go_first():
    async def ask() -> list[int]:
        once = Once[int](lambda _: True, max_kept=2)

        async def number(value):
            return value

        for key in ("a", "b", "c"):
            await once.get(key, lambda: number(1))
        return [await once.get(key, lambda: number(2)) for key in ("c", "b", "a")]

    assert asyncio.run(ask()) == [1, 1, 2]


SERVED = (
    "executor={model: {server: {url: 'http://127.0.0.1:8002/v1', model: big, prompt_price: 1, "
    "completion_price: 2}}}"
)


@pytest.mark.parametrize("kind", ["math", "code"])
@pytest.mark.parametrize(("program", "least"), [(DIRECT, 1), (SELF_CONSISTENCY, 6)])
def test_requests_of_a_program_are_counted(program, kind, least):
    assert count_requests(program, kind) == (least, 2 * least)


def test_the_bill_is_told_for_every_rival_and_stage_and_a_stub_has_none():
    small = ("data.num_generated=48", "data.max_test=4", "rivals.num_problems=2")
    config = read_config("workflows", "demo", SERVED, *small)
    examples, _ = choose_examples(config)
    bill = {one.name: one for one in estimate_bill(config, examples)}
    num_test = len(examples["test"])
    assert (bill["direct"].programs, bill["direct"].requests) == (num_test, num_test)
    assert bill["self_consistency"].requests == 6 * num_test
    assert bill["top_by_type"].programs == NUM_VOTERS * num_test
    assert bill["rivals"].programs > 10 * 2 * 3
    grpo = config.grpo
    steps = grpo.max_steps or 4
    assert bill["grpo"].programs >= min(steps, 4) * grpo.prompts_per_step * grpo.group_size
    for one in bill.values():
        assert one.requests <= one.most_requests
        prompts, replies = one.prompt_tokens, one.completion_tokens
        assert one.cost == pytest.approx((prompts + 2 * replies) / 1e6)
    facts = dict(estimate_run(config).facts)
    assert "requests" in facts["executor, self_consistency"]
    assert "cost" in facts["executor, all"]
    free = estimate_run(read_config("workflows", "demo")).facts
    assert not any(name.startswith("executor, ") for name, _ in free)
