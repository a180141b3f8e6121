"""What is said of a training before it starts, what its trainer is told, and where memory ends."""

import dataclasses
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import training_job
from packaging.requirements import Requirement
from pydantic import ValidationError
from trl import GRPOConfig, import_utils

from groupwise.core import TrainingError
from groupwise.data.audit import TokenBudget
from groupwise.models.base_model import check_base
from groupwise.models.policy import load_policy
from groupwise.models.settings import ModelSettings, ModelShape
from groupwise.models.sources import Outline, find_outline
from groupwise.models.trainable import (
    LoraSettings,
    PromptSettings,
    TrainableSettings,
    prepare_trainable,
)
from groupwise.run.preview import (
    Batch,
    Place,
    check_lengths,
    estimate_memory,
    preview_grpo,
    preview_memory,
)
from groupwise.training.checkpoints import Workspace
from groupwise.training.fast.vllm import build_vllm_arguments, prepare_vllm
from groupwise.training.on_policy import find_ulp
from groupwise.training.settings import (
    GrpoSettings,
    SftSettings,
    VllmSettings,
    build_arguments,
    name_memory_settings,
)

SHAPE = ModelShape(num_parameters=2**30, num_blocks=4)

CPU = Place("cpu")


def make_settings(**values):
    return GrpoSettings(prompts_per_step=2, group_size=4, max_new_tokens=64, **values)


def make_trainable(method, **lora):
    return TrainableSettings(method=method, lora=LoraSettings(**lora))


@pytest.mark.parametrize(
    ("base", "shape", "words"),
    [
        ("some/model", SHAPE, []),
        ("some/model", None, ["model.base: the model some/model is not on this machine"]),
        ("runs/a/policy", None, ["model.base: there is no folder runs/a/policy; make it first"]),
        ("tiny-qwen2", None, []),
    ],
)
def test_a_model_that_is_not_there_is_a_problem(base, shape, words):
    found = check_base(ModelSettings(base=base, max_pixels=784, shape=shape))
    assert [re.split(", (?:and|or)", problem)[0] for problem in found] == words


def test_an_adapter_is_not_said_to_be_missing(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (problem,) = check_base(ModelSettings(base=str(tmp_path), max_pixels=784))
    assert "holds no whole model" in problem


STEPS = ("grpo steps", "about 3 of 2 prompts x 4 completions")


def preview(model, sft, grpo):
    return preview_grpo(model, sft=sft, grpo=grpo, num_prompts=7)


@pytest.mark.parametrize(
    ("method", "last", "num_problems"),
    [("lora", None, 0), ("lora", 4, 0), ("lora", 5, 1), ("full", 5, 0)],
)
def test_more_blocks_than_there_are_is_a_problem_that_names_the_stage(method, last, num_problems):
    grpo = make_settings(trainable=make_trainable(method, last_blocks=last))
    model = ModelSettings(base="some/model", max_pixels=784, shape=SHAPE)
    words = "grpo.trainable.lora.last_blocks: 5 is more than the model's 4 blocks"
    assert preview(model, None, grpo)[1] == [words] * num_problems


@pytest.mark.parametrize(("stage", "last"), [("sft", 5), ("grpo", 6), ("none", 0)])
def test_a_dry_run_tells_steps_and_problems_of_both_stages(stage, last, tmp_path):
    settings = {"sft": SftSettings(), "grpo": make_settings()}
    if last:
        trainable = make_trainable("lora", last_blocks=last)
        settings[stage] = settings[stage].model_copy(update={"trainable": trainable})
    model = ModelSettings(
        base=str(tmp_path / "gone"), max_pixels=784, shape=SHAPE, dtype="bfloat16"
    )
    facts, problems = preview(model, **settings)
    assert facts == [STEPS]
    named = [problem.partition(".")[0] for problem in problems]
    assert named == ([stage] if last else [])
    unknown = model.model_copy(update={"shape": None})
    assert preview(unknown, **settings) == ([STEPS], [])
    named = preview(model, sft=None, grpo=settings["grpo"])[1]
    assert [problem.partition(".")[0] for problem in named] == ["grpo"] * (stage == "grpo")


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (("full", 10), ("prompt", 5), None),
        (("prompt", 5), ("prompt", 5), None),
        (("prompt", 5), ("prompt", 10), "num_tokens: 10 are not the 5 of sft"),
        (
            ("prompt", 5),
            ("full", 10),
            "method: full cannot go on from sft.trainable.method: prompt",
        ),
        (("lora", 10), ("prompt", 10), "method: prompt cannot go on from"),
    ],
)
def test_a_grpo_that_cannot_go_on_from_the_warmup_is_a_problem(first, then, words):
    sft, grpo = (
        TrainableSettings(method=method, prompt=PromptSettings(num_tokens=number))
        for method, number in (first, then)
    )
    model = ModelSettings(base="tiny-qwen2", max_pixels=784)
    found = preview(model, SftSettings(trainable=sft), make_settings(trainable=grpo))[1]
    assert len(found) == (words is not None)
    assert words is None or words in found[0]


