"""The on-policy check lets correct trainings through and stops each kind of mistake."""

import json
import math

import pytest
import torch
from torch import nn
from training_job import reinforce

from groupwise.core import Message, Score, TrainingError, make_example, open_picture, read_jsonl
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.models.policy import PatchProjection, load_policy
from groupwise.models.sources import list_places
from groupwise.models.trainable import LoraSettings, TrainableSettings, prepare_trainable
from groupwise.training import grpo_trainer
from groupwise.training.on_policy import (
    check_on_policy,
    choose_rows,
    find_worst,
    judge_on_policy,
    measure_noise,
    score_alone,
)


class Length:
    name = "length"

    def __call__(self, example, completion):
        return Score(len(completion.token_ids) / 4)


def train(policy, examples, folder, **settings):
    """One step of GRPO on four prompts."""
    settings = {"temperature": 1.3} | settings
    trained = reinforce(policy, examples[:4], folder, reward=Length(), **settings)
    return trained, json.loads((folder / "on_policy.json").read_text())


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("picture", "lora"),
        ("text", "full"),
        *(
            pytest.param(*which, marks=pytest.mark.slow)
            for which in (
                ("picture", "full"),
                ("mixed", "full"),
                ("mixed", "lora"),
                ("text", "lora"),
            )
        ),
    ],
)
def test_it_is_open(kind, method, taught_folder, taught_text_folder, request, tmp_path):
    policy = load_policy(taught_text_folder if kind == "text" else taught_folder)
    examples = request.getfixturevalue(f"{kind}_examples")
    _, gate = train(
        policy, examples, tmp_path, beta=0.1, trainable=TrainableSettings(method=method)
    )
    assert 3 < gate["num_tokens"] <= 16
    assert gate["max_log_ratio"] <= gate["tolerance"] < 1e-4
    assert gate["max_kl"] == pytest.approx(0, abs=1e-6)
    [row] = read_jsonl(tmp_path / "metrics.jsonl")
    assert row["kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_the_reference_reads_patches_as_the_policy_does(
    taught_folder, picture_examples, tmp_path, monkeypatch
):
    """As a convolution it would round them to TF32 on a GPU."""
    kinds = []

    def look(trainer, policy, *given):
        for model in (policy.model, trainer.ref_model):
            kinds.append({type(one) for one in model.modules() if isinstance(one, nn.Conv3d)})
        return check_on_policy(trainer, policy, *given)

    monkeypatch.setattr(grpo_trainer, "check_on_policy", look)
    train(load_policy(taught_folder), picture_examples, tmp_path, beta=0.1)
    assert kinds == [{PatchProjection}, {PatchProjection}]


def drop_out(policy):
    for module in policy.model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.3


@torch.no_grad()
def change_reference(policy):
    policy.model.model.norm.weight.mul_(1.2)  # the reference is read from the folder


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("fault", "said"), [(drop_out, "log ratio"), (change_reference, "KL [1-9]")]
)
def test_faults_shut_it(fault, said, dtype, taught_text_folder, text_examples, tmp_path):
    policy = load_policy(taught_text_folder, dtype=dtype)
    fault(policy)
    said = rf"the on-policy check failed.*{said if dtype == 'float32' else ''}"
    with pytest.raises(TrainingError, match=said):
        train(policy, text_examples, tmp_path, beta=0.1)


def test_wrong_positions_in_batches_shut_it(taught_folder, picture_examples, tmp_path, monkeypatch):
    policy = load_policy(taught_folder)
    inner = type(policy.model.model)
    get = inner.get_rope_index

    def stretch(self, input_ids, *given, **named):
        positions, deltas = get(self, input_ids, *given, **named)
        return (positions * 2 if input_ids.shape[0] > 1 else positions), deltas

    monkeypatch.setattr(inner, "get_rope_index", stretch)
    with pytest.raises(TrainingError, match="the on-policy check failed"):
        train(policy, picture_examples, tmp_path)


def test_other_pictures_than_in_the_examples_shut_it(
    taught_folder, picture_examples, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        grpo_trainer, "open_picture", lambda picture: open_picture(picture).rotate(180)
    )
    with pytest.raises(TrainingError, match="the on-policy check failed"):
        train(load_policy(taught_folder), picture_examples, tmp_path)


