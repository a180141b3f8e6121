"""Configs of group_qc: what they refuse, what each step reads, and what is paid."""

import json
import shutil
from pathlib import Path

import pytest
from group_words import FAIL, PARSER, PASS, QUESTIONS, VERDICTS, make_question
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from plan_keys import (
    copy_sources,
    list_changed,
    plan,
    read_config,
    read_keys,
    run_stand_ins,
    write_base,
)
from pydantic import ValidationError
from tables import read_tables
from tile_photos import MISSION, list_photos, write_photos

from groupwise.core import Completion, ConfigError, DataError, load_config, write_jsonl
from groupwise.flow import prediction
from groupwise.pipeline import (
    StepContext,
    check_recipe,
    find_config,
    find_recipe,
    list_configs,
)
from groupwise.rewards import RewardCase, audit_rewards, describe_weights
from groupwise.serving import Request
from groupwise_recipes.group_qc import predictor
from groupwise_recipes.group_qc.predictor import GroupQcPredictor
from groupwise_recipes.group_qc.rewards import GroupRewards, make_rewards
from groupwise_recipes.group_qc.task import TASK

TABLES = read_tables(__file__)
RECIPE = find_recipe("group_qc")
REAL = ("qwen2.5-vl-7b", "qwen3-vl-4b")


def load(name, *overrides):
    return read_config("group_qc", name, *overrides)


def test_the_shipped_configs():
    assert set(list_configs(RECIPE)) == {"demo", "english", "tile-tiny", *REAL}


@pytest.mark.parametrize("name", REAL)
def test_real_models_pass_a_dry_run_with_the_defaults_of_the_contract(name, tmp_path):
    config = load(name)
    preview = check_recipe(RECIPE, config, out=tmp_path / "run")
    assert preview.problems == []
    facts = dict(preview.facts)
    assert "weights alone take" in facts["memory"]
    assert "teach_stage_a" not in [stage for stage, _, _ in preview.tables[-1].rows]
    lora = config.grpo.trainable.lora
    assert (lora.rank, lora.alpha, lora.last_blocks) == (8, 16, 4)
    grpo = config.grpo
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


@pytest.mark.parametrize("name", REAL)
def test_real_models_train_on_24_groups(name, tmp_path):
    config = load(name, "data.drawn.num_groups=24")
    preview = check_recipe(RECIPE, config, out=tmp_path / "run")
    assert preview.problems == []
    num_steps = int(dict(preview.facts)["grpo steps"].split()[1])
    assert 0 < num_steps * config.grpo.warmup_share < num_steps


def test_grpo_may_start_from_the_base(tmp_path):
    config = load("demo", "sft=null", "data.warmup_share=0")
    steps = [step.name for step in RECIPE.plan(config, tmp_path / "run")]
    assert not {"sft", "sft_control"} & set(steps)
    assert "grpo" in steps
    preview = check_recipe(RECIPE, config, out=tmp_path / "run")
    assert preview.problems == []
    assert "sft steps" not in dict(preview.facts)


@pytest.mark.parametrize(("override", "message"), TABLES["a_wrong_config_is_refused"])
def test_a_wrong_config_is_refused(override, message):
    with pytest.raises(ConfigError, match=message):
        load("demo", *([override] if isinstance(override, str) else override))


def test_a_tiny_model_and_what_it_lacks_is_told_by_the_dry_run(tmp_path):
    preview = check_recipe(RECIPE, load("demo", "grpo.max_new_tokens=8"), out=tmp_path / "run")
    assert [line.partition(":")[0] for line in preview.problems] == ["grpo.max_new_tokens"]


LOADING = {"summarize", "baselines", "sft", "grpo", "sft_control", "evaluate"}
"""The steps that load weights, without the one that teaches a tiny model."""


def plan_photos(root, run, *overrides):
    return plan("group_qc", run, "tile-tiny", f"data.root={root}", *overrides)


def read_published(run, base, *overrides):
    given = (f"model.base={base}", "teach=null", "data.teach_share=0")
    return read_keys(plan("group_qc", run, "demo", *given, *overrides))


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


