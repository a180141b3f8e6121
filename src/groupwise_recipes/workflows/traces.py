"""A page that shows the answers of a run step by step.

python -m groupwise_recipes.workflows.traces ANSWERS --out DIR
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from groupwise.cli.main import main
from groupwise.cli.options import PATH, option
from groupwise.core import DataError, read_jsonl
from groupwise.evaluation.predictions import Language
from groupwise.evaluation.report.page import Block, Notice, Page, Part, Table, write_page
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases
from groupwise_recipes.workflows.executor_stub import STUB_NAME
from groupwise_recipes.workflows.sections import PHRASES

_MAX_SHOWN = 200

Row = Mapping[str, Any]


@click.command()
@click.argument("answers", type=PATH)
@option("--out", type=PATH, required=True, help="Folder for the pages, one for each language.")
def workflow_traces(answers: Path, out: Path) -> None:
    """Write pages that show each program of what `groupwise predict` wrote, call by call."""
    for path in write_traces(read_jsonl(answers), out):
        click.echo(str(path))


def write_traces(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write ``traces.html`` and ``traces.zh.html``, and both as Markdown; return the HTML."""
    shown = [row for row in rows if row.get("details", {}).get("program")]
    if not shown:
        raise DataError("there is no answer with a program", fix="give what predict wrote")
    folder.mkdir(parents=True, exist_ok=True)
    names: Mapping[Language, str] = {"en": "traces", "zh": "traces.zh"}
    return [
        write_page(make_page(shown, language), folder, name=names[language])[0]
        for language in LANGUAGES
    ]


def make_page(rows: Sequence[Row], language: Language) -> Page:
    """Return the page of answers that have a program, the first 200 of them."""
    phrases = Phrases(language, own=PHRASES)
    notices: list[Notice] = []
    if any(STUB_NAME in row["details"]["executor"] for row in rows):
        notices.append(Notice("warning", phrases.say("trace_stub")))
    if len(rows) > _MAX_SHOWN:
        more = phrases.say("trace_more", shown=_MAX_SHOWN, num=len(rows))
        notices.append(Notice("info", more))
    return Page(
        title=phrases.say("trace_title"),
        lead=phrases.say("trace_lead", num=len(rows)),
        language=language,
        notices=tuple(notices),
        checked=phrases.say("trace_checked"),
        parts=tuple(_show(row, n, phrases) for n, row in enumerate(rows[:_MAX_SHOWN])),
    )


def _show(row: Row, number: int, phrases: Phrases) -> Part:
    details, answer = row["details"], row["answer"]
    calls: Sequence[Row] = details["calls"]
    missing = phrases.say("trace_no_answer", reason=row["reason"])
    said = Block(f"{phrases.say('trace_answer')}: {answer}", "verbatim")
    blocks: list[Block | Table] = [Block(missing, "absent") if answer is None else said]
    blocks.append(Block(details["program"], "verbatim"))
    table = _tabulate(calls, phrases) if calls else Block(phrases.say("trace_no_calls"))
    used = details["usage"]
    told = phrases.say(
        "trace_usage",
        calls=used["num_calls"],
        prompt=used["prompt_tokens"],
        completion=used["completion_tokens"],
        reasoning=used["reasoning_tokens"],
        cost=f"{used['cost']:.4g}",
    )
    return Part(f"problem-{number + 1}", str(row["id"]), (*blocks, table, Block(told)))


def _tabulate(calls: Sequence[Row], phrases: Phrases) -> Table:
    names = ("step", "operator", "given", "returned", "tokens", "seconds", "cost")
    rows = [
        (
            str(number),
            call["operator"],
            _write(call["arguments"]),
            f"{phrases.say('trace_failed')}: {call['error']}"
            if call["error"]
            else _write(call["result"]),
            f"{call['tokens']:,}",
            f"{call['seconds']:.2f}",
            f"{call['cost']:.4g}",
        )
        for number, call in enumerate(calls, 1)
    ]
    head = phrases.say_each(*(f"trace_{name}" for name in names))
    return Table(phrases.say("trace_calls"), head, tuple(rows), num_heads=4, kind="wrap")


def _write(value: Any) -> str:
    """Return a JSON value on one line, a text as it is."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())


if __name__ == "__main__":
    main(workflow_traces)
