import textwrap
from pathlib import Path
from typing import Any

import pytest
from corpora import read_cases
from counting_judge import CountingJudge

from groupwise.core import (
    Completion,
    Example,
    JudgeError,
    Message,
    RewardError,
    Score,
    make_example,
)
from groupwise.judges import NoVerdict, Question, Verdict
from groupwise.rewards import (
    FunctionReward,
    Judged,
    LabelMatch,
    LabelParser,
    RewardSet,
    digest_functions,
)

CASES = read_cases(__file__)


def write(folder: Path, **files: str) -> Path:
    for name, code in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(code), encoding="utf-8")
    return folder / "rewards.py"


def load(file: Path, function: str = "f", **named: Any) -> FunctionReward:
    given = {"kind": "other", "messages": False, "values": (0.0, 1.0), **named}
    return FunctionReward(f"{file}:{function}", **given)


def ask(number: int, **fields: Any) -> Example:
    fields = {"_row": f"行.csv:{number}", "number": number, **fields}
    return make_example([Message("user", f"q{number}")], cluster="g", label="好", fields=fields)


def score(reward: FunctionReward, *texts: str) -> list[float | None]:
    examples = [ask(number) for number, _ in enumerate(texts, start=1)]
    return [found.value for found in reward.score_batch(examples, [Completion(t) for t in texts])]


OURS = """
    from groupwise.core import Score

    def f(example, completion):
        if not completion.text:
            return None
        return {"好": 1.0, "对": True, "分": Score(0.25, "so")}.get(completion.text, 0)
    """
TRL = """
    def f(completions, number, label, **columns):
        assert set(columns) >= {"prompts", "_row"}
        return [n / 4 if text == right else None
                for text, n, right in zip(completions, number, label)]
    """


def test_a_function_of_an_example_and_a_completion_is_a_reward(tmp_path: Path):
    scores = score(load(write(tmp_path, rewards=OURS)), "好", "对", "分", "x", "")
    assert scores == [1, 1, 0.25, 0, None]


def test_a_function_of_lists_is_a_reward(tmp_path: Path):
    reward = load(write(tmp_path, rewards=TRL), kind="truth")
    assert score(reward, "好", "x", "好") == [0.25, None, 0.75]
    assert (reward.name, reward.kind) == ("f", "truth")


def test_a_function_of_an_example_and_an_answer_is_a_reward(tmp_path: Path):
    code = """
    def f(example, answer):
        if answer.confidence is None:
            return None
        return answer.confidence * (answer.label == example.label)
    def g(example, answer):
        return 1 / (example.fields["number"] - 1)
    def h(example, answer):
        return len(answer.text)
    """
    file, parser = write(tmp_path, rewards=code), LabelParser(labels=("好", "坏"))
    reward = load(file, parser=parser)
    texts = "好, 置信度: 0.5", "坏, 置信度: 0.5", "好", "好坏"
    assert score(reward, *texts) == [0.5, 0.0, None, 0.0]
    found = reward.score_batch([ask(1)], [Completion("好坏")])[0]
    assert (found.invalid, "more than one label" in found.reason) == (True, True)
    with pytest.raises(RewardError, match=r"g failed on 行\.csv:1 in rewards\.py line 7 .ZeroDiv"):
        score(load(file, "g", parser=parser), "好")
    with pytest.raises(RewardError, match=r"no attribute 'text'.*name it completion for the text"):
        score(load(file, "h", parser=parser), "好")


def test_a_file_that_changes_while_it_is_imported_is_loaded_again(tmp_path: Path):
    code = """
    from pathlib import Path
    Path(__file__).write_text("def f(example, completion): return 0.25")
    def f(example, completion): return 0.5
    """
    file = write(tmp_path, rewards=code)
    assert [score(load(file), "a") for _ in range(2)] == [[0.5], [0.25]]


def test_messages_and_another_range_are_understood(tmp_path: Path):
    code = "def f(completions, **_):\n    return [len(c[0]['content']) - 2 for c in completions]\n"
    reward = load(write(tmp_path, rewards=code), messages=True, values=(-2.0, 2.0))
    assert score(reward, "abcd", "ab", "") == [1.0, 0.5, 0.0]


