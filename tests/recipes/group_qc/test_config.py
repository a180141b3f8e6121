"""Configs of group_qc: what they refuse, what each step reads, and what is paid."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from group_words import FAIL, PARSER, PASS, QUESTIONS, VERDICTS, make_question
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from plan_keys import (
    list_changed,
    plan,
    read_config,
    read_keys,
    run_stand_ins,
    write_base,
)
from pydantic import ValidationError
from tables import read_tables
from tile_photos import MISSION, list_photos

from groupwise.core import Completion, ConfigError, DataError, write_jsonl
from groupwise.rewards import RewardCase, describe_weights
from groupwise.rewards.audit.audit import audit_rewards
from groupwise.run import predict
from groupwise.run.recipe import find_recipe
from groupwise.run.running import check_recipe
from groupwise.run.steps import StepContext
from groupwise.serving import Request
from groupwise_recipes.group_qc import predictor
from groupwise_recipes.group_qc.predictor import GroupQcPredictor
from groupwise_recipes.group_qc.rewards import GroupRewards, make_rewards
from groupwise_recipes.group_qc.task import TASK

TABLES = read_tables(__file__)
REAL = ("qwen2.5-vl-7b", "qwen3-vl-4b")


RECIPE = find_recipe("group_qc")


def load(name, *overrides):
    return read_config("group_qc", name, *overrides)


@pytest.mark.parametrize("name", REAL)
def test_real_models_pass_a_dry_run_with_the_defaults_of_the_contract(name, tmp_path):
    config, few = load(name), load(name, "data.drawn.num_groups=24")
    preview, other = (check_recipe(RECIPE, one, out=tmp_path / "run") for one in (config, few))
    assert preview.problems == other.problems == []
    facts = dict(preview.facts)
    assert "weights alone take" in facts["memory"]
    assert "teach_stage_a" not in [stage for stage, _, _ in preview.tables[-1].rows]
    num_steps = int(dict(other.facts)["grpo steps"].split()[1])
    assert 0 < num_steps * few.grpo.warmup_share < num_steps
    grpo, lora = config.grpo, config.grpo.trainable.lora
    assert (lora.rank, lora.alpha, lora.last_blocks) == (8, 16, 4)
    assert (grpo.learning_rate, grpo.epochs) == (5e-6, 3)
    assert (grpo.group_size, grpo.max_new_tokens) == (4, 128)
    assert (grpo.temperature, grpo.top_p) == (0.7, 1.0)
    assert grpo.trainable.freeze_vision
    assert grpo.trainable.freeze_aligner
    sampling = config.summaries.sampling
    assert config.model.max_pixels == config.summaries.stream.max_pixels == 786_432
    assert config.summaries.stream.batch_size == 16
    assert (sampling.max_new_tokens, sampling.temperature) == (1024, 0.0)
    assert sampling.repetition_penalty == 1.1
    assert config.rewards.model_dump() == {"label": 1.0, "format": 0.2, "consistency": 0.0}


@pytest.mark.parametrize(("override", "message"), TABLES["a_wrong_config_is_refused"])
def test_a_wrong_config_is_refused(override, message):
    with pytest.raises(ConfigError, match=message):
        load("demo", *([override] if isinstance(override, str) else override))


def test_a_tiny_model_and_what_it_lacks_is_told_by_the_dry_run(tmp_path):
    preview = check_recipe(RECIPE, load("demo", "grpo.max_new_tokens=8"), out=tmp_path / "run")
    assert [line.partition(":")[0] for line in preview.problems] == ["grpo.max_new_tokens"]


def plan_photos(root, run, *overrides):
    return plan("group_qc", run, "tile-tiny", f"data.root={root}", *overrides)


def test_a_rewritten_mission_is_described_and_judged_anew(tmp_path):
    table, base = tmp_path / "missions.yaml", write_base(tmp_path / "base")
    given = (f"model.base={base}", "teach=null", "data.teach_share=0", f"data.missions={table}")

    def read(point):
        text = f"missions: {{BBU接地线检查: {{focus: 接地线, key_points: [{point}]}}}}"
        table.write_text(text, encoding="utf-8")
        return read_keys(plan("group_qc", tmp_path, "demo", *given))

    changed = list_changed(read("两端连接"), read("一端连接"))
    assert changed == {"prepare", "summarize", "stage_b_data"}


def test_a_photo_changed_in_place_redoes_what_read_it(root, tmp_path):
    run = tmp_path / "run"
    run_stand_ins(plan_photos(root, run), run, "prepare")
    again = run_stand_ins(plan_photos(root, run), run, "prepare")
    assert set(again.values()) == {"reused"}
    Image.new("RGB", (32, 32), "white").save(root / list_photos()[3])
    states = run_stand_ins(plan_photos(root, run), run, "prepare")
    redone = {name for name, state in states.items() if state == "run"}
    assert {"prepare", "audit", "teach_stage_a", "summarize", "baselines", "evaluate"} <= redone
    assert {name: states[name] for name in ("sft", "grpo")} == {"sft": "reused", "grpo": "reused"}


def test_photos_behind_a_link_names_that_are_not_unicode_and_labels_elsewhere_count(root, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(root / MISSION, elsewhere)
    (root / MISSION).symlink_to(elsewhere)
    shutil.move(root / "photo_labels.csv", tmp_path / "labels.csv")

    def read():
        return read_keys(plan_photos(root, tmp_path, "data.photo_labels.file=../labels.csv"))

    before = read()
    Image.new("RGB", (32, 32), "white").save(root / list_photos()[3])
    redrawn = read()
    (elsewhere / "审核通过" / b"\xff.jpg".decode("utf-8", "surrogateescape")).write_bytes(b"")
    more = read()
    with (tmp_path / "labels.csv").open("a") as stream:
        stream.write("more.jpg,free\n")
    for one, other in pairwise([before, redrawn, more, read()]):
        assert "prepare" in list_changed(one, other)


def test_verdicts_on_new_groups_name_the_base_behind_the_adapter(root, tmp_path, monkeypatch):
    base, policy = write_base(tmp_path / "base"), tmp_path / "run" / "grpo" / "policy"
    policy.mkdir(parents=True)
    adapter = {"base_model_name_or_path": "../../../base"}
    (policy / "adapter_config.json").write_text(json.dumps(adapter))
    monkeypatch.setattr(predict, "open_policy", lambda *_: None)
    monkeypatch.setattr(predictor, "LocalStream", lambda _: None)
    config = load("tile-tiny", f"data.root={root}")

    def describe():
        return GroupQcPredictor(TASK, config, policy).describe()

    before = describe()
    assert describe() == before
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    assert describe() != before


EARTH, TOTAL = "BBU接地线检查", 1.2
SUMMARIES = {"图片_1": "接地线/未连接×1", "图片_2": "无关图片"}
LINES = st.sampled_from(["通过", "不通过", "", " ", "理由：好", "理由:", "理由: 未见", "其他"])


def make_group(label, name="g"):
    summaries = {"图片_1": "接地线×1/未连接", "图片_2": "无关图片"}
    return make_question(EARTH, ["接地线连接"], summaries, group=name, label=label)


def score(text, label):
    value = make_rewards(GroupRewards(), PARSER).score(make_group(label), Completion(text)).value
    return None if value is None else value * TOTAL


@pytest.mark.parametrize(("text", "total"), TABLES["totals"])
def test_totals(text, total):
    assert score(text, "通过") == pytest.approx(total)


@given(st.one_of(st.text(), st.lists(LINES).map("\n".join)), st.sampled_from(VERDICTS))
def test_totals_are_one_of_four(text, label):
    total = score(text, label)
    assert total is not None
    assert min(abs(total - allowed) for allowed in (0, 0.2, 1.0, 1.2)) < 1e-9


@pytest.mark.parametrize("label", [None, "pass", "合格", ""])
@pytest.mark.parametrize("text", ["通过\n理由：好", "garbage"])
def test_without_a_valid_label_nothing_is_scored(label, text):
    assert score(text, label) is None


@pytest.mark.parametrize(("text", "value"), TABLES["consistency_of_reasons"])
def test_consistency_of_reasons(text, value):
    reward = make_rewards(GroupRewards(), PARSER).rewards["consistency"]
    assert reward(make_group("通过"), Completion(text)).value == value


def test_consistency_is_logged_and_weighs_nothing():
    rewards = make_rewards(GroupRewards(), PARSER)
    found = rewards.score(make_group("通过"), Completion("通过\n理由：图片_9好"))
    assert (found.value, found.breakdown["consistency"]) == (1.0, 0.0)
    told = describe_weights(GroupRewards().model_dump())
    assert told == "label 0.8333, format 0.1667, consistency 0"
    with pytest.raises(ValidationError, match="weight 0"):
        GroupRewards(label=0, format=0)


@pytest.mark.parametrize("consistency", [0.0, 0.2])
def test_the_reward_audit_finds_no_fault(consistency):
    groups = [make_group(VERDICTS[n % 2], str(n)) for n in range(20)]
    audit = audit_rewards(
        RewardCase(make_rewards(GroupRewards(consistency=consistency), PARSER), groups, PARSER)
    )
    assert [finding.name for finding in audit.errors] == []
    # The form sets no limit to a reason; ``grpo.max_new_tokens`` does.
    assert [finding.name for finding in audit.findings] == ["reward/length-is-free"]


def make_line(name, **changes):
    images = [f"{EARTH}/审核通过/{name}/{number}.jpg" for number in (1, 2)]
    known = {"group_id": name, "mission": EARTH, "label": "fail", "images": images}
    return {**known, "per_image": SUMMARIES, **changes}


@pytest.fixture
def asked(monkeypatch):
    for name in ("open_policy", "digest_base"):
        monkeypatch.setattr(predict, name, lambda *_: None)
    return GroupQcPredictor(
        TASK, load("demo", "teach=null", "data={summaries: [a.jsonl]}"), "policy"
    )


def test_lines_are_requests_and_those_that_break_the_contract_are_counted(tmp_path):
    unlabelled = make_line("b")
    del unlabelled["label"]
    wrong = [make_line("c", per_image={"图片_1": "x"}), make_line("d", mission="天线检查")]
    path = tmp_path / "new_stage_a.jsonl"
    write_jsonl(path, [make_line("a"), unlabelled, *wrong])
    requests, drops = TASK.list_requests(load("demo"), path)
    assert [one.id for one in requests] == [f"{EARTH}/审核通过/{name}" for name in "ab"]
    assert [one.row for one in requests] == [{"mission": EARTH, "per_image": SUMMARIES}] * 2
    assert drops.counts == {"unknown mission": 1, "wrong keys": 1}


def test_lines_are_asked_about_as_in_training_even_where_no_photo_can_be(asked, tmp_path):
    question = asked.make_question(
        Request("g", {"mission": EARTH, "per_image": SUMMARIES}), tmp_path
    )
    known = QUESTIONS.ask_of_group(EARTH, SUMMARIES, group="g", label=None)
    assert question.prompt == known.prompt
    assert not question.pictures
    with pytest.raises(DataError, match="cannot describe photos"):
        asked.make_question(Request("g", {"mission": EARTH}, (tmp_path / "a.jpg",)), tmp_path)


@pytest.mark.parametrize(("row", "pictures", "message"), TABLES["what_cannot_be_asked_is_said"])
def test_what_cannot_be_asked_is_said(asked, tmp_path, row, pictures, message):
    request = Request("g", {"mission": EARTH, **row}, tuple(map(Path, pictures)))
    with pytest.raises(DataError, match=message):
        asked.make_question(request, tmp_path)


def test_labelled_lines_are_the_questions_of_training_and_photos_need_a_run_that_saw_some(
    root, tmp_path
):
    def read(path, *overrides):
        context = StepContext(tmp_path, tmp_path, "evaluate", False, ())
        return TASK.read_labelled(load("demo", *overrides), context, path, tmp_path / "data")

    path = tmp_path / "other_stage_a.jsonl"
    passing = make_line("b", label="pass")
    write_jsonl(path, [make_line("a"), passing, make_line("c", label=None), make_line("a")])
    found, drops = read(path)
    first, second = found
    assert (first.cluster, first.label) == ("a", FAIL)
    assert (second.cluster, second.label) == ("b", PASS)
    asked = QUESTIONS.ask_of_group(EARTH, SUMMARIES, group="a", label=FAIL)
    assert (first.prompt, first.fields) == (asked.prompt, asked.fields)
    assert drops.counts == {"no label": 1, "photo group appears twice": 1}
    with pytest.raises(DataError, match="cannot describe photos"):
        read(root, "teach=null", "data={summaries: [a.jsonl]}")


def test_the_prompt_of_a_model_card_is_that_of_stage_b():
    rules, question = TASK.describe_prompt(load("demo"))
    known = QUESTIONS.ask_of_group(EARTH, SUMMARIES, group="g", label=None)
    assert rules == known.prompt[0]
    mission = QUESTIONS.missions[EARTH]
    filled = question.text.replace("{{ mission }}", EARTH)
    filled = filled.replace("{{ key_points }}", "；".join(mission.key_points))
    filled = filled.replace("{{ description }}", SUMMARIES["图片_1"]).replace(
        "…", "图片_2: 「无关图片」"
    )
    asked = known.prompt[1].text.replace("…", "图片_2: 「无关图片」")
    assert json.dumps(filled) == json.dumps(asked)
