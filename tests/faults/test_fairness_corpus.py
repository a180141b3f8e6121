"""What two runs may differ in: every mutation of a clean pair has its verdict.

A row changes the second of two runs (``change``, ``remove``, by ``FILE:KEY/KEY``), or ``both``; a
beta is always compared unless it says otherwise. ``told`` names what the gate lists: nothing else
may confound, and no remark beside these may be made.
"""

from pathlib import Path
from typing import Any

import pytest
from corpora import each_row
from run_folders import LABELS, PARTS, VARIED, make_predictions, make_run, write_weights

from groupwise.core import GroupwiseError, append_jsonl, write_json
from groupwise.evaluation.fairness import FairnessVerdict, check_fairness, read_facts
from groupwise.models.identity import digest_weights

Row = dict[str, Any]


@each_row("fairness")
def test_the_gate_says_what_the_corpus_says(row: Row, tmp_path: Path) -> None:
    runs = make_runs(row, tmp_path)
    if row["expected"] == "refused":
        with pytest.raises(GroupwiseError) as caught:
            judge(row, runs)
        assert all(phrase in str(caught.value) for phrase in row["told"])
        return
    verdict = judge(row, runs)
    found = {f"{one.aspect}/{one.key}": one.kind for one in verdict.differences}
    remarks = {one.values["reason"]: one.level for one in verdict.remarks}
    reasons = {name for name, kind in found.items() if kind == "confounding"} | set(remarks)
    assert {**found, **remarks}.items() >= row["told"].items(), row["why"]
    assert reasons == {n for n, kind in row["told"].items() if kind not in ("harmless", "intended")}
    fair = "with note" if remarks else "comparable"
    assert (fair if verdict.is_fair else "not comparable") == row["expected"], row["why"]
    for one in verdict.differences:
        assert one.explain() != one.explain("zh")
    for one in verdict.remarks:
        assert one.values["why"]["en"] != one.values["why"]["zh"]


def judge(row: Row, runs: list[Path]) -> FairnessVerdict:
    policies = [*row.get("policies", []), None, None, None]
    facts = [read_facts(run, policy=name) for run, name in zip(runs, policies, strict=False)]
    split = {"split": row["split"]} if "split" in row else {}
    return check_fairness(facts, factors=row.get("factors", ["grpo.beta"]), **split)


def make_runs(row: Row, folder: Path) -> list[Path]:
    """Write the runs that a row is about."""
    both = {**row.get("both", {}), **dict.fromkeys(row.get("both_removed", []), ...)}
    own = {**row.get("change", {}), **dict.fromkeys(row.get("remove", []), ...)}
    varied = VARIED if row.get("is_varied", True) else {}
    bases = [{}, {}]
    if "bases" in row:
        bases = [make_base(row["bases"], side, folder / f"base {side}") for side in ("one", "two")]
    one = make_run(folder / "one", {**both, **bases[0]}, weights=row.get("both_weights"))
    if row.get("same_folder"):
        return [one, folder / "one/../one"]
    two = make_run(
        folder / "other/two",
        {**varied, **both, **own, **bases[1]},
        answers=row.get("answers", "two"),
        predictions=make_answers(row),
        weights=row.get("weights"),
    )
    for later in row.get("later", []):
        append_jsonl(two / "history.jsonl", {**PARTS["manifest.json"], **later})
    for place, value in row.get("adapters", {}).items():
        write_weights(two / place, value, is_adapter=True)
    if "damaged" in row:
        (two / row["damaged"]).write_bytes(b"\x10")
    runs = [one, two]
    if "third" in row:
        runs.append(make_run(folder / "three", {**varied, **row["third"]}, answers="three"))
    return runs


def make_base(bases: Row, side: str, folder: Path) -> dict[str, Any]:
    """Write a base of the same weights with one file beside them; return how a run tells it."""
    write_weights(folder, 1.0)
    if bases[side] is not None:
        write_json(folder / bases["file"], bases[side])
    return {
        "evaluate/conditions.json:base_weights": digest_weights(folder),
        "manifest.json:config/model/base": str(folder),
        "manifest.json:inputs": {"model.base": side},
    }


def make_answers(row: Row) -> list[Any] | None:
    """Return the predictions of the second run where a row says more of them."""
    if not {"ids", "relabelled", "suffix"} & row.keys():
        return None
    from dataclasses import replace

    numbers = {"ids": range(*row["ids"])} if "ids" in row else {}
    rows = make_predictions(row.get("answers", "two"), **numbers)
    if row.get("relabelled"):
        rows = [replace(r, label=LABELS[0]) if r.policy == "grpo" else r for r in rows]
    return [replace(r, text=r.text + row.get("suffix", "")) for r in rows]
