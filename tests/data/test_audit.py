import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from groupwise.core import (
    ConfigError,
    DataError,
    Example,
    Message,
    Picture,
    make_example,
    read_picture,
)
from groupwise.data.audit import (
    DataAudit,
    TokenBudget,
    audit_data,
    list_near_examples,
    render_audit,
    write_audit,
)
from groupwise.data.examples import DropLog

Draw = Callable[..., Path]


def item(text: str, *paths: Path, **fields: Any) -> Example:
    given_fields = {"cluster": text, "label": "on-task", **fields}
    pictures = [read_picture(path) for path in paths]
    return make_example([Message("user", text)], pictures=pictures, **given_fields)


def name_findings(audit: DataAudit) -> dict[str, tuple[str, int]]:
    return {finding.name: (finding.level, finding.count) for finding in audit.findings}


def find(audit: DataAudit, name: str) -> tuple[str, ...]:
    return next(finding.where for finding in audit.findings if finding.name == name)


def balanced(prefix: str, num: int = 2) -> list[Example]:
    return [
        item(f"{prefix}{number}", label=("on-task", "off-task")[number % 2])
        for number in range(num)
    ]


def test_sound_data_has_no_findings(tmp_path: Path, draw_picture: Draw) -> None:
    splits = {
        split: [
            item(
                f"{split} {number}",
                draw_picture(tmp_path / f"{split}{number}.png", number=number + offset),
                label=("on-task", "off-task")[number % 2],
            )
            for number in range(2)
        ]
        for split, offset in (("train", 1), ("test", 5))
    }
    audit = audit_data(splits, drops=DropLog(), num_rows=4)
    assert audit.findings == ()
    assert audit.splits["train"]["num_pictures"] == 2
    assert audit.splits["train"]["labels"] == {"off-task": 1, "on-task": 1}


def test_a_cluster_in_two_splits_is_an_error() -> None:
    splits = {
        "train": [item("a", cluster="s1"), item("b", cluster="s2", label="off-task")],
        "test": [item("c", cluster="s1"), item("d", cluster="s3", label="off-task")],
    }
    audit = audit_data(splits)
    assert name_findings(audit) == {"cluster_in_two_splits": ("error", 1)}
    assert find(audit, "cluster_in_two_splits") == ("s1 in train and test",)
    assert [finding.name for finding in audit.errors] == ["cluster_in_two_splits"]


def test_an_example_in_two_splits_is_an_error_and_twice_in_one_a_warning() -> None:
    train, test = balanced("a"), balanced("b")
    audit = audit_data({"train": [*train, train[0]], "test": [*test, train[1]]})
    names = name_findings(audit)
    assert names["example_in_two_splits"] == ("error", 1)
    assert names["repeated_example"] == ("warning", 1)
    assert find(audit, "repeated_example") == (f"train: {train[0].id}",)


def test_the_same_input_with_two_labels_is_a_warning() -> None:
    audit = audit_data({"train": [item("a", label="on-task"), item("a", label="off-task")]})
    assert name_findings(audit) == {"contradicting_labels": ("warning", 2)}


def test_the_same_pictures_at_other_places_are_another_input() -> None:
    left, right = (Picture(Path(f"{name}.png"), name) for name in ("left", "right"))
    orders = [(left, "or", right), (right, "or", left), (left, right, "or")]
    rows = [
        make_example([Message("user", parts)], cluster=str(number), label=str(number % 2))
        for number, parts in enumerate(orders)
    ]
    assert "contradicting_labels" not in name_findings(audit_data({"train": rows}, near=()))
    other = make_example(rows[0].prompt, cluster="g", label="1")
    findings = name_findings(audit_data({"train": [*rows, other]}, near=()))
    assert findings["contradicting_labels"] == ("warning", 2)


def test_pictures_of_later_turns_are_compared(tmp_path: Path, draw_picture: Draw) -> None:
    first, near = draw_picture(tmp_path / "a.png"), draw_picture(tmp_path / "b.jpg", quality=80)

    def show(text: str, path: Path) -> Example:
        prompt = [Message("user", "?"), Message("assistant", "!")]
        return make_example([*prompt, Message("user", [text, read_picture(path)])], cluster=text)

    for other, name in ((first, "picture_in_two_splits"), (near, "near_duplicate_pictures")):
        audit = audit_data({"train": [show("x", first)], "test": [show("y", other)]})
        assert name_findings(audit)[name][1] == 1


def test_the_same_bytes_in_two_splits_are_an_error(tmp_path: Path, draw_picture: Draw) -> None:
    first = draw_picture(tmp_path / "a.png")
    copy = Path(shutil.copy(first, tmp_path / "copy.png"))
    splits = {
        "train": [*balanced("a"), item("x", first)],
        "test": [*balanced("b"), item("y", copy)],
    }
    audit = audit_data(splits)
    assert name_findings(audit) == {"picture_in_two_splits": ("error", 1)}
    same_split = audit_data({"train": [*splits["train"], item("y", copy)]})
    assert name_findings(same_split) == {"picture_in_two_clusters": ("info", 1)}