def test_steps_of_grpo_are_counted_by_prompts():
    settings = make_settings(gradient_accumulation=3, epochs=2)
    model = ModelSettings(base="tiny-qwen2", max_pixels=784)
    facts, _ = preview_grpo(model, sft=SftSettings(), grpo=settings, num_prompts=12_500)
    assert facts == [("grpo steps", "about 4,166 of 6 prompts x 4 completions")]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"warmup_steps": 2}, []),
        ({"warmup_steps": 3}, ["grpo.warmup_steps: 3 of about 3 steps"]),
        ({"warmup_steps": 100}, ["grpo.warmup_steps: 100 of about 3 steps"]),
        ({"warmup_steps": 100, "scheduler": "constant"}, []),
        ({"warmup_share": 0.9}, []),
    ],
)
def test_a_warmup_that_takes_all_steps_is_a_problem(given, words):
    model = ModelSettings(base="tiny-qwen2", max_pixels=784)
    _, problems = preview(model, SftSettings(), make_settings(**given))
    assert [problem.partition(",")[0] for problem in problems] == words


@pytest.mark.parametrize(
    ("limit", "allow_longer", "tokens_per_answer", "words"),
    [
        (512, False, 64, ""),
        (511, True, 64, ""),
        (511, False, 64, "data.budget.max_prompt_tokens: 511 is less than .* 512 tokens; raise it"),
        (512, False, 65, "grpo.max_new_tokens: 64 cannot hold .* 65 tokens; raise it"),
    ],
)
def test_prompts_and_answers_have_to_fit(limit, allow_longer, tokens_per_answer, words):
    found = check_lengths(
        TokenBudget(max_prompt_tokens=limit, allow_longer=allow_longer),
        make_settings(),
        tokens_per_prompt=512,
        tokens_per_answer=tokens_per_answer,
    )
    assert len(found) == bool(words)
    assert re.fullmatch(words, "".join(found))


def remember(model, place=CPU, **stages):
    return preview_memory(model, stages, batch=Batch(40, 9), place=place)


@pytest.fixture
def free(monkeypatch):
    def set_free(mib):
        monkeypatch.setattr("groupwise.run.preview.read_free_memory", lambda: mib << 20)

    return set_free


def test_memory_is_told_of_each_training_for_the_machine_that_is_there(text_folder, free):
    free(4_000)
    model = ModelSettings(base=str(text_folder), max_pixels=784)
    told, problems = remember(model, sft=SftSettings(batch_size=2), grpo=make_settings())
    assert [name for name, _ in told] == ["memory of sft", "memory of grpo"]
    words = r"in the memory of this machine, where 4,000 MiB are free: about [\d,]+ MiB at most \("
    assert all(re.match(words, line) for _, line in told)
    assert problems == {}
    place = Place("cpu", 2, is_spread=True)
    ((_, line),) = remember(model, place, sft=SftSettings(batch_size=2))[0]
    assert line.startswith("each process, in the memory of this machine")


def test_a_training_that_cannot_fit_is_a_problem_that_says_what_to_change(text_folder, free):
    free(300)
    model = ModelSettings(base=str(text_folder), max_pixels=784)
    stage = SftSettings(batch_size=2, trainable=TrainableSettings(method="full"))
    _, problems = remember(model, sft=stage, grpo=make_settings(gradient_checkpointing=True))
    pattern = (
        r"sft: it takes about \d+ MiB in the memory of this machine, where 300 MiB are free; lower "
        r"sft.batch_size \(2\) and raise gradient_accumulation; set gradient_checkpointing to "
        r"true; set trainable.method to lora; or take a smaller model"
    )
    assert list(problems) == ["sft", "grpo"]
    assert re.fullmatch(pattern, problems["sft"][0])
    assert "lower grpo.prompts_per_step (2)" in problems["grpo"][0]
    assert "checkpointing" not in problems["grpo"][0]


