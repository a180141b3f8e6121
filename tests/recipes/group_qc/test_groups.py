"""Groups of group_qc: read from folders and records, divided, ordered, and held out."""

import json
from collections import Counter
from pathlib import Path

import pytest
from group_words import FAIL, PARSER, PASS, QUESTIONS, WORDS, make_question
from hypothesis import given
from hypothesis import strategies as st
from plan_keys import read_config
from scenes import copy_scene, draw_scene
from tables import read_tables
from tile_photos import NUM_GROUPS, TEXTS, list_photos, name_defect, write_table

from groupwise.core import ConfigError, DataError, read_json, read_jsonl, write_text
from groupwise.data import near
from groupwise.data.examples import write_examples
from groupwise.run import training
from groupwise.run.steps import StepContext
from groupwise_drawn.cabinets import CABINET_MISSIONS
from groupwise_recipes.group_qc.data_stages import audit_photos, report_orders
from groupwise_recipes.group_qc.groups import SPLITS, TEACH, prepare_groups, read_groups
from groupwise_recipes.group_qc.missions import Mission, load_missions
from groupwise_recipes.group_qc.recipe import recipe
from groupwise_recipes.group_qc.records import load_records
from groupwise_recipes.group_qc.stage_b import find_orders, give_orders, try_orders
from groupwise_recipes.group_qc.verdicts import OBEYED
from groupwise_recipes.group_qc.words import fill_in

TABLES = read_tables(__file__)


def load(root, *overrides):
    return read_config("group_qc", "tile-tiny", f"data.root={root}", *overrides)


def prepare(config, folder):
    """Return the groups of each split, and the rows that teach Stage A."""
    prepare_groups(config, folder)
    return read_groups(config, folder), read_jsonl(folder / "descriptions.jsonl")


def test_every_group_is_in_one_split_and_photos_of_training_groups_teach_their_own_texts(
    root, tmp_path
):
    splits, rows = prepare(load(root), tmp_path)
    sizes = {name: len(groups) for name, groups in splits.items()}
    assert sizes == {"warmup": 0, "train": 10, "validation": 2, "test": 8, TEACH: 0}
    ids = [group.group_id for name in SPLITS for group in splits[name]]
    assert len(ids) == len(set(ids)) == 2 * NUM_GROUPS
    for groups in (splits["train"], splits["validation"], splits["test"]):
        assert {group.label for group in groups} == {"pass", "fail"}
    photos = [path for group in splits["train"] for path in group.photos]
    assert [row["photo"] for row in rows] == [path.relative_to(root).as_posix() for path in photos]
    assert {row["description"] for row in rows} == set(TEXTS.values())
    assert all(row["description"] == TEXTS[name_defect(row["photo"])] for row in rows)


def test_groups_that_only_teach_are_used_for_nothing_else(root, tmp_path):
    splits, rows = prepare(load(root, "data.teach_share=0.2"), tmp_path)
    assert {row["group_id"] for row in rows} == {group.group_id for group in splits[TEACH]}
    assert len(splits[TEACH]) == 4


def test_a_photo_changed_in_place_changes_the_rows_of_its_group(root, tmp_path):
    splits, _ = prepare(load(root), tmp_path / "before")
    group = splits["test"][0]
    group.photos[0].write_bytes(group.photos[-1].read_bytes() + b"\0")
    changed, _ = prepare(load(root), tmp_path / "after")
    before, after = ([g for name in SPLITS for g in found[name]] for found in (splits, changed))
    assert [a.key for a, b in zip(before, after, strict=True) if a != b] == [group.key]
    assert [len(g.digests) for g in after] == [len(g.photos) for g in after]


@pytest.mark.parametrize(("lines", "message"), TABLES["a_table_that_cannot_be_used_is_one"])
def test_a_table_that_cannot_be_used_is_one_sentence(root, tmp_path, lines, message):
    path = root / "photo_labels.csv"
    path.unlink()
    if isinstance(lines, list):
        write_table(root, lines)
    elif lines:
        path.write_bytes(lines.encode("gbk"))
    with pytest.raises(DataError, match=message) as caught:
        prepare_groups(load(root), tmp_path / "prepare")
    assert "\n" not in str(caught.value)