def test_a_near_copy_in_another_split_is_a_warning(tmp_path: Path, draw_picture: Draw) -> None:
    first = draw_picture(tmp_path / "a.png")
    near = draw_picture(tmp_path / "b.jpg", quality=80)
    other = draw_picture(tmp_path / "c.png", number=5)
    train = [*balanced("a"), item("x", first, cluster="x")]
    test = [*balanced("b"), item("y", near, cluster="y"), item("z", other, cluster="z")]
    audit = audit_data({"train": train, "test": test})
    assert name_findings(audit) == {"near_duplicate_pictures": ("warning", 1)}
    (place,) = find(audit, "near_duplicate_pictures")
    assert "b.jpg is like train: " in place
    assert audit_data({"train": [*train, *test]}).findings == ()
    write_audit(audit, tmp_path)
    near_ids = {example.id for example in test if example.cluster == "y"}
    assert list_near_examples(tmp_path, test, split="test") == near_ids
    assert list_near_examples(tmp_path, train, split="train") == set()


def test_a_picture_that_is_gone_is_an_error(tmp_path: Path, draw_picture: Draw) -> None:
    path = draw_picture(tmp_path / "a.png")
    splits = {"train": [item("x", path)]}
    path.unlink()
    with pytest.raises(DataError, match="cannot decode"):
        audit_data(splits)


def test_a_task_in_two_splits_is_worth_knowing() -> None:
    splits = {
        split: [
            item(f"{split}{label}", label=label, fields={"task": "Play"})
            for label in ("on-task", "off-task")
        ]
        for split in ("train", "test")
    }
    assert name_findings(audit_data(splits)) == {"task_in_two_splits": ("info", 1)}


@pytest.mark.parametrize(
    ("labels", "findings"),
    [
        (["on-task"] * 5, {"one_label": ("warning", 5)}),
        (["on-task"] * 9 + ["off-task"], {"unbalanced_labels": ("warning", 9)}),
        (["on-task"] * 8 + ["off-task"] * 2, {}),
        (["on-task", "off-task", None], {"unlabelled_examples": ("warning", 1)}),
        ([None] * 3, {}),
        ([], {"empty_split": ("error", 0)}),
    ],
)
def test_labels(labels: list[str | None], findings: Mapping[str, tuple[str, int]]) -> None:
    test = [item(f"t{number}", label=label) for number, label in enumerate(labels)]
    assert name_findings(audit_data({"train": balanced("a"), "test": test})) == findings


def test_clusters_and_labels_are_counted() -> None:
    examples = [
        item(f"{cluster}{number}", cluster=cluster, label=label)
        for cluster, labels in {"a": "xxy", "b": "yy", "c": "x"}.items()
        for number, label in enumerate(labels)
    ]
    summary = audit_data({"train": examples}).splits["train"]
    assert summary == {
        "num_examples": 6,
        "num_clusters": 3,
        "num_pictures": 0,
        "labels": {"x": 3, "y": 3},
        "cluster_sizes": (1, 2, 3),
        "tokens": {},
    }


def count_by_text(example: Example) -> int:
    return int(example.prompt[-1].text)


def number_items(*lengths: int) -> list[Example]:
    return [item(str(length), label="xy"[length % 2]) for length in lengths]


def test_lengths_are_summarised_against_the_budget() -> None:
    audit = audit_data(
        {"train": number_items(*range(1, 201))},
        budget=TokenBudget(max_prompt_tokens=199),
        count_tokens=count_by_text,
    )
    tokens = {"min": 1, "median": 100, "p90": 180, "p99": 198, "max": 200}
    assert audit.splits["train"]["tokens"] == tokens
    assert name_findings(audit) == {"over_budget": ("warning", 1)}


def test_a_budget_that_more_than_one_percent_exceed_is_an_error_unless_allowed() -> None:
    splits = {"train": number_items(*range(1, 201)), "test": number_items(300, 301, 302)}
    for allowed, level in ((False, "error"), (True, "warning")):
        audit = audit_data(
            {**splits, "train": splits["train"][:100]},
            budget=TokenBudget(max_prompt_tokens=256, allow_longer=allowed),
            count_tokens=count_by_text,
        )
        assert name_findings(audit) == {"over_budget": (level, 3)}
        [said] = [one.message for one in audit.findings if one.name == "over_budget"]
        assert said.endswith(
            "They are used whole." if allowed else "or set allow_longer or drop_longer."
        )
        assert find(audit, "over_budget") == tuple(example.id for example in splits["test"])
    exact = audit_data(
        {"train": splits["train"]},
        budget=TokenBudget(max_prompt_tokens=198),
        count_tokens=count_by_text,
    )
    assert name_findings(exact) == {"over_budget": ("warning", 2)}


