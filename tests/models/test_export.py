import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
from noisy_policies import add_noise, read_logits
from peft import PeftModel

from groupwise.core import ModelError
from groupwise.models import export
from groupwise.models.export import average_policy, export_policy, merge_adapter, read_dtype
from groupwise.models.identity import name_base, read_base
from groupwise.models.policy import Policy, load_policy
from groupwise.models.trainable import LoraSettings, PromptSettings, TrainableSettings

ROOT = Path(__file__).parents[2]
VLLM = Path(os.environ.get("GROUPWISE_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))


@pytest.fixture(params=["text_folder", "vision_folder"])
def trained(request, tmp_path):
    """The folder of an adapter that changes what the base says."""
    settings = TrainableSettings(lora=LoraSettings(rank=4, last_blocks=2), freeze_vision=True)
    add_noise(request.getfixturevalue(request.param), settings).save(tmp_path / "trained")
    return tmp_path / "trained"


def test_adapter_and_merged_weights_say_the_same(trained, tmp_path, text_examples):
    exported = export_policy(trained, tmp_path / "out", name="mine")
    expected = read_logits(load_policy(trained), text_examples[0])
    merged = read_logits(load_policy(exported.merged), text_examples[0])
    base = load_policy(exported.base)
    assert (read_logits(base, text_examples[0]) - expected).abs().max() > 1e-2
    assert (merged - expected).abs().max() < 1e-4
    assert 0 < exported.max_difference < 1e-4
    assert not (exported.merged / "adapter_config.json").exists()
    by_peft = PeftModel.from_pretrained(base.model, str(exported.adapter)).eval()
    loaded = Policy(by_peft, base.processor, base.has_vision)
    assert torch.equal(read_logits(loaded, text_examples[0]), expected)


def test_a_whole_model_is_exported_as_it_is(text_folder, tmp_path, text_examples):
    exported = export_policy(text_folder, tmp_path / "out")
    assert exported.adapter is None
    assert exported.list_commands() == [f"vllm serve {tmp_path / 'out' / 'merged'}"]
    assert torch.equal(
        read_logits(load_policy(exported.merged), text_examples[0]),
        read_logits(load_policy(text_folder), text_examples[0]),
    )


def merge_wrongly(policy):
    """Merge an adapter that is one per cent too strong."""
    for layer in policy.model.modules():
        if isinstance(getattr(layer, "scaling", None), dict):
            layer.scaling = {name: 1.01 * value for name, value in layer.scaling.items()}
    return merge_adapter(policy)


def test_weights_that_say_something_else_are_refused_and_nothing_is_left(
    trained, tmp_path, monkeypatch
):
    monkeypatch.setattr(export, "merge_adapter", merge_wrongly)
    with pytest.raises(ModelError, match="do not say what the policy says; nothing was written"):
        export_policy(trained, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"trained"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_merged_weights_have_the_dtype_of_the_base_within_its_rounding(
    trained, tmp_path, dtype, text_examples
):
    base = load_policy(read_base(trained))
    base.model.to(dtype)
    base.save(tmp_path / "base")
    name_base(trained, str(tmp_path / "base"))
    whole = export_policy(trained, tmp_path / "whole")
    exported = export_policy(trained, tmp_path / "out", like=tmp_path / "base")
    assert (whole.dtype, exported.dtype) == ("float32", str(dtype).removeprefix("torch."))
    assert read_dtype(exported.merged) == dtype
    sizes = [(one.merged / "model.safetensors").stat().st_size for one in (whole, exported)]
    assert sizes[1] < 0.6 * sizes[0]
    assert whole.max_difference < exported.max_difference <= 2 * exported.noise
    says = [read_logits(load_policy(one), text_examples[0]) for one in (trained, exported.merged)]
    assert (says[0] - says[1]).abs().max() < 10 * exported.noise


def test_what_fails_on_the_way_leaves_nothing(trained, tmp_path):
    def fail(exported):
        raise ModelError("no card")

    (tmp_path / "out").mkdir()
    with pytest.raises(ModelError, match="no card"):
        export_policy(trained, tmp_path / "out", write_card=fail)
    assert not list((tmp_path / "out").iterdir())
    exported = export_policy(trained, tmp_path / "out", write_card=lambda _: "a card")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "README.md",
        "adapter",
        "merged",
    }
    assert exported.merged == tmp_path / "out" / "merged"


def test_files_are_not_overwritten(text_folder, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(ModelError, match="has files already"):
        export_policy(text_folder, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_the_rank_is_one_that_vllm_takes(trained, tmp_path):
    [line, _] = export_policy(trained, tmp_path / "out of luck", name="mine").list_commands()
    modules = f"'mine={tmp_path / 'out of luck' / 'adapter'}'"
    assert line.endswith(f" --enable-lora --lora-modules {modules} --max-lora-rank 8")


def test_a_checkpoint_is_exported_without_what_only_training_needs(trained, tmp_path):
    for name in ("optimizer.pt", "rng_state.pth", "trainer_state.json", "complete"):
        (trained / name).write_bytes(b"state")
    exported = export_policy(trained, tmp_path / "out")
    assert exported.adapter is not None
    names = {path.name for path in exported.adapter.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names
    assert not names & {"optimizer.pt", "rng_state.pth", "trainer_state.json", "complete"}


@pytest.mark.slow
@pytest.mark.skipif(
    not VLLM.is_file(),
    reason=f"no vLLM at {VLLM}: run examples/vllm/install.sh or set GROUPWISE_VLLM_PYTHON",
)
def test_vllm_reads_the_command_lines(trained, tmp_path):
    exported = export_policy(trained, tmp_path / "out", name="mine")
    code = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
arguments = parser.parse_args(sys.argv[1:])
validate_parsed_serve_args(arguments)
modules = [[one.name, one.path] for one in arguments.lora_modules or []]
print("RESULT" + json.dumps([arguments.model_tag, arguments.enable_lora, modules]))
"""
    for line in exported.list_commands():
        words = shlex.split(line)[2:]
        done = subprocess.run(
            [VLLM, "-c", code, *words], capture_output=True, text=True, check=False, timeout=300
        )
        assert "RESULT" in done.stdout, done.stderr
        tag, has_adapter, modules = json.loads(done.stdout.rsplit("RESULT", 1)[1])
        assert tag == words[0]
        assert modules == ([["mine", str(exported.adapter)]] if has_adapter else [])


def _train(base: Path, folder: Path, settings: TrainableSettings) -> Path:
    """Write a policy whose trainable weights are not those of its base."""
    add_noise(base, settings).save(folder)
    return folder


def _read_weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: one.cpu() for name, one in policy.model.state_dict().items()}


LORA = TrainableSettings(lora=LoraSettings(rank=4))
FULL = TrainableSettings(method="full")


@pytest.mark.parametrize(
    "share",
    [pytest.param(0.0, marks=pytest.mark.slow), 0.3, pytest.param(1.0, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("settings", [LORA, FULL], ids=["lora", "full"])
def test_all_weights_are_that_share_of_the_way(
    text_folder: Path, tmp_path: Path, settings: TrainableSettings, share: float
) -> None:
    trained = _train(text_folder, tmp_path / "trained", settings)
    averaged = average_policy(trained, text_folder, share)
    averaged.save(tmp_path / "averaged")
    is_adapter = (tmp_path / "averaged" / "adapter_config.json").is_file()
    assert is_adapter == (settings is LORA)
    ends = [text_folder, *(_merge(p, tmp_path) for p in (trained, tmp_path / "averaged"))]
    before, after, found = (_read_weights(load_policy(folder)) for folder in ends)
    assert any((after[name] - before[name]).abs().max() > 1e-3 for name in before)
    for name, own in before.items():
        expected = own + share * (after[name] - own)
        assert torch.allclose(found[name], expected, atol=1e-6), name


def _merge(folder: Path, work: Path) -> Path:
    return export_policy(folder, work / f"{folder.name}-out").merged


def test_an_adapter_on_other_weights_becomes_a_whole_model(
    text_folder: Path, tmp_path: Path
) -> None:
    """As of GRPO with LoRA behind a warm-up of all weights."""
    warm = _train(text_folder, tmp_path / "warm", FULL)
    trained = _train(warm, tmp_path / "trained", LORA)
    found = average_policy(trained, text_folder, 0.5)
    assert not hasattr(found.model, "peft_config")
    after = _read_weights(load_policy(_merge(trained, tmp_path)))
    before, own = _read_weights(load_policy(text_folder)), _read_weights(found)
    for name, weights in before.items():
        assert torch.allclose(own[name], (weights + after[name]) / 2, atol=1e-6), name


def test_what_has_no_average_is_refused(
    text_folder: Path, vision_folder: Path, tmp_path: Path
) -> None:
    virtual = TrainableSettings(method="prompt", prompt=PromptSettings(num_tokens=2))
    with pytest.raises(ModelError, match="virtual tokens"):
        average_policy(_train(text_folder, tmp_path / "virtual", virtual), text_folder, 0.5)
    with pytest.raises(ModelError, match="architecture"):
        average_policy(text_folder, vision_folder, 0.5)