def test_after_an_adapter_the_reference_is_that_adapter(
    taught_text_folder, text_examples, tmp_path
):
    model = prepare_trainable(
        load_policy(taught_text_folder).model, TrainableSettings(lora=LoraSettings(rank=4))
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    model.save_pretrained(tmp_path / "sft")
    policy = load_policy(taught_text_folder)
    policy.processor.save_pretrained(tmp_path / "sft")
    adapter = load_policy(tmp_path / "sft")
    before = {name: value.clone() for name, value in adapter.model.named_parameters()}
    trained, gate = train(
        adapter,
        text_examples,
        tmp_path / "grpo",
        beta=0.1,
        warmup_share=0.0,
        learning_rate=1e-2,
        trainable=TrainableSettings(lora=LoraSettings(rank=4, last_blocks=1)),
    )
    assert gate["max_kl"] == pytest.approx(0, abs=1e-6)
    assert list(trained.model.peft_config) == ["default"]
    after = dict(trained.model.named_parameters())
    assert after.keys() == before.keys()
    changed = {name for name in before if not before[name].equal(after[name])}
    assert len(changed) == 14
    assert all(".layers.2." in name and ".default." in name for name in changed)


def test_judging_compares_token_by_token():
    trained = torch.tensor([-1.0, -2.0, -3.0])
    result = judge_on_policy(trained=trained, alone=trained, reference=trained, noise=1e-4)
    assert (result.num_tokens, result.max_log_ratio, result.max_kl) == (3, 0.0, 0.0)
    assert judge_on_policy(trained=trained, alone=trained, reference=None, noise=0).max_kl is None
    swapped = trained[[1, 0, 2]]
    with pytest.raises(TrainingError, match=r"log ratio\| 1.00e\+00 and KL none"):
        judge_on_policy(trained=trained, alone=swapped, reference=None, noise=1e-4)
    with pytest.raises(TrainingError, match=r"at most 2e-04 and 2e-08, twice what rounding does"):
        judge_on_policy(trained=trained, alone=trained, reference=swapped, noise=1e-4)


@pytest.mark.parametrize("num_rows", [1, 3, 4, 48])
def test_rows_are_checked_from_the_shortest_prompt_to_the_longest(num_rows):
    sizes = [(7 * place) % num_rows for place in range(num_rows)]
    found = [sizes[place] for place in choose_rows(sizes, 4)]
    assert len(found) == len(set(found)) == min(num_rows, 4)
    assert {0, num_rows - 1} <= set(found)


def test_rounding_is_measured_on_the_rows_that_differ_most():
    alone = [torch.zeros(3) for _ in range(4)]
    trained = [torch.tensor([0.0, gap, 0.0]) for gap in (0.25, -2.0, 0.5, 0.0)]
    assert find_worst(trained, alone, 2) == [1, 2]


def test_another_attention_kernel_counts_as_rounding_in_float32_and_in_rows_not_too_long(
    taught_text_folder, text_examples, monkeypatch
):
    """On some processors the fused kernel rounds one way whatever the shape."""
    policy = load_policy(taught_text_folder)
    policy.model.eval()
    fused = nn.functional.scaled_dot_product_attention

    def attend(*given, **named):
        scale = 1 if torch.backends.cuda.flash_sdp_enabled() else 1.01
        return scale * fused(*given, **named)

    def measure(dtype=torch.float32):
        rows = [(text_examples[0], [5, 6, 7])]
        return measure_noise(policy, rows, temperature=1.0, dtype=dtype).largest

    with torch.no_grad():
        alike, coarse = measure(), measure(torch.bfloat16)
        monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", attend)
        assert measure() > 100 * alike
        assert measure(torch.bfloat16) == coarse
        monkeypatch.setattr("groupwise.training.on_policy._MAX_PLAIN_TOKENS", 1)
        assert measure() < 2 * alike


def test_twice_the_noise_is_accepted():
    trained = torch.tensor([-1.0, -2.0, -3.0])
    near, far = trained + 0.125, trained + 0.1875
    assert (
        judge_on_policy(trained=trained, alone=near, reference=near, noise=0.0625).tolerance
        == 0.125
    )
    for alone, reference in ((far, None), (trained, far), (trained * torch.nan, None)):
        with pytest.raises(TrainingError, match="on-policy check failed"):
            judge_on_policy(trained=trained, alone=alone, reference=reference, noise=0.0625)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("text", "lora"),
        *(
            pytest.param(*which, marks=pytest.mark.slow)
            for which in (("vision", "lora"), ("vision", "full"), ("text", "full"))
        ),
    ],
)
def test_it_is_open_in_bfloat16_and_prompts_are_shared(
    kind, method, taught_folder, taught_text_folder, picture_examples, text_examples, tmp_path
):
    """Sharing is on, so that a fallback would stop the training."""
    folder, examples = (
        (taught_text_folder, text_examples) if kind == "text" else (taught_folder, picture_examples)
    )
    _, gate = train(
        load_policy(folder, dtype="bfloat16"),
        examples,
        tmp_path,
        beta=0.1,
        speed={"shared_prefix": "on"},
        trainable=TrainableSettings(method=method),
    )
    assert 0 < gate["max_log_ratio"] <= gate["tolerance"] < 0.2
    assert 0 < gate["mean_log_ratio"] <= gate["mean_tolerance"] < gate["tolerance"]