def test_a_photo_behind_a_link_and_a_name_that_is_not_unicode_count(root, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(root / MISSION, elsewhere)
    (root / MISSION).symlink_to(elsewhere)
    before = read_keys(plan_photos(root, tmp_path))
    Image.new("RGB", (32, 32), "white").save(root / list_photos()[3])
    after = read_keys(plan_photos(root, tmp_path))
    assert "prepare" in list_changed(before, after)
    (elsewhere / "审核通过" / b"\xff.jpg".decode("utf-8", "surrogateescape")).write_bytes(b"")
    assert "prepare" in list_changed(after, read_keys(plan_photos(root, tmp_path)))


def test_a_table_of_labels_outside_the_root_counts(root, tmp_path):
    shutil.move(root / "photo_labels.csv", tmp_path / "labels.csv")
    place = "data.photo_labels.file=../labels.csv"
    before = read_keys(plan_photos(root, tmp_path, place))
    with (tmp_path / "labels.csv").open("a") as stream:
        stream.write("more.jpg,free\n")
    assert "prepare" in list_changed(before, read_keys(plan_photos(root, tmp_path, place)))


def test_a_rewritten_mission_is_described_and_judged_anew(tmp_path):
    table = tmp_path / "missions.yaml"
    text = "missions: {BBU接地线检查: {focus: 接地线, key_points: [%s]}}"
    table.write_text(text % "两端连接", encoding="utf-8")
    before = read_published(tmp_path, write_base(tmp_path / "base"), f"data.missions={table}")
    table.write_text(text % "一端连接", encoding="utf-8")
    after = read_published(tmp_path, tmp_path / "base", f"data.missions={table}")
    assert list_changed(before, after) == {"prepare", "summarize", "stage_b_data"}


def test_replaced_weights_redo_every_step_that_loads_them(tmp_path):
    base = write_base(tmp_path / "base")
    before = read_published(tmp_path, base)
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    changed = list_changed(before, read_published(tmp_path, base))
    assert changed == LOADING | {"stage_b_data"}


def test_a_base_that_is_served_is_not_read_by_stage_a(tmp_path):
    served = "summaries.server={url: http://a/v1, model: b}"
    base = write_base(tmp_path / "base")
    before = read_published(tmp_path, base, served)
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    assert "summarize" not in list_changed(before, read_published(tmp_path, base, served))


@pytest.mark.parametrize(("module", "changed"), TABLES["redone_by_code"])
def test_code_that_is_edited_redoes_what_it_decides(root, tmp_path, monkeypatch, module, changed):
    sources = copy_sources(tmp_path / "src", monkeypatch)
    before = read_keys(plan_photos(root, tmp_path))
    with (sources / "groupwise_recipes" / "group_qc" / f"{module}.py").open("a") as stream:
        stream.write("\nEDITED = True\n")
    assert list_changed(before, read_keys(plan_photos(root, tmp_path))) == set(changed)


def test_verdicts_on_new_groups_name_the_base_behind_the_adapter(root, tmp_path, monkeypatch):
    base, policy = write_base(tmp_path / "base"), tmp_path / "run" / "grpo" / "policy"
    policy.mkdir(parents=True)
    adapter = {"base_model_name_or_path": "../../../base"}
    (policy / "adapter_config.json").write_text(json.dumps(adapter))
    monkeypatch.setattr(prediction, "open_policy", lambda *_: None)
    monkeypatch.setattr(prediction, "make_ask", lambda *_: None)
    monkeypatch.setattr(predictor, "LocalBackend", lambda _: None)
    recipe = find_recipe("group_qc")
    path = find_config(recipe, "tile-tiny")
    config = load_config(recipe.load_config_type(), path, overrides=[f"data.root={root}"])

    def describe():
        return predictor.GroupQcPredictor(TASK, config, policy).describe()

    before = describe()
    assert describe() == before
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    assert describe() != before


TOTAL = 1.2
LINES = st.sampled_from(["通过", "不通过", "", " ", "理由：好", "理由:", "理由: 未见", "其他"])


def make_group(label, name="g"):
    summaries = {"图片_1": "接地线×1/未连接", "图片_2": "无关图片"}
    return make_question("BBU接地线检查", ["接地线连接"], summaries, group=name, label=label)


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


def test_a_weight_counts():
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


EARTH = "BBU接地线检查"
SUMMARIES = {"图片_1": "接地线/未连接×1", "图片_2": "无关图片"}


def make_line(name, **changes):
    images = [f"{EARTH}/审核通过/{name}/{number}.jpg" for number in (1, 2)]
    known = {"group_id": name, "mission": EARTH, "label": "fail", "images": images}
    return {**known, "per_image": SUMMARIES, **changes}


@pytest.fixture
def asked(monkeypatch):
    for name in ("open_policy", "make_ask", "digest_base"):
        monkeypatch.setattr(prediction, name, lambda *_: None)
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


def read_labelled(path, config):
    context = StepContext(path.parent, path.parent, "evaluate", False, ())
    found, drops = TASK.read_labelled(config, context, path, path.parent / "data")
    return list(found), drops.counts


def test_labelled_lines_are_the_questions_of_training_and_show_no_photo(tmp_path):
    path = tmp_path / "other_stage_a.jsonl"
    passing = make_line("b", label="pass")
    write_jsonl(path, [make_line("a"), passing, make_line("c", label=None), make_line("a")])
    found, counts = read_labelled(path, load("demo"))
    assert [(one.cluster, one.label) for one in found] == [("a", FAIL), ("b", PASS)]
    asked = QUESTIONS.ask_of_group(EARTH, SUMMARIES, group="a", label=FAIL)
    assert (found[0].prompt, found[0].fields) == (asked.prompt, asked.fields)
    assert counts == {"no label": 1, "photo group appears twice": 1}


def test_photos_are_refused_by_a_run_that_never_saw_any(tmp_path):
    photos = write_photos(tmp_path / "photos")
    with pytest.raises(DataError, match="cannot describe photos"):
        read_labelled(photos, load("demo", "teach=null", "data={summaries: [a.jsonl]}"))


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