def test_memory_of_a_base_that_is_not_at_hand_is_not_known(tmp_path):
    model = ModelSettings(base=str(tmp_path / "gone"), max_pixels=784, dtype="bfloat16")
    gone = f"? (the configuration of {model.base} is not on this machine"
    assert remember(model, grpo=make_settings()) == ([("memory", f"{gone})")], {})
    known = model.model_copy(update={"shape": SHAPE})
    told = f"{gone}; its weights alone take 2,048 MiB)"
    assert remember(known, grpo=make_settings()) == ([("memory", told)], {})


def test_what_was_not_measured_is_not_estimated(monkeypatch):
    outline = Outline({"num_experts": 8, "model_type": "other"})
    monkeypatch.setattr("groupwise.run.preview.find_outline", lambda _: outline)
    told = remember(ModelSettings(base="some/experts", max_pixels=784), sft=SftSettings())
    line = "? (no training of experts was held against an estimate)"
    assert told == ([("memory of sft", line)], {})
    # Of a tiny model no memory is told.
    tiny = ModelSettings(base="tiny-qwen2", max_pixels=784)
    assert remember(tiny, grpo=make_settings()) == ([], {})


GPU = Place("cuda")
FULL = TrainableSettings(method="full")
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 512,
    "tie_word_embeddings": True,
}


def estimate(settings, outline=None, place=CPU, batch=None, num_readers=0, **model):
    outline = outline or Outline(TEXT)
    batch = batch or Batch(prompt=100, answer=10)
    model = ModelSettings(base="some/base", max_pixels=784, **model)
    return estimate_memory(
        outline, model, settings, batch=batch, place=place, num_readers=num_readers
    )


def teach(**changes):
    return SftSettings(**{"batch_size": 4, **changes})


def sample(**changes):
    given = {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8}
    return GrpoSettings(**(given | changes))


@pytest.mark.parametrize(
    "trainable",
    [
        FULL,
        FULL.model_copy(update={"freeze_vision": False, "freeze_aligner": False}),
        TrainableSettings(lora=LoraSettings(rank=4)),
        TrainableSettings(lora=LoraSettings(rank=4, last_blocks=1, modules=("v_proj", "up_proj"))),
    ],
)
@pytest.mark.parametrize("kind", ["text_folder", "vision_folder"])
def test_weights_gradients_and_states_are_those_of_the_model(kind, trainable, request):
    folder = request.getfixturevalue(kind)
    model = prepare_trainable(load_policy(folder).model, trainable)
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    found = estimate(teach(trainable=trainable), find_outline(folder))
    assert found.weights == sum(p.nbytes for p in model.parameters())
    # What joins a tower to the language model is not told apart.
    assert trained <= found.gradients <= 1.15 * trained
    assert found.optimizer == 2 * found.gradients


def test_a_configuration_is_enough(text_folder):
    known = find_outline(text_folder)
    drawn = estimate(teach(), Outline(known.config))
    # Norms and biases are left out.
    assert drawn.total == pytest.approx(estimate(teach(), known).total, rel=0.01)
    with pytest.raises(ValueError, match="its weights are not on this machine"):
        estimate(teach(), Outline({"model_type": "other"}))


def test_activations_are_of_shared_prompts_once_of_what_trains_and_of_logits():
    shared = estimate(sample()).activations
    plain = sample(speed={"shared_prefix": "off"})
    assert estimate(plain).activations > 2 * shared
    assert estimate(plain, batch=Batch(200, 0)).activations > 1.5 * estimate(plain).activations
    last = estimate(sample(trainable=TrainableSettings(lora=LoraSettings(last_blocks=1))))
    saved = estimate(sample(gradient_checkpointing=True))
    assert max(last.activations, saved.activations) < shared
    many = {**TEXT, "vocab_size": 50_000}
    grown = estimate(teach(), Outline(many)).activations - estimate(teach()).activations
    assert grown >= 4 * 110 * (32_768 - 512) * 4


