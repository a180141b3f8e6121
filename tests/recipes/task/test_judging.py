"""A task with a judge, with weights of fluency, and with a checker of the user's own."""

import json
from statistics import fmean
from typing import Any

import pytest
from asked_rows import ASKED, ask_many
from click.testing import CliRunner
from faulty_server import MODEL, Fault, say
from PIL import Image
from plan_keys import list_changed, read_keys
from tables import read_tables

from groupwise import core
from groupwise.cli.main import app
from groupwise.core import Completion, ConfigError, Example, Message, Score
from groupwise.data.examples import read_examples
from groupwise.evaluation.metrics import PairedComparison, read_metrics
from groupwise.evaluation.predictions import read_as, read_policies, read_predictions
from groupwise.evaluation.results import read_headline
from groupwise.inference.settings import check_hosts
from groupwise.judges import Question
from groupwise.models.policy import load_policy
from groupwise.own_task.config import TaskConfig
from groupwise.own_task.recipe import recipe
from groupwise.own_task.scoring import Judges
from groupwise.own_task.task import TASK
from groupwise.rewards import Judged, average_log_probs
from groupwise.rewards.audit.audit import audit_rewards
from groupwise.run.rivals import Drawn, show_before, tell_rivals
from groupwise.run.running import plan_steps, run_recipe
from groupwise.run.settings import RivalSettings

TABLES = read_tables(__file__)
ONCE = {"retry": {"max_attempts": 1}, "stop": {"max_no_verdict_rate": 1.0}}
RUBRIC = "Question {{question}}, shop {{shop}}, answer {{answer}}. Reply <grade>good|bad</grade>."


@pytest.fixture
def server(serve):
    return serve(lambda request: Fault(say("True")))


def describe(url, **more):
    return {"kind": "generative", "server": {"url": url, "model": MODEL}, "settings": ONCE, **more}


def load(folder, rewards):
    core.write_jsonl(folder / "rows.jsonl", [{**row, "shop": "甲"} for row in ask_many(40)])
    values = {
        "model": {"base": "tiny-qwen2", "max_pixels": 784},
        "data": {"files": "rows.jsonl", "columns": ASKED},
        "answer": {"kind": "labels", "labels": ["好评", "差评"]},
        "rewards": rewards,
        "grpo": {},
    }
    core.write_json(folder / "task.yaml", values)
    return core.load_config(TaskConfig, folder / "task.yaml")


def ask(**fields: Any) -> Example:
    return core.make_example([Message("user", "好吗？")], cluster="c", label="好评", fields=fields)


def judge(part):
    return {"correct": 1, "clear": {"kind": "judge", "weight": 0.5, **part}}


def test_a_judge_pays_beside_the_other_rewards(tmp_path, server):
    config = load(tmp_path, judge({"judge": describe(server.url)}))
    judges = TASK.judge(config, tmp_path)
    rewards = TASK.rewards(config, judges)
    assert TASK.weigh(config) == {"correct": 1, "clear": 0.5}
    scores = rewards.score_batch([ask(), ask()], [Completion("好评"), Completion("什么")])
    assert [found.value for found in scores] == [1.0, 0.0]
    assert len(server.asked) == 1  # What is no answer is not asked about.
    asked = json.dumps(server.asked[0], ensure_ascii=False)
    assert "好吗？" in asked
    assert "好评" in asked
    report = judges.report()
    assert (report["judge"], report["num_questions"], report["no_verdict_rate"]) == ("clear", 1, 0)


def test_a_rubric_of_ones_own_has_labels_with_a_worth(tmp_path, server):
    core.write_text(tmp_path / "judges" / "rubric.txt", RUBRIC)
    core.write_json(
        tmp_path / "judges" / "judge.yaml", describe(server.url, prompt="rubric.txt", tag="grade")
    )
    server.answer = lambda request: Fault("<grade>bad</grade>")
    part = {"judge": "judges/judge.yaml", "scale": {"good": 1, "bad": 0.25}}
    config = load(tmp_path, judge(part))
    judged = TASK.rewards(config, TASK.judge(config, tmp_path)).rewards["clear"]
    assert judged(ask(shop="甲店"), Completion("好评")).value == 0.25
    assert "甲店" in json.dumps(server.asked[0], ensure_ascii=False)
    assert core.load_config(TaskConfig, core.dump_config(config)) == config