def test_functions_of_trl_are_given_what_trl_would_give_them(tmp_path: Path):
    code = """
    from trl.rewards import (
        accuracy_reward, get_soft_overlong_punishment, think_format_reward
    )

    short = get_soft_overlong_punishment(10, 5)

    def f(prompts, completions, completion_ids, number, label, **_):
        assert (prompts, completions, label) == (["q1"], ["two"], ["好"])
        assert (completion_ids, number) == ([[5, 6]], [1])
        return [None]

    def mine(completions, label, **columns):
        return accuracy_reward(completions=completions, solution=label)
    """
    file = write(tmp_path, rewards=code)
    short = load(file, "short", values=(-1.0, 0.0))
    found = [short(ask(1), Completion("x", tuple(range(n)))).value for n in (5, 8, 12)]
    assert found == pytest.approx([1.0, 0.4, 0.0])
    assert load(file)(ask(1), Completion("two", (5, 6))) == Score(None, "f gave no value")
    form = load(file, "think_format_reward", messages=True)
    assert score(form, "<think>a</think>b", "b") == [1.0, 0.0]
    right = load(file, "mine", messages=True)
    example = make_example([Message("user", "1 + 1?")], cluster="g", label="$2$")
    scores = right.score_batch([example] * 2, [Completion(rf"\\boxed{{{n}}}") for n in (2, 3)])
    assert [found.value for found in scores] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("returned", "found"), CASES["values_are_mapped_from_their_range_or_refused"]
)
def test_values_are_mapped_from_their_range_or_refused(tmp_path: Path, returned: str, found):
    code = f"import numpy as np\ndef f(completions, **_):\n    return {returned}\n"
    reward = load(write(tmp_path, rewards=code), values=(-1.0, 1.0))
    if isinstance(found, str):
        with pytest.raises(RewardError, match=found):
            score(reward, "x")
    else:
        assert score(reward, "x") == [found]


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (0.0, 0.0), (0.0, float("inf"))])
def test_a_range_that_is_none_is_refused(tmp_path: Path, bounds: tuple[float, float]):
    with pytest.raises(RewardError, match="not a range"):
        load(write(tmp_path, rewards=TRL), values=bounds)


@pytest.mark.parametrize("code", CASES["an_exception_names_row_file_and_line"])
def test_an_exception_names_row_file_and_line(tmp_path: Path, code: str):
    reward = load(write(tmp_path, rewards=code))
    with pytest.raises(RewardError) as raised:
        score(reward, "a", "b", "c")
    assert str(raised.value) == (
        "the reward f failed on 行.csv:2 in rewards.py line 3 "
        "(ZeroDivisionError: division by zero)."
    )


def test_an_exception_in_a_module_beside_is_placed_there(tmp_path: Path):
    file = write(
        tmp_path,
        rewards="import words_of_mine\ndef f(example, completion):\n    return words_of_mine.g()\n",
        words_of_mine="def g():\n    raise ValueError('好')\n",
    )
    with pytest.raises(RewardError, match=r"行\.csv:1 in words_of_mine\.py line 2 .ValueError: 好"):
        score(load(file), "a")


def test_a_failure_of_many_together_says_so(tmp_path: Path):
    code = "def f(completions, **columns):\n    return 1 / (2 - len(completions))\n"
    code += "def g(completions, **columns):\n    return [1] if len(completions) == 1 else 1 / 0\n"
    with pytest.raises(RewardError, match=r"f failed on 行\.csv:1 \("):
        score(load(write(tmp_path, rewards=code)), "a")
    with pytest.raises(RewardError, match=r"g failed on 2 completions together, the first of 行"):
        score(load(write(tmp_path, rewards=code), "g"), "a", "b")


@pytest.mark.parametrize("returned", ["2", "'a'", "-0.1", "[1]"])
def test_what_is_no_number_in_range_is_refused_with_its_row(tmp_path: Path, returned: str):
    reward = load(write(tmp_path, rewards=f"def f(example, completion):\n    return {returned}\n"))
    with pytest.raises(RewardError, match=r"failed on 行\.csv:1 .*outside its range"):
        score(reward, "a")


@pytest.mark.parametrize(("code", "words"), CASES["a_file_without_the_function_is_refused"])
def test_a_file_without_the_function_is_refused(tmp_path: Path, code: str | None, words: str):
    file = tmp_path / "rewards.py" if code is None else write(tmp_path, rewards=code)
    with pytest.raises(RewardError, match=words):
        load(file)