def test_a_reference_in_full_training_and_a_base_that_reads_answers_are_held_beside_the_policy():
    for trainable, factor in ((FULL, 2), (TrainableSettings(), 1)):
        plain, kl = (estimate(sample(trainable=trainable, beta=beta)) for beta in (0.0, 0.1))
        assert kl.weights == factor * plain.weights
    frozen = estimate(teach()).weights - estimate(teach()).gradients
    assert estimate(sample(), num_readers=1).weights == estimate(sample()).weights + frozen
    assert estimate(teach(), num_readers=1) == estimate(teach())


def test_several_processes_hold_copies_or_parts():
    settings = teach(trainable=FULL)
    one, two = estimate(settings), estimate(settings, place=Place("cuda", 2))
    parts = estimate(settings, place=Place("cuda", 2, is_spread=True))
    assert two.gradients == 2 * one.gradients
    assert two.activations < one.activations
    assert parts.optimizer == one.optimizer // 2


def test_half_precision_and_four_bits_are_smaller():
    full = estimate(teach()).weights
    adapter = estimate(teach()).gradients
    assert estimate(teach(), dtype="bfloat16").weights - adapter == (full - adapter) // 2
    bits = estimate(teach(), quantization="nf4").weights
    assert adapter < bits < full / 2


def test_a_gpu_holds_no_libraries_and_samples_with_vllm_elsewhere():
    assert estimate(teach(), place=GPU).libraries == 0
    found = estimate(sample(vllm={"mode": "server"}))
    assert found.sampling == 0 < estimate(sample()).sampling


def test_the_line_adds_up():
    found = dataclasses.replace(estimate(sample()), activations=0, sampling=7 << 20)
    assert found.describe().startswith(f"about {found.total >> 20:,} MiB at most (libraries ")
    assert "activations" not in found.describe()
    assert ", sampling 7)" in found.describe()


def run_out(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore of it")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
def test_memory_of_any_device(error):
    with (
        pytest.raises(TrainingError, match="a training step ran out of memory") as caught,
        name_memory_settings(SftSettings(batch_size=7)),
    ):
        raise error
    assert caught.value.__cause__ is error
    assert "lower batch_size (7)" in str(caught.value)


def test_other_errors_stay_what_they_are():
    with (
        pytest.raises(RuntimeError, match="shapes do not fit"),
        name_memory_settings(SftSettings()),
    ):
        raise RuntimeError("shapes do not fit")


def test_grpo_names_what_to_change(taught_text_folder, text_examples, tmp_path):
    policy = load_policy(taught_text_folder)
    policy.model.generate = run_out
    with pytest.raises(TrainingError) as caught:
        training_job.reinforce(policy, text_examples, tmp_path)
    assert str(caught.value) == (
        "a training step ran out of memory; got CUDA out of memory. Tried to allocate 2 GiB; "
        "lower prompts_per_step (4), group_size (2), max_new_tokens (4); raise "
        "gradient_accumulation (1) to make up for it; set gradient_checkpointing (false) to true; "
        "set trainable.method (full) to lora; load the model with model.dtype: bfloat16; then run "
        "again with --resume: finished steps are kept."
    )


def test_sft_names_what_to_change(taught_text_folder, text_examples, tmp_path, monkeypatch):
    policy = load_policy(taught_text_folder)
    monkeypatch.setattr(type(policy.model.model), "forward", run_out)
    settings = {"batch_size": 2, "gradient_checkpointing": True}
    with pytest.raises(TrainingError, match=r"lower batch_size \(2\); raise") as caught:
        training_job.teach(policy, text_examples, tmp_path, **settings)
    assert "gradient_checkpointing" not in str(caught.value)
    assert "lower trainable.lora.last_blocks (all)" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"), [({"warmup_share": 0.1}, 0.1), ({"warmup_steps": 100}, 100), ({}, 0.05)]
)
def test_the_rate_rises_for_a_share_or_a_number_of_steps(given, expected, tmp_path: Path) -> None:
    arguments = build_arguments(SftSettings(**given), Workspace(tmp_path, 0), dtype=torch.float32)
    assert arguments["warmup_steps"] == expected


@pytest.mark.parametrize(
    ("dtype", "mixed"), [(torch.float32, []), (torch.bfloat16, ["bf16"]), (torch.float16, ["fp16"])]
)
def test_the_precision_is_that_of_the_policy(dtype, mixed, tmp_path: Path) -> None:
    arguments = build_arguments(SftSettings(), Workspace(tmp_path, 0), dtype=dtype)
    assert [name for name in ("bf16", "fp16") if arguments[name]] == mixed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [0.7, 1.0, 5.0, 24.5])
