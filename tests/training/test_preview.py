"""What is said of a training before it starts."""

import re

import pytest

from groupwise.data import TokenBudget
from groupwise.models import (
    LoraSettings,
    ModelSettings,
    ModelShape,
    PromptSettings,
    TrainableSettings,
)
from groupwise.training import (
    GrpoSettings,
    SftSettings,
    check_base,
    check_blocks,
    check_lengths,
    estimate_step_memory,
    preview_grpo,
)

SHAPE = ModelShape(num_parameters=2**30, num_blocks=4, hidden_size=1024, vocabulary_size=2**15)


def make_settings(**values):
    return GrpoSettings(prompts_per_step=2, group_size=4, max_new_tokens=64, **values)


def make_trainable(method, **lora):
    return TrainableSettings(method=method, lora=LoraSettings(**lora))


def test_each_part_of_a_step_is_counted():
    lora = make_trainable("lora", rank=16, last_blocks=2, modules=("q_proj", "v_proj"))
    found = estimate_step_memory(
        make_settings(trainable=lora), SHAPE, tokens_per_prompt=192, dtype="bfloat16"
    )
    assert found.weights_mib == 2048
    assert found.training_state_mib == 2 * 16 * 1024 * 2 * 2 * 12 // 2**20
    assert found.activations_mib == 8 * (192 + 64) * 1024 * 16 * 4 * 2 // 2**20
    assert found.logits_mib == 8 * 64 * 2**15 * 8 // 2**20


def test_all_weights_have_a_training_state_in_full_training():
    full = make_settings(trainable=make_trainable("full", last_blocks=1))
    assert estimate_step_memory(full, SHAPE, tokens_per_prompt=1).training_state_mib == 12 * 1024


def test_an_adapter_is_on_all_blocks_unless_some_are_named():
    found = [
        estimate_step_memory(
            make_settings(trainable=make_trainable("lora", rank=512, last_blocks=last)),
            SHAPE,
            tokens_per_prompt=1,
        )
        for last in (None, 4, 1)
    ]
    assert found[0] == found[1]
    assert found[1].training_state_mib == 4 * found[2].training_state_mib


def test_of_virtual_tokens_the_vectors_are_counted():
    prompt = TrainableSettings(method="prompt", prompt=PromptSettings(num_tokens=2**10))
    found = estimate_step_memory(make_settings(trainable=prompt), SHAPE, tokens_per_prompt=192)
    assert found.training_state_mib == 2**10 * 1024 * 12 // 2**20


def test_checkpointing_saves_activations():
    plain, checkpointed = (
        estimate_step_memory(make_settings(gradient_checkpointing=on), SHAPE, tokens_per_prompt=448)
        for on in (False, True)
    )
    assert checkpointed.activations_mib < plain.activations_mib
    assert checkpointed.logits_mib == plain.logits_mib


def test_an_estimate_says_its_parts():
    text = estimate_step_memory(make_settings(), SHAPE, tokens_per_prompt=1).describe("a step")
    assert text.startswith("4,")
    assert "MiB in a step (weights 4,096, training state " in text
    assert text.endswith("logits 128)")


@pytest.mark.parametrize(
    ("base", "shape", "words"),
    [
        ("some/model", SHAPE, []),
        ("some/model", None, ["model.base: some/model is neither a folder"]),
        (
            "runs/a/policy",
            None,
            ["model.base: there is no folder runs/a/policy; make it first, or give another base"],
        ),
        ("tiny-qwen2", None, []),
    ],
)
def test_a_model_that_is_not_there_is_a_problem(base, shape, words):
    found = check_base(ModelSettings(base=base, max_pixels=784, shape=shape))
    assert [problem.partition(" nor ")[0] for problem in found] == words


def test_an_adapter_is_not_said_to_be_missing(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (problem,) = check_base(ModelSettings(base=str(tmp_path), max_pixels=784))
    assert "holds no whole model" in problem


@pytest.mark.parametrize(
    ("method", "last", "num_problems"),
    [("lora", None, 0), ("lora", 4, 0), ("lora", 5, 1), ("full", 5, 0)],
)
def test_more_blocks_than_there_are_is_a_problem_that_names_the_stage(method, last, num_problems):
    stage = SftSettings(trainable=make_trainable(method, last_blocks=last))
    stages = {"sft": SftSettings(), "grpo": stage}
    found = check_blocks(SHAPE, stages)
    words = "grpo.trainable.lora.last_blocks: 5 is more than the model's 4 blocks"
    assert found == [words] * num_problems


STEPS = ("grpo steps", "about 3 of 2 prompts x 4 completions")


def preview(model, sft, grpo):
    return preview_grpo(model, sft=sft, grpo=grpo, num_prompts=7, tokens_per_prompt=9)


@pytest.mark.parametrize(("stage", "last"), [("sft", 5), ("grpo", 6), ("none", 0)])
def test_a_dry_run_tells_memory_and_problems_of_both_stages(stage, last, tmp_path):
    settings = {"sft": SftSettings(), "grpo": make_settings()}
    if last:
        trainable = make_trainable("lora", last_blocks=last)
        settings[stage] = settings[stage].model_copy(update={"trainable": trainable})
    model = ModelSettings(
        base=str(tmp_path / "gone"), max_pixels=784, shape=SHAPE, dtype="bfloat16"
    )
    facts, problems = preview(model, **settings)
    memory = estimate_step_memory(settings["grpo"], SHAPE, tokens_per_prompt=9, dtype="bfloat16")
    assert facts == [STEPS, ("memory estimate", memory.describe("a GRPO step"))]
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
    facts, _ = preview_grpo(
        model, sft=SftSettings(), grpo=settings, num_prompts=12_500, tokens_per_prompt=9
    )
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
        (511, False, 64, "data.budget.max_prompt_tokens: 511 is less than .* 512 tokens; ask less"),
        (512, False, 65, "grpo.max_new_tokens: 64 cannot hold .* 65 tokens; raise it"),
    ],
)
def test_prompts_and_answers_have_to_fit(limit, allow_longer, tokens_per_answer, words):
    found = check_lengths(
        TokenBudget(max_prompt_tokens=limit, allow_longer=allow_longer),
        make_settings(),
        tokens_per_prompt=512,
        tokens_per_answer=tokens_per_answer,
        fix="ask less",
    )
    assert len(found) == bool(words)
    assert re.fullmatch(words, "".join(found))
