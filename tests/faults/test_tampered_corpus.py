"""Finished runs of which somebody changed a file: what each verb says, and with which exit code.

``unmended`` names verbs that do not say it yet, and why.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from corpora import read_corpus

from groupwise.core import digest_file, read_json, write_json

Row = dict[str, Any]
ROWS = read_corpus("tampered")
QUESTION = {"id": "1", "question": "第3个螺栓的力矩是21，合格还是不合格？"}
CASES = [
    pytest.param(row, verb, id=f"{row['name']}-{verb}") for row in ROWS for verb in row["expected"]
]


@pytest.mark.parametrize(("row", "verb"), CASES)
def test_a_changed_run_is_told(
    row: Row, verb: str, finished: Path, tmp_path: Path, command_line: CommandLine, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    for change in row["changes"]:
        damage(run, run / change["file"], change)
    Path("rows.jsonl").write_text(json.dumps(QUESTION, ensure_ascii=False), encoding="utf-8")
    words = {
        "predict": ["predict", "run", "rows.jsonl", "--out", "answers.jsonl"],
        "report": ["compare", "run"],
        "compare": ["compare", "run", finished, "--out", "compared"],
        "serve": ["serve", "run", "--dry-run"],
    }
    done = command_line(*words[verb])
    code, phrase = row["expected"][verb]
    # A policy that has learned nothing gives no answer, which is no fault of the run.
    returned = 0 if (verb, done.returncode) == ("predict", 1) else done.returncode
    is_told = returned == code and phrase in (done.stderr if code == 2 else done.stdout)
    if verb in row.get("unmended", {}) and not is_told:
        pytest.xfail(row["unmended"][verb])
    assert is_told, (row["why"], done.returncode, done.stdout[-300:], done.stderr[-300:])
    assert verb not in row.get("unmended", {}), "it is mended"
    assert code != 2 or (done.stderr.count("\n"), "Traceback" in done.stderr) == (1, False)


EDITS: dict[str, Callable[[bytes, Any], bytes]] = {
    "replace": lambda content, pair: content.replace(pair[0].encode(), pair[1].encode(), 1),
    "text": lambda _, text: text.encode(),
    "append": lambda content, text: content + text.encode(),
    "cut": lambda content, end: content[:end],
    "flip": lambda content, place: content[:place] + b"\xff" + content[place:][1:],
    "set": lambda content, new: json.dumps({**json.loads(content), **new}).encode(),
    "unset": lambda content, name: json.dumps(
        {key: value for key, value in json.loads(content).items() if key != name}
    ).encode(),
}


def damage(run: Path, file: Path, change: Row) -> None:
    """Change a file as a row says: by an edit, by another file in its place, or by its absence."""
    ((kind, value),) = [(name, value) for name, value in change.items() if name != "file"]
    if kind in EDITS:
        before = file.read_bytes() if file.exists() else b""
        file.write_bytes(EDITS[kind](before, value))
        assert file.read_bytes() != before
    elif kind == "copy":
        shutil.copy(run / value, file)
    elif kind == "restate":  # the step says that it wrote what lies there now
        marker = read_json(file, dict)
        outputs = {path: digest_file(run / path) for path in marker["outputs"]}
        write_json(file, {**marker, "outputs": outputs})
    else:
        file.unlink()
        if kind == "link":
            file.symlink_to(value)
