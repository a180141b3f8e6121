"""What a policy of workflows decides, and its config."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_keys import read_config
from tables import read_tables
from workflow_problems import PROBLEMS

from groupwise.core import dump_config, write_jsonl
from groupwise.judges import NoVerdict, Verdict
from groupwise.rewards import ChoiceParser, NumberParser
from groupwise.run.recipe import find_recipe
from groupwise.sandbox import Limits
from groupwise_recipes.workflows.agreement import Opinions, count_agreement
from groupwise_recipes.workflows.deciding import Decider, extract_answer, make_decidable
from groupwise_recipes.workflows.problem_sets import Problem
from groupwise_recipes.workflows.problems import SPLITS, ask_about_problem
from groupwise_recipes.workflows.task import TASK

TABLES = read_tables(__file__)


class Judge:
    """Says what it is told to, and keeps what it was asked."""

    name, version, labels = "judge", "v", ("True", "False")

    def __init__(self, says):
        self.says = says
        self.asked = []

    async def judge(self, question):
        self.asked.append(question.texts)
        if self.says is None:
            return NoVerdict("empty", "nothing", "v")
        shares = {name: float(name == self.says) for name in self.labels}
        return Verdict(self.says, 1.0, shares, "v")

    def report(self):
        return {"asked": len(self.asked)}


def make(kind, truth, **named):
    values = {"id": "1", "source": "made", "problem": "What?", "cluster": "c"}
    return Problem(problem_type=kind, ground_truth=truth, **(values | named))


MATHS = make("math", "1,000")
CHOICE = make("qa", "B", options=("red", "blue", "green"))
WORDS = make("qa", "the blue whale", answers=("Balaenoptera musculus",))
CODE = make(
    "code",
    "def add(a, b):\n    return a + b",
    entry_point="add",
    public_tests=("assert add(1, 1) == 2",),
    hidden_tests=("assert add(2, 3) == 5", "assert add(-1, 1) == 0"),
)
HALF = make("math", r"\frac{1}{2}")
RULED = {"MATHS": MATHS, "CHOICE": CHOICE, "WORDS": WORDS, "CODE": CODE, "HALF": HALF}


def told(**counts):
    return {**count_agreement([]).to_json(), **counts}


def decide(problem, answer, *, mode="rules_first", says=None):
    judge = None if says is None else Judge(says if says != "nothing" else None)
    decider = Decider(mode, judge, limits=Limits())
    return decider.decide([(problem, answer)])[0], decider


@pytest.mark.parametrize(("problem", "answer", "value"), TABLES["rules_decide"])
def test_rules_decide(problem, answer, value):
    found, _ = decide(RULED[problem], answer)
    assert (found.value, found.by) == (value, "rule")


def test_public_tests_do_not_decide():
    passes_public = "def add(a, b):\n    return 2"
    assert decide(CODE, passes_public)[0].value == 0.0
    assert "add(1, 1)" not in str(make_decidable(CODE).fields)


def test_where_words_are_partly_right_or_others_the_judge_decides():
    found, _ = decide(WORDS, "a whale, blue and large")
    assert found.by == "rule"
    assert found.value is not None
    assert 0 < found.value < 1
    for problem, answer, says in (
        (WORDS, "a whale, blue and large", "True"),
        (WORDS, "a whale, blue and large", "False"),
        (WORDS, "elephant", "False"),
        (make("qa", "yes"), "Yes, it is.", "True"),
    ):
        found, decider = decide(problem, answer, says=says)
        assert (found.value, found.by) == (float(says == "True"), "judge")
        if problem is WORDS:
            [asked] = decider.judge.asked
            assert asked["reference"] == "the blue whale / Balaenoptera musculus"


def test_a_judge_is_not_asked_where_a_rule_decides():
    for problem, answer in ((MATHS, "1001"), (CHOICE, "A"), (CODE, "x = 1")):
        found, decider = decide(problem, answer, says="True")
        assert (found.value, found.by) == (0.0, "rule")
        assert not decider.judge.asked
    found, decider = decide(WORDS, "Blue whale.", says="False")
    assert (found.value, found.by) == (1.0, "rule")
    assert not decider.judge.asked


def test_a_judge_alone_decides_and_rules_are_compared_with_it():
    found, decider = decide(MATHS, "1001", mode="judge_only", says="True")
    assert (found.value, found.by) == (1.0, "judge")
    decider.decide([(CHOICE, "B"), (CHOICE, "A")])
    assert decider.judge.asked[1]["reference"] == "B: blue", "the text of the right option"
    assert decider.report()["agreement"] == {
        "math": told(num_asked=1, num_verdicts=1, num_both=1, num_judge_only=1),
        "qa": told(num_asked=2, num_verdicts=2, num_both=2, num_agreed=1, num_judge_only=1),
    }
    with pytest.raises(ValueError, match="judge"):
        Decider("judge_only", limits=Limits())


@pytest.mark.parametrize("mode", ["rules_first", "judge_only"])
def test_rules_and_judge_are_compared_whatever_the_mode(mode):
    decider = Decider(mode, Judge("False"), limits=Limits())
    pairs = [(MATHS, "1000"), (MATHS, "1"), (WORDS, "blue whale"), (WORDS, "a whale"), (CODE, "x")]
    found = decider.compare(pairs)
    assert found == [Opinions(rule, 0.0) for rule in (1.0, 0.0, 1.0, None, 0.0)]
    assert not decider.compared  # what was rewarded is counted elsewhere
    assert count_agreement(found).to_json() == told(
        num_asked=5, num_verdicts=5, num_both=4, num_agreed=2, num_rule_only=2
    )
    decider.judge = Judge(None)
    assert decider.compare(pairs[:1]) == [Opinions(1.0, None)]
    assert Decider(limits=Limits()).compare(pairs) == []


VALUES = st.sampled_from([None, 0.0, 1.0])


@given(st.lists(st.builds(Opinions, VALUES, VALUES)))
def test_counts_of_agreement_add_up(opinions):
    found = count_agreement(opinions)
    assert found.num_asked == len(opinions)
    assert found.num_both == found.num_agreed + found.num_judge_only + found.num_rule_only
    assert found.num_both <= found.num_verdicts <= found.num_asked
    turned = count_agreement(Opinions(one.judge, one.rule) for one in opinions)
    assert (turned.num_agreed, turned.num_both) == (found.num_agreed, found.num_both)
    assert turned.num_judge_only == found.num_rule_only


@pytest.mark.parametrize("mode", ["rules_first", "judge_only"])
def test_no_verdict_is_no_value(mode):
    found, decider = decide(WORDS, "a whale, blue and large", mode=mode, says="nothing")
    assert (found.value, found.by) == (None, None)
    assert decider.report()["agreement"] == {"qa": told(num_asked=1)}


def test_answers_of_all_types_are_decided_in_order():
    pairs = [(CODE, "x = 1"), (MATHS, "1000"), (WORDS, "blue whale"), (CHOICE, "A"), (MATHS, "2")]
    found = Decider(limits=Limits()).decide(pairs)
    assert [one.value for one in found] == [0.0, 1.0, 1.0, 0.0, 0.0]


@given(st.text())
def test_what_is_extracted_stands_in_the_text(text):
    said = extract_answer(text)
    assert said in text
    assert said == said.strip()


LEADS = [
    "",
    "Answer",
    "answer: ",
    "The answer is ",
    "So, the final answer is: ",
    "Thus ",
    "答案是",
    " ",
]
INTRODUCED = st.sampled_from(LEADS)


@given(INTRODUCED, st.text(), st.sampled_from(["", ".", " 。", "...", " or 5"]))
def test_nothing_is_chosen_from_a_text(lead, text, end):
    whole = (lead + text + end).strip()
    said = extract_answer(lead + text + end)
    rest = whole.removesuffix(".").removesuffix("。").rstrip()
    assert whole.endswith(said) or rest.endswith(said)
    assert bool(said) == bool(whole.strip(".。 ")) or said == whole


@given(INTRODUCED, st.text("Answer isMe!.: 7", min_size=1))
def test_extraction_takes_nothing_from_what_the_rule_for_words_gives(lead, text):
    reference = f"{lead}{text} x"
    assert decide(make("qa", reference), reference)[0].value == 1.0
    assert decide(make("qa", f"{text} x"), f"The answer is {text} x.")[0].value == 1.0


@given(INTRODUCED, st.text("ABC ().:b", max_size=8))
def test_extraction_turns_no_choice_that_the_rule_has_read(lead, text):
    read = ChoiceParser(num_options=3).parse(lead + text).label
    if read is not None:
        assert decide(CHOICE, lead + text)[0].value == float(read == "B")


@given(INTRODUCED, st.integers(-9999, 9999), st.sampled_from(["", ".", " or 5", "\n5"]))
def test_extraction_turns_no_number_that_the_rule_has_read(lead, number, more):
    text = f"{lead}{number}{more}"
    read = NumberParser().parse(text).label
    if read is not None:
        found = decide(make("math", str(number)), text)[0].value
        assert found == float(float(read) == number)


@given(INTRODUCED, st.text(min_size=1), st.sampled_from(["True", "False"]))
def test_extraction_decides_nothing_for_a_judge_who_reads_the_whole_answer(lead, text, says):
    found, decider = decide(WORDS, lead + text, mode="judge_only", says=says)
    assert (found.value, found.by) == (float(says == "True"), "judge")
    assert decider.judge.asked[0]["answer"] == lead + text


RECIPE = find_recipe("workflows")


@pytest.fixture
def config(tmp_path):
    """Return the source's config on made problems."""
    for split in SPLITS:
        rows = [one.model_copy(update={"id": f"{split}/{one.id}"}) for one in PROBLEMS]
        write_jsonl(tmp_path / f"{split}.jsonl", map(dump_config, rows))
    return read_config("workflows", "qwen2.5-7b", f"data.mix={tmp_path}")


