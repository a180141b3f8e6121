"""The last stage: what the judge decided becomes rows of data, those it is surest of first."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import DataError
from groupwise.data.examples import DropLog
from groupwise.evaluation.predictions import Language
from groupwise.evaluation.report.phrases import Phrases
from groupwise.judges import NoVerdict, Verdict
from groupwise_recipes.on_task.config import BOOTSTRAP

EASY_FROM = 0.8
"""Judge's confidence from which a row is ``easy``; the others are ``hard``."""


def describe_verdict(verdict: Verdict | NoVerdict) -> dict[str, Any]:
    """Return what is kept of a verdict, as JSON values."""
    if isinstance(verdict, NoVerdict):
        return {"version": verdict.judge, "label": None, "problem": f"no verdict: {verdict.cause}"}
    return {
        "version": verdict.judge,
        "label": verdict.label,
        "probability": verdict.probabilities[verdict.label],
        "position_bias": verdict.position_bias,
        "problem": _find_problem(verdict),
    }


def choose_rows(judged: Sequence[Mapping[str, Any]], drops: DropLog) -> list[dict[str, Any]]:
    """Return rows with a label, the likeliest label first; equals stand by their digest."""
    for row in judged:
        if row["judge"]["problem"]:
            drops.add(row["judge"]["problem"], f"{row['file']} ({row['task']})")
    kept = [row for row in judged if not row["judge"]["problem"]]
    kept.sort(key=lambda row: (-row["judge"]["probability"], row["digest"], row["task"]))
    return [_to_row(row, place) for place, row in enumerate(kept, start=1)]


def check_number(rows: Sequence[object], drops: DropLog, *, min_rows: int) -> None:
    """Refuse too few rows."""
    if len(rows) < min_rows:
        raise DataError(
            f"only {len(rows):,} rows came out",
            got=_list_counts(drops.counts) or "nothing was dropped",
            expected=f"{min_rows:,}",
            fix="give more pictures or another judge, or lower min_rows",
        )


def copy_pictures(rows: Sequence[Mapping[str, Any]], source: Path, folder: Path) -> None:
    """Copy the pictures that rows name, so that the folder can be moved by itself."""
    for image in {row["image"] for row in rows}:
        (folder / image).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / image, folder / image)


def count_rows(
    rows: Sequence[Mapping[str, Any]], stages: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the numbers of a run."""
    return {
        "num_rows": len(rows),
        "labels": Counter(row["label"] for row in rows),
        "difficulty": Counter(row["difficulty"] for row in rows),
        "label_source": "judge",
        "checked_by_people": 0,
        "stages": stages,
    }


_PAGES: Mapping[Language, str] = {
    "en": """# Rows with a judge's labels

{num:,} rows came out ({labels}; {difficulties}).

**The labels are those of a judge ({judge}). Nobody has checked them**, and neither the captions \
nor the tasks. Look at some before you trust what is trained or measured on them.

| stage | given | kept | dropped |
|---|---|---|---|
{stages}

`index.jsonl` has the rows that the judge is surest of first (`place`, `difficulty`). Training \
begins with the easy ones.
""",
    "zh": """# 标签出自评审的行

共得到 {num:,} 行（{labels}；{difficulties}）。

**标签出自评审（{judge}），没有人核对过**，说明文字和任务也没有人核对过。用它们训练或测量之前，请先看一些。

| 阶段 | 给出 | 保留 | 弃去 |
|---|---|---|---|
{stages}

`index.jsonl` 里，评审最有把握的行在最前（`place`、`difficulty`）。训练从容易的行开始。
""",
}
_STAGES_ZH = {"pictures": "图片", "captions": "说明文字", "scenarios": "情景", "judge": "评审"}


def write_summary(numbers: Mapping[str, Any], *, judge: str, language: Language = "en") -> str:
    """Return the page that lies beside the rows."""
    phrases = Phrases(language)
    names = _STAGES_ZH if language == "zh" else {}
    stages = [
        f"| {names.get(name, name)} | {stage['given']:,} | {stage['kept']:,} "
        f"| {phrases.translate(_list_counts(stage['dropped']) or 'none')} |"
        for name, stage in numbers["stages"].items()
    ]
    return _PAGES[language].format(
        num=numbers["num_rows"],
        labels=_list_counts(numbers["labels"]),
        difficulties=_list_counts(numbers["difficulty"]),
        judge=judge,
        stages="\n".join(stages),
    )


def _find_problem(verdict: Verdict) -> str | None:
    if verdict.is_flipped:
        return "the judge's two orders disagree"
    return "the judge finds both labels equal" if verdict.confidence <= 0.5 else None


def _to_row(row: Mapping[str, Any], place: int) -> dict[str, Any]:
    is_easy = row["judge"]["probability"] >= EASY_FROM
    verdict = {key: value for key, value in row["judge"].items() if key not in ("label", "problem")}
    return {
        "place": place,
        "image": row["image"],
        "task": row["task"],
        "session": row["session"],
        "label": row["judge"]["label"],
        "label_source": "judge",
        "difficulty": "easy" if is_easy else "hard",
        "source": BOOTSTRAP,
        "picture": {key: row[key] for key in ("digest", "file", "file_digest")},
        "caption": {"text": row["caption"], **row["caption_source"]},
        "scenario": row["scenario"],
        "judge": verdict,
    }


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items()))