def test_many_tokens_that_are_off_a_little_shut_it_where_a_single_one_may_be_off_far():
    trained = torch.linspace(-4, -1, 400)
    single = trained.clone()
    single[7] += 0.7
    found = judge_on_policy(
        trained=trained, alone=single, reference=None, noise=0.4, mean_noise=0.06
    )
    assert found.mean_log_ratio == pytest.approx(0.7 / 400, rel=1e-3)
    assert found.mean_tolerance == pytest.approx(0.06 * 1.15)
    off = trained + torch.tensor([0.16, -0.16]).repeat(200)
    for alone, reference in ((off, None), (trained, off), (trained + torch.nan, None)):
        with pytest.raises(TrainingError, match="on-policy check failed"):
            judge_on_policy(
                trained=trained, alone=alone, reference=reference, noise=0.4, mean_noise=0.06
            )
    # Of few tokens the mean says less.
    few = off[:4]
    assert judge_on_policy(
        trained=trained[:4],
        alone=few * 0.4 + trained[:4] * 0.6,
        reference=None,
        noise=0.4,
        mean_noise=0.06,
    )


def score_shifted(policy, rows, shift):
    """Return what a padded pass gives whose completions stand ``shift`` positions too far."""
    prompts = [policy.processor(text=policy.render_prompt(one))["input_ids"] for one, _ in rows]
    width, length = max(map(len, prompts)), max(len(said) for _, said in rows)
    ids = torch.zeros(len(rows), width + length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, (_, said)) in enumerate(zip(prompts, rows, strict=True)):
        filled = slice(width - len(prompt), width + len(said))
        ids[row, filled], mask[row, filled] = torch.tensor([*prompt, *said]), 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    positions[:, width:] += shift
    logits = policy.model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    scores = logits[:, width - 1 : -1].float().log_softmax(-1)
    return torch.cat(
        [
            scores[row, : len(said)].gather(1, torch.tensor([said]).T)[:, 0]
            for row, (_, said) in enumerate(rows)
        ]
    )


@pytest.mark.slow
@torch.no_grad()
def test_positions_that_are_off_by_one_shut_it_in_bfloat16_with_real_weights(users_models):
    """The farthest token alone lets them pass: of real weights single ones are far off."""
    folders = list_places("smollm2-135m-instruct")
    if not folders:
        pytest.skip("smollm2-135m-instruct is not on this machine; groupwise models fetch it")
    policy = load_policy(folders[0], dtype="bfloat16")
    asked = (
        *("What is 2+3?", "Name a colour.", "List three animals.", "Say hello."),
        *("Explain why the sky is blue to a child who asks.", "What comes after Monday?"),
        "A farmer has 17 sheep and buys 5 more, then sells 8. How many sheep has the farmer now?",
        "Write a short sentence about the sea and the boats that go out in the morning.",
    )
    examples = [make_example([Message("user", text)], cluster=text) for text in asked]
    sampling = Sampling(temperature=1.0, max_new_tokens=32, seed=1)
    said = LocalModel(policy).generate(examples, sampling=sampling)
    rows = [(one, list(own[0].token_ids)) for one, own in zip(examples, said, strict=True)]
    alone = torch.cat([score_alone(policy, *row, temperature=1.0) for row in rows])
    noise = measure_noise(policy, rows, temperature=1.0, dtype=torch.bfloat16)

    def judge(shift, largest):
        trained = score_shifted(policy, rows, shift)
        return judge_on_policy(
            trained=trained, alone=alone, reference=None, noise=largest, mean_noise=noise.mean
        )

    assert judge(0, noise.largest).mean_log_ratio < noise.mean
    for shift in (1, 2):  # in longer answers rounding moves the farthest token as far as these do
        with pytest.raises(TrainingError, match="do not agree on average"):
            judge(shift, math.inf)
