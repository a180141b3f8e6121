"""Judges among the rewards of a task: what they are asked, what they pay, what counts of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asked_rows import ASKED, ask_many
from faulty_server import MODEL, Fault, FaultyServer, say
from PIL import Image
from plan_keys import list_changed, read_keys

from groupwise.core import (
    Completion,
    ConfigError,
    Example,
    Message,
    dump_config,
    find_effect,
    list_effects,
    load_config,
    make_example,
    read_picture,
    write_json,
    write_jsonl,
    write_text,
)
from groupwise.inference import check_hosts
from groupwise.judges import Question
from groupwise.pipeline.reward_audit import plan_steps
from groupwise.rewards import Judged, audit_rewards
from groupwise_recipes.task.config import TaskConfig
from groupwise_recipes.task.judging import Judges, open_judges
from groupwise_recipes.task.recipe import recipe
from groupwise_recipes.task.rewards import make_rewards
from groupwise_recipes.task.task import TASK

ONCE = {"retry": {"max_attempts": 1}, "stop": {"max_no_verdict_rate": 1.0}}
RUBRIC = "Question {{question}}, shop {{shop}}, answer {{answer}}. Reply <grade>good|bad</grade>."


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    server = FaultyServer(lambda request: Fault(say("True")))
    yield server
    server.close()


def describe(url: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "generative",
        "server": {"url": url, "model": MODEL},
        "settings": ONCE,
        **more,
    }


def load(folder: Path, rewards: dict[str, Any]) -> TaskConfig:
    write_jsonl(folder / "rows.jsonl", [{**row, "shop": "甲"} for row in ask_many(40)])
    values = {
        "model": {"base": "tiny-qwen2", "max_pixels": 784},
        "data": {"files": "rows.jsonl", "columns": ASKED},
        "answer": {"kind": "labels", "labels": ["好评", "差评"]},
        "rewards": rewards,
        "grpo": {},
    }
    write_json(folder / "task.yaml", values)
    return load_config(TaskConfig, folder / "task.yaml")


def ask(**fields: Any) -> Example:
    return make_example([Message("user", "好吗？")], cluster="c", label="好评", fields=fields)


def judge(part: dict[str, Any]) -> dict[str, Any]:
    return {"correct": 1, "clear": {"kind": "judge", "weight": 0.5, **part}}


def test_a_judge_pays_beside_the_other_rewards(tmp_path: Path, server: FaultyServer) -> None:
    config = load(tmp_path, judge({"judge": describe(server.url)}))
    judges = open_judges(config, tmp_path)
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


def test_a_rubric_of_ones_own_has_labels_with_a_worth(tmp_path: Path, server: FaultyServer) -> None:
    write_text(tmp_path / "judges" / "rubric.txt", RUBRIC)
    write_json(
        tmp_path / "judges" / "judge.yaml",
        describe(server.url, prompt="rubric.txt", tag="grade"),
    )
    server.answer = lambda request: Fault("<grade>bad</grade>")
    part = {"judge": "judges/judge.yaml", "scale": {"good": 1, "bad": 0.25}}
    config = load(tmp_path, judge(part))
    judged = make_rewards(config, open_judges(config, tmp_path)).rewards["clear"]
    assert judged(ask(shop="甲店"), Completion("好评")).value == 0.25
    assert "甲店" in json.dumps(server.asked[0], ensure_ascii=False)
    assert load_config(TaskConfig, dump_config(config)) == config


def test_a_judge_at_a_host_that_nobody_named_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    config = load(tmp_path, judge({"judge": describe("https://judge.example/v1")}))
    with pytest.raises(ConfigError, match=r"--allow-judge judge\.example"):
        check_hosts(config)
    for _ in range(2):  # opening takes settings apart and puts them together again
        with pytest.raises(ConfigError, match=r"--allow-judge judge\.example"):
            open_judges(config, tmp_path)


def test_what_a_judge_cannot_decide_has_no_score_and_is_counted(
    tmp_path: Path, server: FaultyServer
) -> None:
    server.answer = lambda request: Fault(status=500)
    config = load(tmp_path, judge({"judge": describe(server.url)}))
    judges = open_judges(config, tmp_path)
    score = make_rewards(config, judges).rewards["clear"](ask(), Completion("好评"))
    assert score.value is None
    assert score.reason.startswith("no verdict (")
    report = judges.report()
    assert (report["no_verdict_rate"], sum(report["judges"]["clear"]["no_verdicts"].values())) == (
        1.0,
        1,
    )


@pytest.mark.slow
def test_the_audit_tries_a_judge_without_asking_its_model(tmp_path: Path) -> None:
    part = {"judge": describe("http://127.0.0.1:9/v1")}
    config = load(tmp_path, judge(part))
    TASK.prepare(config, tmp_path / "prepare")
    audit = audit_rewards(recipe.rewards().collect(config, tmp_path))
    assert [finding.name for finding in audit.errors] == []
    assert any("judge" in row["name"] and row["num_tried"] for row in audit.to_json()["rows"])


def read(folder: Path, config: TaskConfig) -> dict[str, str]:
    return dict(read_keys(plan_steps(recipe, config, folder / "run")))


def test_a_changed_rubric_or_model_redoes_grpo_and_nothing_before(tmp_path: Path) -> None:
    write_text(tmp_path / "rubric.txt", RUBRIC)
    settings = {"prompt": "rubric.txt", "tag": "grade"}
    part = {"scale": {"good": 1, "bad": 0}}
    given = describe("http://127.0.0.1:9/v1", **settings)
    config = load(tmp_path, judge({**part, "judge": given}))
    before = read(tmp_path, config)
    write_text(tmp_path / "rubric.txt", f"{RUBRIC} Be strict.")
    assert list_changed(before, read(tmp_path, config)) == {"grpo", "audit_rewards"}
    write_text(tmp_path / "rubric.txt", RUBRIC)
    other = {**given, "server": {**given["server"], "model": "another"}}
    changed = read(tmp_path, load(tmp_path, judge({**part, "judge": other})))
    assert list_changed(before, changed) == {"grpo", "audit_rewards"}


def test_weights_of_a_judge_in_this_process_count(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_text(model / "model.safetensors", "1")
    config = load(tmp_path, judge({"judge": {"kind": "logit", "model": str(model)}}))
    before = read(tmp_path, config)
    write_text(model / "model.safetensors", "2")
    assert list_changed(before, read(tmp_path, config)) == {"grpo"}


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("judge.server.url", "harmless"),
        ("judge.server.model", "counts"),
        ("judge.prompt", "counts"),
        ("judge.model", "counts"),
        ("scale", "counts"),
        ("weight", "counts"),
    ],
)
def test_the_address_of_a_judge_is_harmless_and_the_rest_counts(setting: str, kind: str) -> None:
    assert find_effect(list_effects(TaskConfig), f"rewards.clear.{setting}").kind == kind


def test_several_judges_are_counted_together() -> None:
    class Counted:
        version = "v"

        def __init__(self, num_questions: int, num_silent: int) -> None:
            self.counts = {
                "num_questions": num_questions,
                "no_verdicts": {"timeout": num_silent},
            }

        def report(self) -> dict[str, Any]:
            return self.counts

    judges: Any = {"a": Counted(3, 1), "b": Counted(5, 1)}
    report = Judges(judges).report()
    assert (report["judge"], report["num_questions"], report["no_verdict_rate"]) == (
        "a, b",
        8,
        0.25,
    )
    assert Judges({"a": judges["a"]}).report()["version"] != report["version"]


@pytest.mark.parametrize(
    ("name", "part", "words"),
    [
        ("clear", {"judge": {"kind": "rule", "rule": "longer"}}, "a rule judges pairs"),
        ("clear", {"judge": describe("http://a/v1"), "scale": {"good": 1}}, "need a prompt"),
        (
            "clear",
            {"judge": describe("http://a/v1"), "scale": {True: 2}},
            "less than or equal to 1",
        ),
        ("clear", {"judge": describe("http://a/v1"), "wieght": 1}, "did you mean 'weight'"),
        ("clear", {"judge": {"kind": "logit"}}, "needs model or server"),
        ("clear", {"judge": "gone.yaml"}, "cannot read the configuration"),
        ("clear", {}, "rewards.clear.judge: missing"),
        ("correct", {"judge": describe("http://a/v1")}, "a judge needs a name of its own"),
    ],
)
def test_a_judge_that_cannot_be_meant_is_refused(
    tmp_path: Path, name: str, part: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, {"format": 1, name: {"kind": "judge", **part}})
    assert words in str(refused.value)


@pytest.mark.parametrize("sees", [True, False])
def test_pictures_are_shown_to_a_judge_that_is_to_see_them(tmp_path: Path, sees: bool) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    shown = [read_picture(tmp_path / "a.png")]
    example = make_example([Message("user", "?")], cluster="c", label="好评", pictures=shown)
    config = load(tmp_path, judge({"judge": describe("http://a/v1"), "pictures": sees}))
    judged = make_rewards(config).rewards["clear"]
    assert isinstance(judged, Judged)
    asked = judged.ask(example, Completion("好评"))
    assert isinstance(asked, Question)
    assert len(asked.pictures) == sees