def test_a_judge_at_a_host_that_nobody_named_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    config = load(tmp_path, judge({"judge": describe("https://judge.example/v1")}))
    with pytest.raises(ConfigError, match=r"--allow-judge judge\.example"):
        check_hosts(config)
    for _ in range(2):  # opening takes settings apart and puts them together again
        with pytest.raises(ConfigError, match=r"--allow-judge judge\.example"):
            TASK.judge(config, tmp_path)


def test_what_a_judge_cannot_decide_has_no_score_and_is_counted(tmp_path, server):
    server.answer = lambda request: Fault(status=500)
    config = load(tmp_path, judge({"judge": describe(server.url)}))
    judges = TASK.judge(config, tmp_path)
    score = TASK.rewards(config, judges).rewards["clear"](ask(), Completion("好评"))
    assert score.value is None
    assert score.reason.startswith("no verdict (")
    report = judges.report()
    assert report["no_verdict_rate"] == 1.0
    assert sum(report["judges"]["clear"]["no_verdicts"].values()) == 1


@pytest.mark.slow
def test_the_audit_tries_a_judge_without_asking_its_model(tmp_path):
    part = {"judge": describe("http://127.0.0.1:9/v1")}
    config = load(tmp_path, judge(part))
    TASK.prepare(config, tmp_path / "prepare")
    audit = audit_rewards(recipe.find_rewarded().make_case(config, tmp_path / "prepare"))
    assert [finding.name for finding in audit.errors] == []
    assert any("judge" in row["name"] and row["num_tried"] for row in audit.to_json()["rows"])


def read(folder, config):
    return dict(read_keys(plan_steps(recipe, config, folder / "run")))


def test_a_changed_rubric_or_model_redoes_grpo_and_nothing_before(tmp_path):
    core.write_text(tmp_path / "rubric.txt", RUBRIC)
    settings = {"prompt": "rubric.txt", "tag": "grade"}
    part = {"scale": {"good": 1, "bad": 0}}
    given = describe("http://127.0.0.1:9/v1", **settings)
    config = load(tmp_path, judge({**part, "judge": given}))
    before = read(tmp_path, config)
    core.write_text(tmp_path / "rubric.txt", f"{RUBRIC} Be strict.")
    assert list_changed(before, read(tmp_path, config)) == {"grpo", "audit_rewards"}
    core.write_text(tmp_path / "rubric.txt", RUBRIC)
    other = {**given, "server": {**given["server"], "model": "another"}}
    changed = read(tmp_path, load(tmp_path, judge({**part, "judge": other})))
    assert list_changed(before, changed) == {"grpo", "audit_rewards"}
    model = tmp_path / "model"
    core.write_text(model / "model.safetensors", "1")
    config = load(tmp_path, judge({"judge": {"kind": "logit", "model": str(model)}}))
    before = read(tmp_path, config)
    core.write_text(model / "model.safetensors", "2")
    assert list_changed(before, read(tmp_path, config)) == {"grpo"}


@pytest.mark.parametrize(("setting", "kind"), TABLES["the_address_of_a_judge_is_harmless"])
def test_the_address_of_a_judge_is_harmless_and_the_rest_counts(setting, kind):
    assert core.find_effect(core.list_effects(TaskConfig), f"rewards.clear.{setting}").kind == kind


def test_several_judges_are_counted_together():
    class Counted:
        version = "v"

        def __init__(self, num_questions, num_silent):
            self.counts = {"num_questions": num_questions, "no_verdicts": {"timeout": num_silent}}

        def report(self):
            return self.counts

    judges = {"a": Counted(3, 1), "b": Counted(5, 1)}
    report = Judges(judges).report()
    assert (report["judge"], report["num_questions"]) == ("a, b", 8)
    assert report["no_verdict_rate"] == 0.25
    assert Judges({"a": judges["a"]}).report()["version"] != report["version"]


