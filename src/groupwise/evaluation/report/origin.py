"""Data, settings and versions on the page of a run."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from groupwise.core import flatten_settings
from groupwise.evaluation import page
from groupwise.evaluation.page import Block, Part, Words, numbers
from groupwise.evaluation.report.content import Report
from groupwise.evaluation.report.files import RunFiles
from groupwise.evaluation.report.worth import find_doubt

Record = Mapping[str, Any]
_NEXT = {
    "predict": "groupwise predict {run} ROWS --out answers.jsonl",
    "evaluate": "groupwise evaluate {run} ROWS --out other-data",
    "serve": "groupwise serve {run}",
    "export-model": "groupwise export-model {run} --out model",
}


def show_data(files: RunFiles, words: Words) -> Part:
    """Return what the data audit counted and found, and how often the test split was looked at."""
    looks = tuple(page.Paragraph(words.say(one)) for one in files.looks)
    return Part("data", words.label("run_data"), (*_list_data(files.audit or {}, words), *looks))


def _list_data(audit: Record, words: Words) -> Iterator[Block]:
    if audit.get("num_rows") is not None:
        drops: Record = audit.get("drops") or {}
        found = drops.get("counts", {}).items()
        counts = [words.label("counted_reason", reason=name, num=number) for name, number in found]
        reasons = words.label("in_brackets", text=words.join(counts)) if counts else ""
        values = {"num": audit["num_rows"], "dropped": drops.get("total", 0), "reasons": reasons}
        yield page.Paragraph(words.label("rows_read", **values))
    if splits := audit.get("splits"):
        sizes = ("examples", "clusters", "pictures", "truths")
        head = words.labels("split", *sizes, "tokens_median", "tokens_p99", "tokens_max")
        rows = tuple(_show_split(name, split, words) for name, split in splits.items())
        yield page.Table("", head, rows)
    if findings := audit.get("findings"):
        rows = tuple(_show_finding(one, words) for one in findings)
        table = page.Table("", words.labels("finding", "seen", "count"), rows, kind="wrap")
        yield page.Fold(words.label("num_findings", num=len(findings)), (table,))


def _show_split(name: str, split: Record, words: Words) -> tuple[str, ...]:
    sizes = (split["num_examples"], split["num_clusters"], split["num_pictures"])
    labels = [f"{label} {numbers.format_count(num)}" for label, num in split["labels"].items()]
    lengths: Record = split.get("lengths") or {}
    tokens = [str(lengths.get(kind, page.DASH)) for kind in ("median", "p99", "max")]
    return (name, *map(numbers.format_count, sizes), words.join(labels), *tokens)


def _show_finding(one: Record, words: Words) -> tuple[page.Cell, ...]:
    name = page.Cell(page.mark_code(one["name"]), words.label(f"level_{one['level']}"))
    return (
        name,
        page.Cell(words.translate(one["message"])),
        page.Cell(str(one.get("count", page.DASH))),
    )


def show_next(report: Report, words: Words) -> tuple[Part, ...]:
    """Return the commands to go on with, as far as they exist for the run's recipe.

    A policy that is not shown to be of use is not offered for use.
    """
    files = report.files
    name = files.folder.resolve().name
    run = shlex.quote(name if not name.startswith("-") else f"./{name}")
    lines = [line.format(run=run) for verb, line in _NEXT.items() if verb in files.verbs]
    if not lines:
        return ()
    blocks: tuple[Block, ...]
    if doubt := find_doubt(report):
        policy = words.title_policy(list(report.main)[-1])
        said = page.Paragraph(words.label("next_doubt", policy=policy, why=words.say(doubt)), "")
        blocks = said, page.Bullets(words.labels("next_mistakes", "next_rows", "next_teach"))
    else:
        blocks = page.Paragraph(words.label("next_lead")), page.Verbatim("\n".join(lines))
    return (Part("next", words.label("next"), blocks),)


def show_settings(manifest: Record | None, words: Words) -> Part:
    """Return how the run was started, with which versions and which settings."""
    blocks: list[Block] = []
    if manifest is not None:
        rows = tuple(_list_origin(manifest, words))
        settings = tuple(
            (page.mark_code(name), words.label("not_set") if value is None else str(value))
            for name, value in flatten_settings(manifest.get("config", {}))
        )
        head = words.labels("setting", "value")
        blocks = [
            page.Table("", head, rows, kind="wrap"),
            page.Paragraph(words.label("bit_exact")),
            page.Fold(
                words.label("num_settings", num=len(settings)),
                (page.Table("", head, settings, kind="wrap"),),
            ),
        ]
    return Part("settings", words.label("settings_versions"), tuple(blocks))


def _list_origin(manifest: Record, words: Words) -> Iterator[tuple[str, str]]:
    unknown = words.label("unknown")
    yield words.label("command"), page.mark_code(" ".join(manifest.get("command", ())))
    yield words.label("config_digest"), page.mark_code(manifest.get("config_digest", unknown))
    yield words.label("git_revision"), page.mark_code(manifest.get("git_revision") or unknown)
    yield words.label("machine"), show_hardware(manifest.get("hardware", {}), words) or unknown
    packages = [f"{name} {number}" for name, number in manifest.get("packages", {}).items()]
    python = f"Python {manifest.get('python', unknown)}"
    yield words.label("versions"), words.join([python, *packages])
    for name, digest in manifest.get("inputs", {}).items():
        yield words.label("input", name=name), page.mark_code(digest)


def show_hardware(hardware: Record, words: Words) -> str:
    """Return what a machine is; empty where nothing was recorded."""
    return words.join(
        f"{words.title('hardware', name)} {_show_value(value, words)}"
        for name, value in hardware.items()
    )


def _show_value(value: Any, words: Words) -> str:
    if isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return words.join(map(str, items)) or words.label("none")
    return str(value)
