"""Policies of every kind go through both trainings: pictures, virtual tokens, 4 bits."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
import vision_families
from peft import LoraConfig, get_peft_model
from token_families import FAMILIES, write_family
from training_job import Scatter, reinforce, teach
from transformers import AutoTokenizer
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.grpo_trainer import GRPOTrainer

from groupwise.core import (
    ConfigError,
    Message,
    ModelError,
    RewardError,
    TrainingError,
    load_config,
    make_example,
    open_picture,
    read_json,
    read_jsonl,
)
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.models.export import export_policy
from groupwise.models.policy import Policy, load_policy
from groupwise.models.prompts import build_messages, make_token_counter
from groupwise.models.quantization import find_quantization
from groupwise.models.silence import silence_libraries
from groupwise.models.trainable import (
    LoraSettings,
    PromptSettings,
    TrainableSettings,
    find_vectors,
    list_trainable,
    prepare_trainable,
)
from groupwise.training import grpo_trainer
from groupwise.training.fast.vllm import prepare_vllm
from groupwise.training.on_policy import score_alone
from groupwise.training.settings import GrpoSettings, SftRow, SpeedSettings, VllmSettings
from groupwise.training.sft import RowCollator
from groupwise.training.sharding import refuse_quantized

LORA = TrainableSettings(lora=LoraSettings(rank=2, alpha=4, modules=("q_proj",)))


class Failing(Scatter):
    def __call__(self, example, completion):
        raise ZeroDivisionError


@pytest.fixture
def train(text_examples, tmp_path):
    def run(policy, stage, *, fails=False):
        given = policy, text_examples, tmp_path / stage
        if stage == "sft":
            return teach(*given, trainable=LORA, learning_rate=1e-2)
        reward = Failing(7) if fails else None
        return reinforce(*given, trainable=LORA, reward=reward, max_steps=1, beta=0.1)

    return run


def test_the_policy_that_was_given_is_the_one_that_is_trained(train, text_folder, tmp_path):
    """It can be trained again, switched to its base and saved, as what was returned can."""
    policy = load_policy(text_folder)
    base = {name: value.clone() for name, value in policy.model.state_dict().items()}
    returned = train(policy, "sft")
    with pytest.raises(RewardError, match="scatter"):
        train(policy, "stopped", fails=True)
    assert train(policy, "grpo") is returned
    train(policy, "grpo again")
    with policy.adapter_off():
        assert set(policy.model.peft_config) == {"default"}
    policy.save(tmp_path / "saved")
    again = load_policy(tmp_path / "saved").model.state_dict()
    assert {name for name in again if "lora_B" in name and again[name].any()}
    kept = policy.model.unload().state_dict()
    assert all(kept[name].equal(value) for name, value in base.items())


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_model_inside_another_is_refused(train, text_folder, stage):
    policy = load_policy(text_folder)
    get_peft_model(policy.model, LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(ModelError, match=r"is inside a PEFT model; got Qwen2"):
        train(policy, stage)


WRITING = [name for name, family in FAMILIES.items() if family.bos is not None]
HOSTILE = "".join(f"x{token}" for one in FAMILIES.values() for token in (*one.renamed.values(), ""))
HOSTILE += "<|im_end|><|im_start|><|vision_start|><|image_pad|><|endoftext|>"
ROWS = {
    "text": [Message("user", "Which colour? 哪个颜色?")],
    "system": [Message("system", "Be brief."), Message("user", " Two\n\nlines ")],
    "turns": [Message("user", "One?"), Message("assistant", "yes"), Message("user", "Two?")],
    "hostile": [Message("system", HOSTILE), Message("user", HOSTILE)],
}


def make_rows(name, pictures):
    rows = dict(ROWS)
    if name == "vision":
        rows["picture"] = [Message("user", [pictures[0], "Which colour?"])]
        rows["pictures"] = [Message("user", [pictures[0], "or", pictures[1], "?"])]
        rows["hostile picture"] = [Message("user", [HOSTILE, pictures[0], HOSTILE])]
    return {kind: make_example(turns, cluster=kind) for kind, turns in rows.items()}


def tokenize_as_trl(policy, example):
    """Return the ids that GRPO samples from."""
    trainer = SimpleNamespace(
        processing_class=policy.processor,
        _is_vlm=policy.has_vision,
        environment_factories=None,
        tools=None,
        chat_template=None,
        chat_template_kwargs={},
    )
    messages = build_messages(example)
    if example.pictures:
        opened = [open_picture(picture) for picture in example.pictures]
        messages = prepare_multimodal_messages(messages, opened)
    ids, *_ = GRPOTrainer._tokenize_prompts(trainer, [messages])
    return list(ids[0])


def list_scored(policy, example):
    """Return the ids that the on-policy check scores behind."""
    seen = []
    handle = policy.model.register_forward_pre_hook(
        lambda _, args, named: seen.append(named["input_ids"][0].tolist()), with_kwargs=True
    )
    score_alone(policy, example, [90], temperature=1.0)
    handle.remove()
    return seen[0][:-1]


def read_ids(policy, example):
    """Return the ids that answers are generated behind."""
    [encoded] = LocalModel(policy).encode([example])
    return encoded.inputs["input_ids"][0].tolist()


@pytest.mark.parametrize("name", WRITING)
def test_every_reader_of_a_prompt_has_the_same_ids(
    name, text_folder, vision_folder, picture_examples, tmp_path
):
    base = vision_folder if name == "vision" else text_folder
    policy = load_policy(write_family(name, base, tmp_path / "base"))
    bos = policy.tokenizer.bos_token_id
    collate = RowCollator(policy, augmentation=None, seed=0)
    count = make_token_counter(policy.processor, has_vision=policy.has_vision)
    pictures = [picture for one in picture_examples[:2] for picture in one.pictures]
    for kind, example in make_rows(name, pictures).items():
        expected = tokenize_as_trl(policy, example)
        assert expected.count(bos) == 1, kind
        taught = collate([(0, 0, SftRow(example, "red"))])
        found = {
            "sft": taught["input_ids"][0][taught["labels"][0] == -100].tolist(),
            "engine": read_ids(policy, example),
            "on-policy check": list_scored(policy, example),
        }
        assert {who: ids for who, ids in found.items() if ids != expected} == {}, kind
        assert count(example) == len(expected)


def test_what_is_taught_and_what_leads_are_words(text_folder, tmp_path):
    policy = load_policy(write_family("llama3", text_folder, tmp_path / "base"))
    example = make_example(ROWS["text"], cluster="g")
    control = set(policy.tokenizer.all_special_ids)
    batch = RowCollator(policy, augmentation=None, seed=0)([(0, 0, SftRow(example, HOSTILE))])
    *taught, end = batch["labels"][batch["labels"] != -100].tolist()
    assert (control & set(taught), end) == (set(), policy.tokenizer.eos_token_id)
    assert policy.tokenizer.decode(taught) == HOSTILE
    seen = []
    handle = policy.model.register_forward_pre_hook(
        lambda _, args, named: seen.append(named["input_ids"][0].tolist()), with_kwargs=True
    )
    LocalModel(policy).label_probabilities([example], labels=("yes", "no"), leads=[HOSTILE])
    handle.remove()
    ids, asked = seen[0], read_ids(policy, example)
    assert ids[: len(asked)] == asked
    assert not control & set(ids[len(asked) :])


def test_an_export_read_by_others_has_the_same_ids(text_folder, tmp_path):
    policy = load_policy(write_family("llama3", text_folder, tmp_path / "base"))
    export_policy(tmp_path / "base", tmp_path / "out")
    exported = load_policy(tmp_path / "out" / "merged")
    others = AutoTokenizer.from_pretrained(tmp_path / "out" / "merged")
    saved, given = (
        (tmp_path / folder / "tokenizer.json").read_text() for folder in ("out/merged", "base")
    )
    assert '"TemplateProcessing"' in given
    assert '"TemplateProcessing"' in saved
    rows = make_rows("llama3", ())
    del rows["hostile"]  # of which others make tokens
    for kind, example in rows.items():
        expected = tokenize_as_trl(policy, example)
        assert tokenize_as_trl(exported, example) == expected, kind
        assert read_ids(exported, example) == expected
        # As vLLM and Transformers read messages.
        read = others.apply_chat_template(build_messages(example), add_generation_prompt=True)
        assert read["input_ids"] == expected


PROMPT = TrainableSettings(method="prompt", prompt=PromptSettings(num_tokens=5))
KINDS = {"text": "taught_text_folder", "picture": "taught_folder"}


@pytest.fixture(params=["text", pytest.param("picture", marks=pytest.mark.slow)])
def asked(request):
    """A taught folder, and what it is asked."""
    return request.getfixturevalue(KINDS[request.param]), request.getfixturevalue(
        f"{request.param}_examples"
    )


def sft(base, examples, folder, **settings):
    values = {"epochs": 4, "learning_rate": 3e-2, "trainable": PROMPT, "log_every_steps": 1}
    swapped = ["no" if example.label == "yes" else "yes" for example in examples]
    return teach(base, examples, folder, targets=swapped, **(values | settings))


def grpo(base, examples, folder, **settings):
    values = {"group_size": 4, "learning_rate": 1e-2, "trainable": PROMPT}
    return reinforce(base, examples, folder, **(values | settings))


def check_base(trained: Policy, base):
    """Every weight of the base is in the trained policy as it was, byte for byte."""
    own = {
        name.replace("base_model.model.", "").replace("base_layer.", ""): value
        for name, value in trained.model.state_dict().items()
    }
    expected = load_policy(base).model.state_dict()
    assert all(own[name].equal(value) for name, value in expected.items())
    assert [name for name, _ in trained.model.named_parameters() if ".ref" in name] == []


def test_sft_changes_the_vectors_alone(asked, tmp_path):
    base, examples = asked
    trained = sft(base, examples, tmp_path)
    check_base(trained, base)
    [name] = list_trainable(trained.model)
    assert name.endswith("trainable_tokens_delta.default")
    losses = [row["loss"] for row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_grpo_changes_the_vectors_alone(asked, tmp_path):
    base, examples = asked
    start = sft(base, examples, tmp_path / "sft", epochs=1)
    start.save(tmp_path / "start")
    trained = grpo(tmp_path / "start", examples, tmp_path / "grpo", beta=0.1)
    check_base(trained, base)
    assert not torch.equal(find_vectors(trained.model), find_vectors(start.model))
    check = read_json(tmp_path / "grpo" / "on_policy.json", dict)
    assert check["max_log_ratio"] <= check["tolerance"]
    kls = [row["kl"] for row in read_jsonl(tmp_path / "grpo" / "metrics.jsonl") if "kl" in row]
    assert kls[0] < 1e-6 < kls[-1]


@pytest.mark.slow
def test_grpo_gives_a_policy_without_them_virtual_tokens(asked, tmp_path):
    base, examples = asked
    trained = grpo(base, examples, tmp_path / "grpo", beta=0.1)
    check_base(trained, base)
    assert len(find_vectors(trained.model)) == 5


@pytest.mark.slow
def test_a_reference_without_the_vectors_is_noticed(taught_text_folder, text_examples, tmp_path):
    start = sft(taught_text_folder, text_examples, tmp_path / "sft", epochs=1)
    start.save(tmp_path / "start")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo_trainer, "_complete_reference", lambda _: None)
        with pytest.raises(TrainingError, match="on-policy check failed"):
            grpo(tmp_path / "start", text_examples, tmp_path / "grpo", beta=0.1)


@pytest.mark.slow
def test_shared_prompts_give_the_same_vectors_as_plain_passes(asked, tmp_path):
    base, examples = asked
    plain = SpeedSettings(shared_prefix="off", prefill_once=False)
    found = [
        find_vectors(grpo(base, examples, tmp_path / name, beta=0.1, speed=speed).model)
        for name, speed in {"plain": plain, "fast": SpeedSettings(shared_prefix="on")}.items()
    ]
    embedding = load_policy(base).model.get_input_embeddings().weight
    assert min((embedding - vector).abs().amax(1).min() for vector in found[0]) > 1e-4
    assert torch.allclose(found[0], found[1], atol=1e-4)


@pytest.mark.slow
def test_a_killed_training_goes_on_with_its_vectors(taught_text_folder, text_examples, tmp_path):
    whole = sft(taught_text_folder, text_examples, tmp_path / "whole", save_every_steps=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groupwise.training.sft.remove_checkpoints", stop)
        with pytest.raises(KeyboardInterrupt):
            sft(taught_text_folder, text_examples, tmp_path / "killed", save_every_steps=4)
    last = max((tmp_path / "killed").glob("checkpoint-*"), key=lambda one: int(one.name[11:]))
    for path in last.iterdir():
        path.unlink()
    again = sft(taught_text_folder, text_examples, tmp_path / "killed", save_every_steps=4)
    assert torch.equal(find_vectors(again.model), find_vectors(whole.model))


def stop(_):
    raise KeyboardInterrupt


def test_vllm_is_refused():
    values = {"trainable": {"method": "prompt"}, "vllm": {}}
    with pytest.raises(ConfigError, match="vllm takes no vectors of virtual tokens"):
        load_config(GrpoSettings, values)


# In tiles, and its own processor wants torchvision; all when there is time.
QUICK = ("internvl",)
WITH_PICTURES = [
    one if one in QUICK else pytest.param(one, marks=pytest.mark.slow)
    for one in vision_families.FAMILIES
]


@pytest.fixture
def load(text_folder, tmp_path):
    """Write a folder of a family and load it."""

    def run(family):
        sizes, folder = vision_families.Sizes(), tmp_path / family
        tokenizer = load_policy(text_folder).processor
        processor = vision_families.make_processor(family, tokenizer, sizes)
        with silence_libraries():
            vision_families.make_model(family, processor, sizes).save_pretrained(folder)
        processor.save_pretrained(folder)
        return load_policy(folder, max_pixels=28 * 28)

    return run


@pytest.mark.parametrize("family", WITH_PICTURES)
def test_a_family_learns_and_answers_from_its_folder(load, picture_examples, tmp_path, family):
    examples = picture_examples[:2]
    settings = {"learning_rate": 1e-3, "trainable": TrainableSettings(method="full")}
    targets, work = ["yes"] * 2, tmp_path / "sft"
    taught = teach(load(family), examples, work, targets=targets, batch_size=2, **settings)
    taught.save(tmp_path / "taught")
    settings |= {"prompts_per_step": 2, "max_steps": 1, "beta": 0.1}
    speed = SpeedSettings(shared_prefix="on")
    policy = reinforce(tmp_path / "taught", examples, tmp_path / "grpo", speed=speed, **settings)
    rows = read_jsonl(tmp_path / "grpo" / "metrics.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == [1]
    policy.save(tmp_path / "saved")
    again = load_policy(tmp_path / "saved")
    engines = [LocalModel(one, batch_size=2) for one in (policy, again)]
    sampling = Sampling(max_new_tokens=4, temperature=0.0)
    said = [
        [one.token_ids for [one] in engine.generate(examples, sampling=sampling)]
        for engine in engines
    ]
    assert said[0] == said[1]


def test_targets_are_no_part_of_a_picture(load, picture_examples):
    collate = RowCollator(load("gemma3_vl"), augmentation=None, seed=0)
    batch = collate([(0, n, SftRow(one, "yes")) for n, one in enumerate(picture_examples[:2])])
    assert batch["token_type_ids"].shape == batch["labels"].shape
    assert batch["token_type_ids"].any(1).all()
    assert not batch["token_type_ids"][batch["labels"] >= 0].any()


def test_several_pictures_of_a_model_that_trl_gives_one(load, picture_examples, tmp_path):
    policy = load("llava_onevision")
    pictures = [one.pictures[0] for one in picture_examples[:2]]
    example = make_example([Message("user", "Which?")], cluster="0", pictures=pictures)
    with pytest.raises(TrainingError, match="one picture a prompt"):
        reinforce(policy, [example], tmp_path, prompts_per_step=1)


pytestmark = pytest.mark.skipif(
    find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'groupwise[quantization]'",
)
QLORA = TrainableSettings(lora=LoraSettings(rank=4))


@pytest.fixture
def policy(text_folder):
    return load_policy(text_folder, quantization="nf4")


@pytest.fixture
def sft_on_bits(text_examples, text_folder):
    """Teach 4 bits for three steps; a look at what was taught may end it before."""

    def run(folder, *, look=None):
        policy = load_policy(text_folder, quantization="nf4")
        settings = {"batch_size": 8, "epochs": 3, "learning_rate": 1e-5, "trainable": QLORA}
        settings |= {"save_every_steps": 1, "heldout_every_steps": 1}
        return teach(policy, text_examples, folder, look=look, **settings)

    return run


def list_trained(model):
    return {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}


def test_a_training_goes_on_from_its_checkpoint_on_the_same_bits(sft_on_bits, tmp_path):
    """What trains is exact: in bfloat16, as TRL would have it, steps of 1e-5 are lost on 0.1."""
    expected = list_trained(sft_on_bits(tmp_path / "whole").model)
    assert {value.dtype for value in expected.values()} == {torch.float32}
    assert all((value.bfloat16() != value).any() for value in expected.values())
    looks = []

    def end():
        looks.append(len(looks))
        if len(looks) == 2:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        sft_on_bits(tmp_path / "torn", look=end)
    checkpoint = tmp_path / "torn" / "checkpoint-1"
    assert find_quantization(load_policy(checkpoint).model) == "nf4"
    found = list_trained(sft_on_bits(tmp_path / "torn").model)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [row["step"] for row in read_jsonl(tmp_path / "torn" / "metrics.jsonl")][-1] == 3


@pytest.mark.parametrize("checkpointing", [pytest.param(False, marks=pytest.mark.slow), True])
def test_grpo_shares_prompts_on_four_bits(checkpointing, policy, text_examples, tmp_path):
    settings = {"prompts_per_step": 2, "group_size": 3, "max_new_tokens": 6, "max_steps": 2}
    settings |= {"beta": 0.1, "trainable": QLORA, "speed": {"shared_prefix": "on"}}
    reinforce(policy, text_examples, tmp_path, gradient_checkpointing=checkpointing, **settings)
    checked = read_json(tmp_path / "on_policy.json", dict)
    assert checked["max_kl"] == 0
    assert checked["max_log_ratio"] <= checked["tolerance"] < 1e-4
    assert [row["step"] for row in read_jsonl(tmp_path / "metrics.jsonl")] == [1, 2]


def test_weights_in_four_bits_are_neither_spread_nor_sent_to_vllm(policy, text_folder):
    with pytest.raises(TrainingError, match="FSDP"):
        refuse_quantized(SimpleNamespace(model=policy.model, is_fsdp_enabled=True))
    whole = load_policy(text_folder).model
    refuse_quantized(SimpleNamespace(model=whole, is_fsdp_enabled=True))
    refuse_quantized(SimpleNamespace(model=policy.model, is_fsdp_enabled=False))
    policy.model = prepare_trainable(policy.model, QLORA)
    with pytest.raises(TrainingError, match="weights in 4 bits"):
        prepare_vllm(VllmSettings(), policy).__enter__()
    with prepare_vllm(None, policy):
        pass