@pytest.mark.parametrize(("name", "part", "words"), TABLES["a_judge_that_cannot_be_meant"])
def test_a_judge_that_cannot_be_meant_is_refused(tmp_path, name, part, words):
    served = {"judge": describe("http://a/v1")} if part.get("judge") == "SERVED" else {}
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, {"format": 1, name: {"kind": "judge", **part, **served}})
    assert words in str(refused.value)


@pytest.mark.parametrize("sees", [True, False])
def test_pictures_are_shown_to_a_judge_that_is_to_see_them(tmp_path, sees):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    shown = [core.read_picture(tmp_path / "a.png")]
    example = core.make_example([Message("user", "?")], cluster="c", label="好评", pictures=shown)
    config = load(tmp_path, judge({"judge": describe("http://a/v1"), "pictures": sees}))
    judged = TASK.rewards(config).rewards["clear"]
    assert isinstance(judged, Judged)
    asked = judged.ask(example, Completion("好评"))
    assert isinstance(asked, Question)
    assert len(asked.pictures) == sees


CHECKS = """
def exact(example, completion):
    wanted = example.fields["n"]
    return max(0.0, 1 - abs(len(completion.text.split()) - wanted) / wanted)
"""
FLUENT = TABLES["task_fluency"]


def write_task(folder, base, **values):
    path = folder / "task.yaml"
    path.write_text(json.dumps({**base, **values}), encoding="utf-8")
    return core.load_config(TaskConfig, path)


SUM = {"checks.py:exact": 1.0, "fluency": 1.0}
LOWEST = {"both": {"all_of": ["exact", "fluency"]}, "checks.py:exact": 0, "fluency": 0}


@pytest.mark.parametrize(("method", "rewards"), [("lora", SUM), ("full", LOWEST)])
def test_the_untrained_base_reads_answers_by_a_threshold_that_stays(tmp_path, method, rewards):
    rows = [{"topic": topic, "n": n} for topic in ("rain", "bread", "chess") for n in range(3, 18)]
    core.write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "checks.py").write_text(CHECKS)
    config = write_task(
        tmp_path,
        FLUENT,
        rewards=rewards,
        grpo={**FLUENT["grpo"], "learning_rate": 0.05, "trainable": {"method": method}},
    )
    run = tmp_path / "run"
    run_recipe(recipe, config, out=run)
    fixed = core.read_json(run / "fluency" / "threshold.json", dict)
    assert fixed["percentile"] == 5
    assert read_headline(run).title == "Exact and fluent"
    found = {metric.name for metric in read_metrics(run / "evaluate" / "metrics.json")}
    assert {"grpo/good", "grpo/exact", "grpo/fluent", "grpo/fluency", "grpo/reward"} < found
    assert core.read_json(run / "grpo" / "selection.json", dict)["chosen_by"] == "good"
    log = core.read_jsonl(run / "grpo" / "metrics.jsonl")
    assert any(row.get("reward/fluency") is not None for row in log)
    # By the base alone: the policy has changed, and its answers are measured with other weights.
    base = load_policy(run / "prepare" / "base")
    rows = read_predictions(run / "evaluate" / "predictions.jsonl")
    means = average_log_probs(base, [Completion(row.text) for row in rows])
    for row, mean in zip(rows, means, strict=True):
        is_fluent = mean is not None and mean >= fixed["threshold"]
        assert row.scores["fluent"] == float(is_fluent)
        whole = min if rewards is LOWEST else fmean
        parts = row.scores["exact"], row.scores["fluency"]
        assert row.scores["reward"] == pytest.approx(whole(parts))
        assert row.scores["good"] == min(row.scores["exact"], row.scores["fluent"])


@pytest.mark.parametrize(("values", "words"), TABLES["measures_that_cannot_be_combined"])
def test_measures_that_cannot_be_combined_are_refused(tmp_path, values, words):
    with pytest.raises(ConfigError) as refused:
        write_task(tmp_path, FLUENT, **values)
    assert words in str(refused.value)