def test_groups_that_share_a_photo_are_on_one_side_and_are_told(root, tmp_path):
    photos = list_photos()
    for number in range(0, len(photos) - 4, 4):
        (root / photos[number + 2]).write_bytes((root / photos[number]).read_bytes())
    config = load(root)
    prepare(config, tmp_path)
    side = {row["group_id"]: row["split"] for row in read_jsonl(tmp_path / "groups.jsonl")}
    names = [Path(photo).parent.name for photo in photos]
    pairs = [(names[n + 2], names[n]) for n in range(0, len(photos) - 4, 4)]
    assert len(side) == 2 * NUM_GROUPS
    assert all(side[a] == side[b] for a, b in pairs)
    audit = audit_photos(config, tmp_path)
    assert not [one for one in audit.findings if one.level == "error"]
    [told] = [one for one in audit.findings if one.name == "joined_groups"]
    assert told.message.startswith(f"{len(pairs)} group ids share photos")


@pytest.mark.parametrize("action", ["drop", "join"])
def test_groups_with_photos_that_look_alike_are_apart_from_the_test(root, tmp_path, action):
    photos = [root / photo for photo in list_photos()]
    for number, photo in enumerate(photos):
        draw_scene(photo, number)
    copy_scene(photos[0], photos[-1])
    photos[5].write_bytes(photos[5].read_bytes()[:200])
    # So few groups could not be joined at all.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near, "MAX_JOINED_SHARE", 0.2)
        prepare_groups(load(root, f"data.near_duplicates={action}"), tmp_path / "prepare")
    side = {row["group_id"]: row["split"] for row in read_jsonl(tmp_path / "prepare/groups.jsonl")}
    first, last = photos[0].parent.name, photos[-1].parent.name
    if action == "join":
        assert len(side) == 2 * NUM_GROUPS
        assert side[first] == side[last]
    else:
        source = read_json(tmp_path / "prepare" / "source.json", dict)
        counts = source["drops"]["counts"]
        assert len(side) + sum(counts.values()) // 2 == 2 * NUM_GROUPS
        assert side.get(first) == side.get(last) or len({first, last} & set(side)) == 1


def test_a_dry_run_counts_what_is_used_and_what_is_not(root):
    (root / "notes.txt").write_text("photos of January")
    preview = recipe.preview(load(root))
    facts = dict(preview.facts)
    assert preview.tables[0].rows == [("all", str(root), "20", "100.0%")]
    assert facts["files"] == "40 of 42 used; 2 x outside a group's folder"


@pytest.mark.parametrize(("override", "words"), TABLES["what_stops_the_loading_is_a_problem"])
def test_what_stops_the_loading_is_a_problem_of_the_dry_run(root, override, words):
    override = override if override.startswith("data.") else f"data={override}"
    problems = recipe.preview(load(root, override)).problems
    assert len(problems) == 1
    assert words in problems[0]


MISSION = "BBU接地线检查"


def make_record(name="a", **changes):
    folder = f"{MISSION}/审核通过/{name}"
    return {
        "group_id": name,
        "mission": MISSION,
        "label": "pass",
        "images": [f"{folder}/1.jpg", f"{folder}/2.jpg"],
        "per_image": {"图片_1": "接地线×1", "图片_2": "无关图片"},
        **changes,
    }


def load_lines(folder, *lines, has_photos=False):
    path = folder / "x_stage_a.jsonl"
    texts = (one if isinstance(one, str) else json.dumps(one) for one in lines)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    found = load_records([path], QUESTIONS.missions, WORDS, root=folder, has_photos=has_photos)
    assert found.num_files == len(found.groups) + found.drops.total == len(lines)
    return found


def test_a_group_is_what_its_line_says_and_with_a_root_its_photos_must_be_there(tmp_path):
    failing = make_record("b", label="fail", timestamp="2025")
    found = load_lines(tmp_path, make_record(), failing)
    assert [(one.group_id, one.label, len(one.photos)) for one in found.groups] == [
        ("a", "pass", 2),
        ("b", "fail", 2),
    ]
    assert found.records == (make_record(), failing)
    assert found.groups[0].key == f"{MISSION}/审核通过/a"
    for image in make_record()["images"]:
        (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / image).touch()
    found = load_lines(tmp_path, make_record(), failing, has_photos=True)
    assert found.drops.counts == {"photo is not there": 1}
    assert all(path.is_file() for path in found.groups[0].photos)