def test_one_unit_in_the_last_place(dtype, value):
    number = torch.tensor(value, dtype=dtype)
    following = (number.view(torch.int32 if number.itemsize == 4 else torch.int16) + 1).view(dtype)
    assert find_ulp(value, dtype) == float(following) - float(number)


NO_POLICY = SimpleNamespace(model=SimpleNamespace(config=None), processor=None)
PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def _installed(monkeypatch):
    monkeypatch.setattr(import_utils, "is_vllm_available", lambda: True)


def configure(folder, **settings):
    given = build_vllm_arguments(VllmSettings(**settings))
    return GRPOConfig(output_dir=str(folder), use_cpu=True, bf16=False, report_to="none", **given)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"gpu_memory_share": 0.5},
            {
                "mode": "colocate",
                "gpu_memory_utilization": 0.5,
                "importance_sampling_correction": True,
                "importance_sampling_mode": "sequence_mask",
                "importance_sampling_clip_min": None,
                "importance_sampling_clip_max": 3.0,
            },
        ),
        (
            {"mode": "server", "base_url": "http://gpu:9000"},
            {"mode": "server", "server_base_url": "http://gpu:9000"},
        ),
    ],
    ids=["colocated", "served"],
)
@pytest.mark.usefixtures("_installed")
def test_settings_of_vllm_are_those_of_trl(settings, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = configure(tmp_path, **settings)
    assert config.use_vllm
    assert {name: getattr(config, f"vllm_{name}") for name in expected} == expected


def test_without_vllm():
    assert GrpoSettings().vllm is None
    assert build_vllm_arguments(None) == {"use_vllm": False}


def test_a_missing_vllm_is_told_with_what_installs_it(monkeypatch):
    monkeypatch.setattr(import_utils, "is_vllm_available", lambda: False)
    with pytest.raises(TrainingError, match="vLLM, which is not installed; pip install") as caught:
        build_vllm_arguments(VllmSettings())
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = {r.name: r for r in map(Requirement, project["dependencies"])}
    named = {r.name: r for r in map(Requirement, str(caught.value).split("'")[1::2])}
    assert set(named) == {"trl", "transformers"}
    assert all(named[name].specifier == wanted[name].specifier for name in named)
    assert named["trl"].extras == {"vllm"}


@pytest.mark.usefixtures("_installed")
def test_a_server_takes_no_weights_from_a_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match="over NCCL, from a CUDA device only"):
        build_vllm_arguments(VllmSettings(mode="server"))


def test_a_server_that_does_not_answer_is_one_sentence():
    settings = VllmSettings(mode="server")
    with (
        pytest.raises(TrainingError, match=r"got no route; start it as grpo\.vllm describes"),
        prepare_vllm(settings, NO_POLICY),
    ):
        raise OSError("no route")


@pytest.mark.parametrize("settings", [None, VllmSettings()])
def test_other_missing_files_are_no_server(settings):
    with pytest.raises(FileNotFoundError), prepare_vllm(settings, NO_POLICY):
        raise FileNotFoundError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "server", "max_model_length": 9}, "mode server has no max_model_length"),
        ({"base_url": "http://gpu:9000"}, "mode colocate has no base_url"),
        ({"gpu_memory_share": 1.5}, "less than or equal to 1"),
        ({"mode": "both"}, "colocate"),
        ({"gpu_memory_utilization": 0.5}, "Extra inputs"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        GrpoSettings(vllm=settings)


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_resolved_settings_can_be_read_again(mode):
    """They name every field, also those of the other mode."""
    settings = VllmSettings(mode=mode)
    assert VllmSettings(**settings.model_dump()) == settings


def test_settings_that_are_gone_are_read_where_they_changed_nothing():
    """As finished runs say them."""
    kept = {"activation_offloading": True, "ahead": None, "vllm": {"sends": "weights"}}
    speed = {"rewards_beside_scoring": False}
    assert GrpoSettings.model_validate(kept | {"speed": speed}) == GrpoSettings(vllm={})
    for gone in ({"ahead": {}}, {"vllm": {"sends": "adapter"}}):
        with pytest.raises(ValidationError, match="Extra inputs"):
            GrpoSettings.model_validate(gone)