def test_a_budget_needs_a_way_to_count() -> None:
    with pytest.raises(ConfigError, match="needs count_tokens"):
        audit_data({"train": balanced("a")}, budget=TokenBudget(max_prompt_tokens=1))


@pytest.mark.parametrize(
    ("num_drops", "num_rows", "name", "level"),
    [
        (1, 100, "rows_dropped", "info"),
        (2, 100, "rows_dropped", "warning"),
        (1, None, "rows_dropped", "warning"),
        (3, 2, "rows_do_not_add_up", "error"),
    ],
)
def test_dropped_rows_are_told(num_drops: int, num_rows: int | None, name: str, level: str) -> None:
    drops = DropLog()
    for number in range(num_drops):
        drops.add("missing picture", f"index.jsonl:{number}")
    audit = audit_data({"train": balanced("a")}, drops=drops, num_rows=num_rows)
    assert name_findings(audit) == {name: (level, num_drops)}
    assert find(audit, name)[0] == "missing picture: index.jsonl:0"


@pytest.mark.parametrize(
    ("num_rows", "is_sound"), [(0, False), (1, True), (400, True), (None, True)]
)
def test_examples_come_from_rows(num_rows: int | None, is_sound: bool) -> None:
    audit = audit_data({"train": balanced("a", 400)}, num_rows=num_rows)
    assert audit.findings == () if is_sound else "400 examples" in audit.errors[0].message
    assert audit_data({"train": []}, num_rows=0).errors[0].name == "empty_split"
    drops = DropLog()
    drops.add("missing task", "rows.jsonl:1")
    assert audit_data({"train": balanced("a")}, drops=drops, num_rows=1).errors != ()


def test_texts_of_two_splits_are_told(tmp_path: Path, draw_picture: Draw) -> None:
    picture = draw_picture(tmp_path / "a.png", number=1)
    train = [item("Is it 1＋1?", cluster="a"), item("other", label="off-task")]
    test = [
        item("is  it 1+1?", cluster="t", fields={"row": 1}),
        item("Is it 1+1?", picture, label="off-task"),
    ]
    audit = audit_data({"train": train, "test": test})
    assert name_findings(audit) == {"text_in_two_splits": ("warning", 1)}
    assert find(audit, "text_in_two_splits") == ("is it 1+1? in train and test",)
    apart = audit_data({"train": [*train, *test]})
    assert name_findings(apart) == {}


def test_errors_are_refused_all_at_once_and_warnings_are_not() -> None:
    twice = [item("same", cluster="a"), item("same", cluster="a")]
    audit = audit_data({"train": twice, "test": [item("t", cluster="a")], "validation": []})
    assert len(audit.errors) > 1
    with pytest.raises(DataError, match=rf"found {len(audit.errors)} error\(s\)") as caught:
        audit.refuse_errors()
    for finding in audit.errors:
        assert f"{finding.name}: {finding.message}" in str(caught.value)
    warned = audit_data({"train": [item("a"), item("b")], "test": [*balanced("t")]})
    assert warned.warnings
    warned.refuse_errors()


def test_errors_come_first_and_places_are_limited() -> None:
    train = [item(f"a{n}", cluster=f"s{n}", label="on-task") for n in range(30)]
    test = [item(f"b{n}", cluster=f"s{n}", label="xy"[n % 2]) for n in range(30)]
    audit = audit_data({"train": train, "test": test})
    levels = [finding.level for finding in audit.findings]
    assert levels == ["error", "warning"]
    assert (audit.findings[0].count, len(audit.findings[0].where)) == (30, 20)
    assert len(audit.warnings) == 1


def test_both_files_are_written_and_say_the_same(tmp_path: Path) -> None:
    drops = DropLog()
    drops.add("missing picture", "index.jsonl:3 (a|b<c>.png)")
    splits = {"train": number_items(5, 6), "测试": number_items(6, 7)}
    audit = audit_data(
        splits,
        drops=drops,
        num_rows=5,
        budget=TokenBudget(max_prompt_tokens=6),
        count_tokens=count_by_text,
    )
    assert write_audit(audit, tmp_path / "audit") is audit
    written = json.loads((tmp_path / "audit" / "audit.json").read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(audit.to_json()))
    assert written["findings"][0]["name"] == "cluster_in_two_splits"
    page = (tmp_path / "audit" / "audit.md").read_text(encoding="utf-8")
    assert page == render_audit(audit)
    assert "3 error(s), 1 warning(s)" in page
    assert "tokens: min 6, median 6, p90 7, p99 7, max 7" in page
    assert "Rows read: 5; used: 4." in page
    assert "a\\|b&lt;c>.png" in page
    assert "- missing picture: 1" in page
    for finding in audit.findings:
        assert f"**{finding.level}** `{finding.name}`" in page