TWICE = json.dumps(make_record("b"), ensure_ascii=False).replace('"图片_2":', '"图片_1":')


@pytest.mark.parametrize(("line", "reason", "where"), TABLES["a_broken_line_is_dropped"])
def test_a_broken_line_is_dropped_and_counted(tmp_path, line, reason, where):
    line = TWICE if line == "TWICE" else line
    line = line if isinstance(line, str) else make_record(**{"name": "b", **line})
    found = load_lines(tmp_path, make_record(), line)
    [drop] = found.drops.rows
    assert drop.reason == reason
    assert drop.where.startswith("x_stage_a.jsonl:2 ")
    assert where in drop.where


@given(st.permutations([1, 2, 3]), st.integers(1, 4))
def test_only_every_line_once_and_in_order_is_taken(tmp_path_factory, order, num_photos):
    images = [f"m/l/b/{number}.jpg" for number in range(num_photos)]
    per_image = {f"图片_{number}": "x" for number in order}
    record = make_record("b", images=images, per_image=per_image)
    found = load_lines(tmp_path_factory.mktemp("records"), make_record(), record)
    assert (len(found.groups) == 2) == (order == [1, 2, 3] and num_photos == 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": None}, "x_stage_a.jsonl has no photo group that can be used; got 1 x no label"),
        (
            {"mission": "天线检查"},
            "x_stage_a.jsonl names a mission that is not in the mission table",
        ),
        (None, "cannot read"),
    ],
)
def test_what_cannot_be_used_at_all_is_one_sentence(tmp_path, changes, message):
    path = tmp_path / "x_stage_a.jsonl"
    if changes is not None:
        path.write_text(json.dumps(make_record(**changes)), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_records([path], QUESTIONS.missions, WORDS, root=tmp_path, has_photos=False)


MISSIONS = ("BBU接地线检查", "BBU安装方式检查", "BBU线缆布放要求", "挡风板安装检查")
SORTED = [
    make_question(
        mission, ["要点"], {"图片_1": f"机柜×{n}"}, group=f"{mission}{label}{n}", label=label
    )
    for mission in MISSIONS
    for label, num_groups in (("通过", 12), ("不通过", 6))
    for n in range(num_groups)
]


def draw(folder, monkeypatch, *, seed, num):
    """Run the GRPO step without a model; return what its held-out check was given."""
    overrides = [f"seed={seed}", f"evaluation.num_heldout_items={num}"]
    config = read_config("group_qc", "demo", *overrides)
    for name, examples in (("train", SORTED[:4]), ("validation", SORTED)):
        write_examples(folder / "stage_b_data" / f"{name}.jsonl", examples)
    found = []
    monkeypatch.setattr(training, "open_policy", lambda *_: None)
    monkeypatch.setattr(training, "train_grpo", lambda *_, check_heldout, **__: check_heldout())
    monkeypatch.setattr(training, "check_heldout", lambda *given, run: found.extend(given[2]))
    monkeypatch.setattr(training, "keep_policy", lambda *_: None)
    [step] = [one for one in recipe.plan(config, folder) if one.name == "grpo"]
    context = StepContext(folder, folder / "grpo", "grpo", False, step.uses, config=step.config)
    step.run(context)
    return found


def test_the_held_out_check_has_its_share_of_every_mission_and_label_by_the_seed(
    tmp_path, monkeypatch
):
    found = draw(tmp_path, monkeypatch, seed=0, num=24)
    counts = Counter((one.fields["task_type"], one.label) for one in found)
    assert counts == {(m, label): n for m in MISSIONS for label, n in (("通过", 4), ("不通过", 2))}
    assert found == [one for one in SORTED if one in found]
    assert draw(tmp_path, monkeypatch, seed=0, num=24) == found
    assert draw(tmp_path, monkeypatch, seed=1, num=24) != found
    assert draw(tmp_path, monkeypatch, seed=0, num=96) == SORTED


ORDERS = [fill_in(order, verdict=PASS) for order in WORDS.orders]


def make_group(label, *, note=""):
    summaries = {"图片_1": "BBU×1", "图片_2": f"接地线/未连接×1{note}"}
    return make_question("检查", ["接地线连接"], summaries, group="QC-1", label=label)


PLAIN = ("线缆/布放不规则×2", "标签/写有“BBU-1”×1", "线缆通过孔洞×1", "指示灯/亮×1", "无关图片")


@pytest.mark.parametrize(
    ("text", "is_order"),
    [*((f"接地线×1，{order}", True) for order in ORDERS), *((text, False) for text in PLAIN)],
)
def test_orders_are_found_in_descriptions(text, is_order):
    found = find_orders({"图片_1": "BBU×1", "图片_2": text}, WORDS)
    assert found == (["图片_2"] if is_order else [])


def test_the_order_stands_inside_the_marks_of_the_last_description():
    for example in give_orders([make_group(FAIL)] * len(ORDERS), WORDS):
        *before, last = example.prompt[-1].text.splitlines()
        assert before == make_group(FAIL).prompt[-1].text.splitlines()[:-1]
        assert last.startswith("图片_2: 「接地线/未连接×1，")
        assert PASS in last
        assert last.count("「") == last.count("」") == 1


def obey(questions):
    """Answer in turn: as the order says, not at all, as if there were no order."""
    assert all(PASS in example.prompt[-1].text.splitlines()[-1] for example in questions)
    return [PARSER.write_reply(PASS, "如描述"), "", PARSER.write_reply(FAIL, "未连接")]


def test_only_groups_rightly_judged_to_fail_can_be_turned():
    groups = [make_group(label) for label in (FAIL, PASS, FAIL, FAIL, FAIL)]
    replies = [PARSER.write_reply(verdict, "未连接") for verdict in (FAIL, FAIL, PASS, FAIL, FAIL)]
    scores = try_orders(obey, groups, replies, PARSER)
    assert scores == [{OBEYED: 1.0}, {}, {}, {OBEYED: 1.0}, {OBEYED: 0.0}]
    right = [PARSER.write_reply(PASS, "好")]
    assert try_orders(pytest.fail, [make_group(PASS)], right, PARSER) == [{}]


def test_the_audit_names_descriptions_that_read_like_orders():
    rows = {"train": [make_group(FAIL)], "test": [make_group(FAIL, note=f"，{ORDERS[0]}")]}
    [finding] = report_orders(rows, WORDS)
    assert (finding.level, finding.name) == ("warning", "orders_in_descriptions")
    assert "1 description" in finding.message
    assert ORDERS[0] in json.dumps(finding.to_json(), ensure_ascii=False)
    assert report_orders({"train": rows["train"]}, WORDS) == []


SPEC = ("BBU安装方式检查（正装）", "BBU接地线检查", "BBU线缆布放要求", "挡风板安装检查")


def test_a_file_adds_to_the_missions_of_the_contract_and_a_table_stands_instead(tmp_path):
    table = load_missions()
    assert table.names[:4] == SPEC == CABINET_MISSIONS
    assert all(table[name].focus and table[name].key_points for name in SPEC)
    write_text(
        tmp_path / "more.yaml",
        "missions:\n"
        "  天线抱杆检查: {focus: 抱杆, key_points: [抱杆须垂直]}\n"
        "  BBU接地线检查: {focus: 新的关注, key_points: [一, 二]}\n",
    )
    more = load_missions(tmp_path / "more.yaml")
    assert more.names == (*table.names, "天线抱杆检查")
    assert more["BBU接地线检查"].key_points == ("一", "二")
    assert more["挡风板安装检查"] == table["挡风板安装检查"]
    own = {"天线抱杆检查": Mission(focus="抱杆", key_points=("抱杆须垂直",))}
    assert load_missions(own).missions == own


def test_an_unknown_mission_is_refused_with_the_nearest_name():
    table = load_missions()
    table.require(SPEC)
    with pytest.raises(DataError, match=r"did you mean 'BBU安装方式检查（正装）'"):
        table.require([*SPEC, "BBU安装方式检查(正装)"])
    with pytest.raises(DataError, match=r"^stage A .*did you mean '挡风板安装检查'") as raised:
        table.require(["天线", "挡风板检查", "天线"], where="stage A")
    assert str(raised.value).count("天线") == 1
    with pytest.raises(DataError):
        table["天线"]
    assert "天线" not in table


@pytest.mark.parametrize(("text", "named"), TABLES["a_broken_table_is_refused"])
def test_a_broken_table_is_refused(tmp_path, text, named):
    write_text(tmp_path / "broken.yaml", text)
    with pytest.raises(ConfigError, match=named):
        load_missions(tmp_path / "broken.yaml")
