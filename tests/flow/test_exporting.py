"""What is exported of a run: weights, and a card that says what they are."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import CommandLine
from loopback_hub import LoopbackHub, serve_hub
from run_folders import restate
from small_task import LORA, SmallConfig, SmallTask

from groupwise.core import Message, RunError, read_json, read_jsonl, write_jsonl, write_text
from groupwise.data.examples import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import RunPolicy, read_policies, write_policies
from groupwise.evaluation.report.page import describe_metric
from groupwise.flow.exporting import (
    check_pushable,
    export_run,
    find_licence,
    list_uploads,
    render_card,
    upload,
)
from groupwise.flow.finished import FinishedRun, open_run
from groupwise.flow.trainers import export_for_trainer
from groupwise.models import quantization
from groupwise.models.export import ExportedPolicy
from groupwise.models.policy import load_policy


def test_the_main_policy_is_exported_with_a_card_of_its_run(
    finished: Path, tmp_path: Path, command_line: CommandLine
) -> None:
    command_line.succeed("export", finished, "--out", "out")
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {"README.md", "adapter", "merged"}
    load_policy(out / "merged")
    card = (out / "README.md").read_text(encoding="utf-8")
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["groupwise", "sft", "grpo"],
    }
    assert "GRPO of a Groupwise run" in text
    assert "Licence of the base: not known here" in text
    assert "合格" in text  # the parser's labels
    (share,) = [
        one
        for one in read_metrics(finished / "evaluate" / "metrics.json")
        if one.name == "grpo/accuracy"
    ]
    assert f"| GRPO | {describe_metric(share)} |" in text
    assert "against SFT warm-up:" in text
    assert "One training is not a method" in text
    data = read_json(finished / "evaluate" / "conditions.json", dict)["data"]
    assert all(f"`{known['digest']}`" in text for known in data.values())
    budget = read_policies(finished).find("grpo").budget
    assert f"| GRPO | sft | train, validation | {budget['num_steps']:.0f} |" in text
    assert "vllm serve merged\n" in text
    assert str(finished.parents[1]) not in text


def test_a_card_speaks_of_pictures_where_rows_have_some(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base that could see says nothing of what it was asked."""
    run, base = open_run(finished), str(finished)
    asked = [Message("user", "{{ question }}")]
    monkeypatch.setattr(type(run.task), "describe_prompt", lambda *_: asked)
    sees = ExportedPolicy(base, None, finished, "float32", 0.0, 0.0, has_vision=True, name="sees")
    assert "pictures come first" not in render_card(run, "grpo", sees)
    train = finished / "prepare" / "train.jsonl"
    before = train.read_bytes()
    picture = {"path": "a.png", "digest": "0" * 32}
    rows = [row | {"pictures": [picture]} for row in read_jsonl(train)]
    write_jsonl(train, rows)
    try:
        assert "pictures come first" in render_card(run, "grpo", sees)
    finally:
        train.write_bytes(before)


def test_nothing_that_a_run_says_is_markup_of_the_card(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = "Best <img src=x> | *one* [here](http://x)"
    known = [replace(one, title=title) for one in read_policies(copied).listed]
    write_policies(copied, known)
    restate(copied / "evaluate")
    opened = open_run(copied)
    asked = [Message("user", "```\n# A heading\n````")]
    monkeypatch.setattr(type(opened.task), "describe_prompt", lambda *_: asked)
    exported = ExportedPolicy(
        "`x` <b>", None, copied, "float32", 0.0, 0.0, has_vision=False, name="a <b>"
    )
    card = render_card(opened, "grpo", exported)
    told = re.sub(r"^(`{3,})\w+\n.*?^\1\n", "", card.split("---\n", 2)[2], flags=re.M | re.S)
    assert "A heading" in card
    assert "A heading" not in told
    assert "Best &lt;img" in told
    assert not any(mark in told for mark in ("<img", "<b>", "*one*", "[here]"))


def test_no_row_of_the_data_is_in_what_is_exported(finished: Path, tmp_path: Path) -> None:
    export_run(open_run(finished), tmp_path / "out")
    written = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    for split in ("train", "test"):
        for example in read_examples(finished / "prepare" / f"{split}.jsonl"):
            text = example.prompt[0].text.encode()
            assert not any(text in content for content in written)


def test_the_main_policy_is_what_the_run_says(copied: Path, tmp_path: Path) -> None:
    assert open_run(copied).choose_policy() == "grpo"
    known = [RunPolicy(name=n, title=n, title_zh=n, kind="trained") for n in ("grpo", "sft")]
    write_policies(copied, known)
    restate(copied / "evaluate")
    assert open_run(copied).choose_policy() == "sft"
    (copied / "evaluate" / "policies.json").unlink()
    with pytest.raises(RunError, match=r"no main policy yet; .* or name one: RUN:grpo, RUN:sft"):
        export_run(open_run(copied), tmp_path / "out")


def test_another_policy_may_be_named_but_not_the_base(finished: Path, tmp_path: Path) -> None:
    export_run(open_run(finished), tmp_path / "sft", policy="sft")
    card = (tmp_path / "sft" / "README.md").read_text(encoding="utf-8")
    assert "SFT warm-up of a Groupwise run" in card
    assert "against" not in card
    with pytest.raises(RunError, match="prompt is the base itself"):
        export_run(open_run(finished), tmp_path / "base", policy="prompt")


@pytest.mark.parametrize("has_card", [True, False])
def test_a_licence_is_what_the_base_says_of_itself(tmp_path: Path, has_card: bool) -> None:
    if has_card:
        write_text(tmp_path / "README.md", "---\nlicense: apache-2.0\n---\n# Base\n")
    assert find_licence(str(tmp_path)) == ("apache-2.0" if has_card else None)
    assert find_licence("nobody/has-this-one") is None
    assert find_licence("no name of a model") is None


NAME = "someone/bolts"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    with serve_hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.address)
        monkeypatch.setenv("HF_TOKEN", found.token)
        yield found


