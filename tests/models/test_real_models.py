"""Real weights: what packages carry becomes models that answer, see and learn."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from training_job import reinforce, teach

from groupwise.core import Message, make_example, read_jsonl, read_picture
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.models.export import export_policy
from groupwise.models.policy import Policy, load_policy
from groupwise.models.sources import list_places
from groupwise.models.trainable import LoraSettings, TrainableSettings

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("users_models")]


def load(name: str) -> Policy:
    """Load a model from its packages."""
    folders = [place for place in list_places(name) if Path(place).is_dir()]
    if not folders:
        pytest.skip(f"{name} is not on this machine; groupwise models fetch {name}")
    return load_policy(folders[0])


def answer(policy: Policy, example, num_tokens: int) -> str:
    engine = LocalModel(policy, batch_size=1)
    sampling = Sampling(max_new_tokens=num_tokens, temperature=0.0)
    [[completion]] = engine.generate([example], sampling=sampling)
    return completion.text


def test_a_text_model_answers_sensibly_and_learns_in_a_step(tmp_path: Path):
    policy = load("smollm2-135m-instruct")
    asked = make_example([Message("user", "What is the capital of France?")], cluster="a")
    assert "Paris" in answer(policy, asked, 12)
    settings = {"epochs": 4, "learning_rate": 1e-3, "log_every_steps": 1}
    settings["trainable"] = TrainableSettings(method="lora", lora=LoraSettings(rank=8))
    work, targets = tmp_path / "sft", ["It is Lyon."] * 2
    taught = teach(policy, [asked] * 2, work, targets=targets, batch_size=2, **settings)
    losses = [one["loss"] for one in read_jsonl(work / "metrics.jsonl") if "loss" in one]
    assert losses[-1] < losses[0]
    taught.save(tmp_path / "taught")
    again = load_policy(tmp_path / "taught")
    assert answer(again, asked, 12) == answer(taught, asked, 12)


def test_a_model_with_pictures_sees_them_learns_and_is_exported(tmp_path: Path):
    policy = load("small-vlm")
    examples = []
    for place, colour in enumerate(("red", "blue")):
        Image.new("RGB", (300, 200), colour).save(tmp_path / f"{colour}.png")
        picture = read_picture(tmp_path / f"{colour}.png")
        turn = [Message("user", "Which colour is it?")]
        examples.append(make_example(turn, cluster=str(place), pictures=[picture], label=colour))
    text = policy.render_prompt(examples[0])
    fields = policy.processor(text=[text], images=[[Image.open(tmp_path / "red.png")]])
    assert fields["input_ids"][0].count(policy.model.config.image_token_id) == 16
    settings = {"batch_size": 2, "epochs": 80, "learning_rate": 3e-4}
    settings["trainable"] = TrainableSettings(method="full", freeze_aligner=False)
    taught = teach(policy, examples, tmp_path / "sft", **settings)
    assert [answer(taught, one, 4) for one in examples] == ["red", "blue"]
    # An adapter is kept without its base, which has to be in a folder of its own.
    taught.save(tmp_path / "taught")
    taught = load_policy(tmp_path / "taught")
    settings = {"prompts_per_step": 2, "temperature": 1.0, "learning_rate": 1e-5, "max_steps": 1}
    settings |= {"speed": {"shared_prefix": "on"}, "trainable": TrainableSettings(method="lora")}
    trained = reinforce(taught, examples, tmp_path / "grpo", **settings)
    trained.save(tmp_path / "trained")
    exported = load_policy(export_policy(tmp_path / "trained", tmp_path / "out").merged)
    with torch.inference_mode():
        said = [[answer(one, example, 4) for example in examples] for one in (trained, exported)]
    assert said[0] == said[1]
