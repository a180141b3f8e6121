"""What training, answering, serving and an export read of a prompt are the same token ids.

The tokenizers are such that their template and they themselves write a first token.
"""

from types import SimpleNamespace

import pytest
from token_families import FAMILIES, write_family
from transformers import AutoTokenizer
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.grpo_trainer import GRPOTrainer

from groupwise.core import Message, make_example, open_picture
from groupwise.inference import LocalEngine
from groupwise.inference.streaming.encoding import Encoder
from groupwise.inference.streaming.pictures import open_memory
from groupwise.inference.streaming.work import WorkItem
from groupwise.models import build_messages, export_policy, load_policy, make_token_counter
from groupwise.training import SftRow
from groupwise.training.on_policy import score_alone
from groupwise.training.sft import RowCollator

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


def stream(policy, example, memory):
    item = WorkItem(0, example)
    encoded = Encoder(policy, memory).encode(item, max_pixels=None, max_new_tokens=1)
    return encoded.inputs["input_ids"][0].tolist()


@pytest.mark.parametrize("name", WRITING)
def test_every_reader_of_a_prompt_has_the_same_ids(
    name, text_folder, vision_folder, picture_examples, tmp_path
):
    base = vision_folder if name == "vision" else text_folder
    policy = load_policy(write_family(name, base, tmp_path / "base"))
    bos = policy.tokenizer.bos_token_id
    collate = RowCollator(policy, augmentation=None, seed=0)
    engine = LocalEngine(policy)
    count = make_token_counter(policy.processor, has_vision=policy.has_vision)
    memory = open_memory(policy, max_mib=1)
    pictures = [picture for one in picture_examples[:2] for picture in one.pictures]
    for kind, example in make_rows(name, pictures).items():
        expected = tokenize_as_trl(policy, example)
        assert expected.count(bos) == 1, kind
        taught = collate([(0, 0, SftRow(example, "red"))])
        found = {
            "sft": taught["input_ids"][0][taught["labels"][0] == -100].tolist(),
            "engine": engine._encode([example])["input_ids"][0].tolist(),
            "stream": stream(policy, example, None),
            "known pictures": stream(policy, example, memory),
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
    ids = LocalEngine(policy)._encode([example], leads=[HOSTILE])["input_ids"][0].tolist()
    [asked] = LocalEngine(policy)._encode([example])["input_ids"].tolist()
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
        assert LocalEngine(exported)._encode([example])["input_ids"][0].tolist() == expected
        # As vLLM and Transformers read messages.
        read = others.apply_chat_template(build_messages(example), add_generation_prompt=True)
        assert read["input_ids"] == expected