def test_the_digest_is_that_of_the_code_and_of_what_it_imports_beside(tmp_path: Path):
    code = "import json\nimport words_of_mine\ndef f(example, completion):\n    return 1\n"
    file = write(tmp_path, rewards=code, words_of_mine="from others import A\n", others="A = 1\n")
    write(tmp_path, unused="A = 1\n")
    first = digest_functions(file)
    write(tmp_path, rewards=f"# a comment\n{code}", unused="A = 2\n")
    assert digest_functions(file) == first
    for changed in ({"rewards": code.replace("1", "2")}, {"others": "A = 2\n"}):
        write(tmp_path, rewards=code, others="A = 1\n")
        assert digest_functions(file) == first
        write(tmp_path, **changed)
        assert digest_functions(file) != first


def test_packages_beside_count_as_well(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine", __init__="", words="A = 1\n")
    file = write(
        tmp_path, rewards="from mine.words import A\ndef f(example, completion):\n    return A\n"
    )
    assert score(load(file), "a") == [1.0]
    first = digest_functions(file)
    write(tmp_path / "mine", words="A = 0\n")
    assert digest_functions(file) != first
    assert score(load(file), "a") == [0.0]


def test_two_tasks_may_have_modules_of_one_name(tmp_path: Path):
    code = "from words_of_mine import A\ndef f(example, completion):\n    return A\n"
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        file = write(tmp_path / str(number), rewards=code, words_of_mine=f"A = {number}\n")
        assert score(load(file), "a") == [number]


PAYS = {"True": 1.0, "False": 0.0}


class Echo(CountingJudge):
    """Decides what the answer says."""

    name, labels = "echo", ("True", "False")

    def decide(self, question):
        said = question.texts["answer"]
        if said == "late":
            return NoVerdict("timeout", "no reply within 60 s", self.version)
        if said == "stop":
            raise JudgeError("too many questions had no verdict")
        sure = {"yes": 0.9, "no": 0.2, "flip": 0.6}[said]
        label = "True" if sure > 0.5 else "False"
        return Verdict(
            label,
            0.0 if said == "flip" else max(sure, 1 - sure),
            {"True": sure, "False": 1 - sure},
            self.version,
            is_flipped=said == "flip",
        )


def ask_judged(example, completion):
    if not completion.text:
        return Score(0.0, "empty answer", invalid=True)
    return Question({"question": example.prompt[-1].text, "answer": completion.text})


def make_rows(*texts):
    example = make_example([Message("user", "?")], cluster="g", label="yes")
    return [example] * len(texts), [Completion(text) for text in texts]


def test_a_batch_is_judged_at_once_and_in_order():
    judge = Echo()
    scores = Judged(judge, ask=ask_judged, pay=PAYS).score_batch(
        *make_rows("yes", "", "late", "no", "flip")
    )
    assert [score.value for score in scores] == [0.9, 0.0, None, pytest.approx(0.2), None]
    assert [score.invalid for score in scores] == [False, True, False, False, False]
    assert "timeout" in scores[2].reason
    assert judge.most_open == 4


def test_a_judge_that_stops_stops_the_scoring():
    with pytest.raises(JudgeError, match="too many"):
        Judged(Echo(), ask=ask_judged, pay=PAYS).score_batch(*make_rows("yes", "stop"))


def test_a_function_may_say_what_a_verdict_pays():
    reward = Judged(Echo(), ask=ask_judged, pay=lambda verdict, *_: verdict.probabilities["False"])
    (example,), (completion,) = make_rows("no")
    assert reward(example, completion).value == pytest.approx(0.8)


@pytest.mark.parametrize("pay", [{"True": 1.0}, {**PAYS, "tie": 0.5}, {"True": 2.0, "False": 0.0}])
def test_every_label_is_paid(pay):
    with pytest.raises(RewardError, match="every label"):
        Judged(Echo(), ask=ask_judged, pay=pay)


def test_in_a_set_the_judge_gets_the_whole_batch_and_cannot_outvote_the_truth():
    judge = Echo()
    judged = Judged(judge, ask=ask_judged, pay=PAYS)
    match = LabelMatch(LabelParser(labels=("yes", "no")))
    with pytest.raises(RewardError, match="outvote"):
        RewardSet({"truth": (match, 0.3), "judge": (judged, 0.5)})
    rewards = RewardSet({"truth": (match, 0.6), "judge": (judged, 0.4)})
    scores = rewards.score_batch(*make_rows("yes", "no"))
    assert [score.value for score in scores] == [pytest.approx(0.96), pytest.approx(0.08)]
    assert judge.most_open == 2