def test_the_sources_setting_can_start_and_the_policy_is_told_what_it_needs(config):
    preview = RECIPE.preview(config)
    assert preview.problems == []
    facts = dict(preview.facts)
    assert facts["executor"] == "gpt-oss-120b at http://127.0.0.1:8002/v1"
    assert "4 prompts x 6 completions" in facts["grpo steps"]
    assert (config.grpo.max_steps, config.grpo.heldout_every_steps) == (500, 10)
    assert config.judge is not None
    assert config.judge.model is None
    for problem in PROBLEMS:
        text = ask_about_problem(config, problem).prompt[0].text
        for part in (problem.problem, "code_generate(", "`await`"):
            assert part in text
        assert text.endswith(f": {problem.entry_point or 'none'}")


def test_a_prompt_has_no_unknown_place_and_is_optimised_for_a_policy_that_there_is():
    with pytest.raises(Exception, match=r"prompt: .*answer"):
        read_config("workflows", "qwen2.5-7b", "prompt='{{ problem }} {{ answer }}'")
    gepa = "gepa={model: {server: {url: 'http://127.0.0.1:9/v1', model: m}}, policy: sft}"
    with pytest.raises(Exception, match=r"gepa\.policy sft needs a warm-up"):
        read_config("workflows", "qwen2.5-7b", gepa)
    assert read_config("workflows", "demo", gepa).gepa is not None


def test_whatever_is_rewarded_is_measured_by_rules_first(monkeypatch, tmp_path):
    class Scorer:
        """Keeps who decides, and scores nothing."""

        def __init__(self, config, run):
            del run
            self.mode = config.reward.mode

        def score_all(self, pairs):
            measured.append(self.mode)
            return []

    measured = []
    monkeypatch.setattr("groupwise_recipes.workflows.opening.open_scorer", Scorer)
    overrides = ["reward.mode=judge_only", "judge={}"]
    config = read_config("workflows", "demo", *overrides)
    assert vars(TASK.judge(config, tmp_path / "grpo"))["mode"] == "judge_only"
    assert TASK.read_answers(config, tmp_path, [], []) == []
    assert measured == ["rules_first"]
