"""What is said of a training before it starts."""

import re

import pytest

from groupwise.data import TokenBudget
from groupwise.models import (
    LoraSettings,
    ModelSettings,
    ModelShape,
    Outline,
    PromptSettings,
    TrainableSettings,
)
from groupwise.training import (
    Batch,
    GrpoSettings,
    Place,
    SftSettings,
    check_base,
    check_blocks,
    check_lengths,
    preview_grpo,
    preview_memory,
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


@pytest.mark.parametrize(
    ("method", "last", "num_problems"),
    [("lora", None, 0), ("lora", 4, 0), ("lora", 5, 1), ("full", 5, 0)],
)
def test_more_blocks_than_there_are_is_a_problem_that_names_the_stage(method, last, num_problems):
    stage = SftSettings(trainable=make_trainable(method, last_blocks=last))
    stages = {"sft": SftSettings(), "grpo": stage}
    found = check_blocks(SHAPE.num_blocks, stages)
    words = "grpo.trainable.lora.last_blocks: 5 is more than the model's 4 blocks"
    assert found == [words] * num_problems


STEPS = ("grpo steps", "about 3 of 2 prompts x 4 completions")


def preview(model, sft, grpo):
    return preview_grpo(model, sft=sft, grpo=grpo, num_prompts=7)


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


def remember(model, place=CPU, **stages):
    return preview_memory(model, stages, batch=Batch(40, 9), place=place)


@pytest.fixture
def free(monkeypatch):
    def set_free(mib):
        monkeypatch.setattr("groupwise.training.preview.read_free_memory", lambda: mib << 20)

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
    monkeypatch.setattr("groupwise.training.preview.find_outline", lambda _: outline)
    told = remember(ModelSettings(base="some/experts", max_pixels=784), sft=SftSettings())
    line = "? (no training of experts was held against an estimate)"
    assert told == ([("memory of sft", line)], {})


def test_of_a_tiny_model_no_memory_is_told():
    model = ModelSettings(base="tiny-qwen2", max_pixels=784)
    assert remember(model, grpo=make_settings()) == ([], {})