FOUR_CHECKS = """
def near(example, completion):
    wanted = example.fields["n"]
    return max(0.0, 1 - abs(len(completion.text.split()) - wanted) / wanted)

def exact(example, completion):
    return len(completion.text.split()) == example.fields["n"]

def whole(example, completion):
    return completion.finish_reason == "stop"

def unsure(example, completion):
    return None if example.fields["n"] == 3 else 1.0
"""
CHECKED = TABLES["task_checker"]
MEASURES = {"checks.py:exact": {"title": "Exact length"}, "checks.py:unsure": None}


@pytest.fixture
def folder(tmp_path):
    """Return a folder with rows and functions."""
    topics = ("the sea", "a market", "rain", "bread", "winter", "a library", "the moon", "chess")
    rows = [{"topic": topic, "n": n} for topic in topics for n in range(3, 8)]
    core.write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "checks.py").write_text(FOUR_CHECKS, encoding="utf-8")
    return tmp_path


def ask_words(n):
    return core.make_example([Message("user", f"{n} words")], cluster=str(n), fields={"n": n})


def test_a_task_without_answers_runs_and_its_first_measure_heads_everything(folder):
    config = write_task(
        folder,
        CHECKED,
        measures=MEASURES,
        grpo={**CHECKED["grpo"], "validation": {"every_steps": 1}},
    )
    run = folder / "run"
    run_recipe(recipe, config, out=run)
    assert read_headline(run).title == "Exact length"
    found = {metric.name: metric for metric in read_metrics(run / "evaluate" / "metrics.json")}
    assert {"prompt/exact", "grpo/exact", "grpo/reward", "grpo/unsure"} < found.keys()
    assert not any(name.endswith("/accuracy") for name in found)
    rows = read_predictions(run / "evaluate" / "predictions.jsonl")
    assert {row.label for row in rows} == {None}
    num_sure = sum(row.policy == "grpo" and row.fields["n"] != 3 for row in rows)
    assert found["grpo/unsure"].n == num_sure < found["grpo/exact"].n
    compared = read_as(run / "evaluate" / "comparisons.json", list[PairedComparison])
    assert {one.measure: one.n for one in compared if one.policy_a == "prompt"} == {
        "exact": found["grpo/exact"].n,
        "unsure": num_sure,
        "reward": found["grpo/exact"].n,
    }
    assert core.read_json(run / "grpo" / "selection.json", dict)["chosen_by"] == "exact"
    log = core.read_jsonl(run / "grpo" / "metrics.jsonl")
    looks = [row for row in log if "heldout/exact" in row]
    assert looks
    assert not any("heldout/accuracy" in row for row in looks)
    page = (run / "report.md").read_text(encoding="utf-8")
    assert "## Exact length" in page
    assert "Accuracy" not in page
    answered = CliRunner().invoke(
        app, ["predict", str(run), str(folder / "rows.jsonl"), "--out", str(folder / "a.jsonl")]
    )
    assert answered.exit_code == 0, answered.output
    assert len(core.read_jsonl(folder / "a.jsonl")) == 40


def test_the_rivals_have_the_same_rewards_and_grpos_samples(folder):
    rivals = {"best_of": 3, "demonstrations": 2, "rejection_sampling": True}
    config = write_task(folder, CHECKED, measures=MEASURES, rivals=rivals)
    run = folder / "run"
    run_recipe(recipe, config, out=run)
    policies = read_policies(run)
    names = ["prompt", "demonstrations", "best_of", "rejection", "grpo"]
    assert [one.name for one in policies.listed] == names
    drawn = {name: policies.find(name).budget["num_samples"] for name in ("rejection", "grpo")}
    assert drawn["rejection"] == drawn["grpo"] == 8
    told = f"of {drawn['grpo']:.0f} samples, as many as GRPO drew"
    assert told in policies.find("rejection").note
    assert "3 times the work at answer time" in policies.find("best_of").note
    compared = read_as(run / "evaluate" / "comparisons.json", list[PairedComparison])
    against = {one.policy_a for one in compared if one.measure == "exact"}
    assert against == {*names} - {"grpo"}
    found = {metric.name: metric.value for metric in read_metrics(run / "evaluate/metrics.json")}
    assert found["best_of/reward"] >= found["prompt/reward"]
    shown = core.read_jsonl(run / "baselines" / "demonstrations.jsonl")
    train = {example.id for example in read_examples(run / "prepare" / "train.jsonl")}
    assert len(shown) == 2
    assert {row["id"] for row in shown} <= train
    assert "Rivals that were not run" not in (run / "report.md").read_text(encoding="utf-8")