def test_what_is_exported_of_a_finished_run_goes_up(
    finished: Path, hub: LoopbackHub, command_line: CommandLine
) -> None:
    done = command_line.succeed("export", finished, "--push", NAME, "--private", "--dry-run")
    assert done.stdout.endswith("nothing was uploaded\n")
    assert hub.repositories == {}
    done = command_line.succeed("export", finished, "--push", NAME, "--private")
    assert done.stdout.endswith(f"uploaded: {hub.address}/{NAME}\n")
    assert hub.repositories == {NAME: True}
    files = hub.files[NAME]
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert {"adapter/adapter_config.json", "adapter/adapter_model.safetensors"} <= set(files)
    assert not [name for name in files if name.endswith((".jsonl", ".pt", ".pth", ".bin", ".csv"))]
    assert b"One training is not a method" in files["README.md"]
    lines = done.stdout.splitlines()[:-1]
    assert {line.rpartition(" ")[2]: line.split()[0] for line in lines} == {
        name: f"{len(content):,}" for name, content in files.items()
    }
    assert hub.unknown == []


def test_a_run_that_is_not_finished_is_not_pushed(copied: Path) -> None:
    with pytest.raises(RunError, match="a checkpoint is not pushed"):
        check_pushable(open_run(copied), "grpo/checkpoint-1")
    (copied / "report" / "step.json").unlink()
    with pytest.raises(RunError, match="is not finished; got no report yet"):
        check_pushable(open_run(copied))


def test_a_hub_that_takes_nothing_is_told_in_a_sentence(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("README.md", "merged/config.json"):
        write_text(tmp_path / name, "x")
    files = list_uploads(tmp_path)
    assert list(files) == ["README.md", "config.json"]
    upload(files, NAME)
    assert hub.repositories == {NAME: False}
    monkeypatch.setenv("HF_TOKEN", "another")
    with pytest.raises(RunError, match=r"did not take someone/bolts .*401.*; check HF_ENDPOINT"):
        upload(files, NAME)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RunError, match=r"the hub http://127\.0\.0\.1:9 did not take"):
        upload(files, NAME)


MODEL: dict[str, Any] = LORA["model"] | {"quantization": "nf4"}
GRPO: dict[str, Any] = LORA["grpo"] | {"entropy_bonus": 0.0}
FULL, SOFT = ({"trainable": {"method": method}} for method in ("full", "prompt"))
SPREAD = {"compute": {"sharding": "fsdp"}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"grpo": GRPO | FULL}, "only a LoRA trains on 4 bits; set grpo.trainable.method to lora"),
        ({"sft": FULL}, "only a LoRA trains on 4 bits; set sft.trainable.method to lora"),
        ({"grpo": GRPO | SOFT}, "only a LoRA trains on 4 bits; set grpo.trainable.method to lora"),
        (SPREAD, "weights in 4 bits are not spread; set compute.sharding to none"),
        ({"grpo": GRPO | {"vllm": {}}}, "leave grpo.vllm out"),
    ],
)
def test_a_config_that_does_not_go_with_bits_is_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    usual = LORA | {"grpo": GRPO}
    with pytest.raises(ValueError, match=f"model.quantization nf4: .*{sentence}"):
        SmallConfig(**usual | {"model": MODEL} | changes)
    SmallConfig(**usual | changes)
    SmallConfig(**usual | {"model": MODEL})


@pytest.mark.parametrize("ending", [(), ("--dry-run",)])
def test_without_bitsandbytes_a_run_ends_before_it_begins(
    ending: tuple[str, ...], command_line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantization, "find_spec", lambda _: None)
    lora = [f"{stage}.trainable.method=lora" for stage in ("sft", "grpo")]
    told = [word for one in ("model.quantization=nf4", *lora) for word in ("--set", one)]
    said = command_line.refuse("run", "on_task", "--out", "run", *told, *ending)
    assert "model.quantization: nf4 needs bitsandbytes, which is not installed" in said
    assert "pip install 'groupwise[quantization]'" in said
    assert not Path("run", "sft").exists()


@pytest.mark.parametrize("trainer", ["verl", "swift"])
def test_other_trainers_are_not_told_of_bits(trainer: Any, tmp_path: Path) -> None:
    config = SmallConfig(**LORA | {"model": MODEL})
    task = SmallTask()
    run = FinishedRun(tmp_path, task.make_recipe("small"), task, config)
    with pytest.raises(Exception, match=f"{trainer} is not told of weights in 4 bits"):
        export_for_trainer(run, tmp_path / "out", trainer)