def test_the_best_of_several_samples_is_the_first_that_earns_most_and_stands_as_a_turn():
    answers = [Completion(text) for text in "abcd"]
    scores = [Score(None), Score(0.5), Score(1.0), Score(1.0)]
    drawn = Drawn(ask_words(3), answers, scores)
    assert (drawn.best.text, drawn.values) == ("c", [-1.0, 0.5, 1.0, 1.0])
    system = Message("system", "Be short.")
    asked, other = (
        core.make_example([system, Message("user", f"{n} words")], cluster=str(n)) for n in (4, 3)
    )
    shown = [Drawn(other, [Completion("one two three")], [Score(1.0)])]
    told = [(turn.role, turn.text) for turn in show_before(asked, shown).prompt]
    assert told == TABLES["demonstrations_stand_as_turns_behind_the_system_and_before_the_question"]
    assert show_before(asked, shown).id == asked.id


def test_the_report_says_which_rivals_were_not_run(folder):
    off = {"best_of": 0, "demonstrations": 0, "rejection_sampling": False}
    config = write_task(folder, CHECKED, rivals=off)
    assert "rejection" not in {stage.name for stage in TASK.stages(config)}
    english, chinese = tell_rivals(RivalSettings(**off), ())
    assert "rivals.best_of" in english.text
    assert "rivals.rejection_sampling: true" in english.text
    assert "rivals.demonstrations" in chinese.text
    assert tell_rivals(RivalSettings(rejection_sampling=True), ()) == []


def test_without_measures_the_weighted_reward_heads_and_its_parts_stand_beside(folder):
    alone = write_task(folder, CHECKED)
    assert [one.name for one in TASK.list_measures(alone)] == ["reward"]
    two = write_task(folder, CHECKED, rewards={"checks.py:near": 3.0, "checks.py:exact": 1.0})
    assert [one.name for one in TASK.list_measures(two)] == ["reward", "near", "exact"]
    [found] = TASK.score_answers(two, folder, [ask_words(4)], [Completion("one two three")])
    assert found == {"reward": pytest.approx(0.75 * 0.75), "near": 0.75, "exact": 0.0}


def test_a_measure_sees_whether_an_answer_was_cut_and_leaves_out_what_it_cannot_score(folder):
    config = write_task(folder, CHECKED, measures=["checks.py:whole", "checks.py:unsure"])
    answers = [Completion("a"), Completion("a", finish_reason="length")]
    found = TASK.score_answers(config, folder, [ask_words(3), ask_words(4)], answers)
    assert [one.get("whole") for one in found] == [1.0, 0.0]
    assert [one.get("unsure") for one in found] == [None, 1.0]
    more = (
        "def much(example, completion): return 7\ndef said(example, answer): return bool(answer)\n"
    )
    (folder / "checks.py").write_text(f"{FOUR_CHECKS}\n{more}")
    config = write_task(folder, CHECKED, measures=["checks.py:said"])
    found = TASK.score_answers(
        config, folder, [ask_words(3)] * 2, [Completion("yes"), Completion("?")]
    )
    assert [one["said"] for one in found] == [1.0, 0.0]
    config = write_task(folder, CHECKED, measures=["checks.py:much"])
    with pytest.raises(core.RewardError, match="much"):
        TASK.score_answers(config, folder, [ask_words(3)], [Completion("a")])
