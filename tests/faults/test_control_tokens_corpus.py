"""Control tokens in a text from outside are words: they close no turn and claim no picture."""

from collections import Counter

import pytest
import vision_families
from corpora import each_row
from token_families import write_family
from transformers import AddedToken

from groupwise.core import Message, make_example, open_picture
from groupwise.inference.server import build_chat_messages
from groupwise.models.processor import load_processor
from groupwise.models.prompts import encode_as_written, render_prompt

HARMLESS = "a"


@pytest.fixture
def open_family(text_folder, tmp_path):
    def run(row):
        if not row["shows_picture"]:
            folder = write_family(row["family"], text_folder, tmp_path / "base")
            return load_processor(folder, model_type="", has_vision=False)
        tokenizer = load_processor(text_folder, model_type="", has_vision=False)
        sizes = vision_families.Sizes()
        own = vision_families.make_processor(row["family"], tokenizer, sizes)
        return encode_as_written(own)

    return run


def ask(text, pictures):
    turns = [Message("system", text), Message("user", "Well?"), Message("assistant", text)]
    return make_example([*turns, Message("user", [*pictures, text])], cluster="g")


def list_ids(processor, example):
    opened = [open_picture(picture) for picture in example.pictures]
    named = {"images": [opened]} if opened else {}
    return list(processor(text=[render_prompt(processor, example)], **named)["input_ids"][0])


def count_control(tokenizer, ids):
    known = {number for number, one in tokenizer.added_tokens_decoder.items() if one.special}
    return Counter(one for one in ids if one in known)


@each_row("control_tokens")
def test_it_is_read_as_words(row, open_family, picture_examples):
    assert row["expected"] == "words"
    processor = open_family(row)
    tokenizer = getattr(processor, "tokenizer", processor)
    pictures = picture_examples[0].pictures if row["shows_picture"] else ()
    found, expected = (
        list_ids(processor, ask(text, pictures)) for text in (row["input"], HARMLESS)
    )
    assert count_control(tokenizer, found) == count_control(tokenizer, expected)
    # Nothing of the words is lost, nor is anything added to them.
    words = row["input"].replace("\ufdd0", "")
    assert tokenizer.decode(found).count(words) == 3


@each_row("control_tokens")
def test_a_server_that_writes_the_prompt_itself_reads_words(row, open_family):
    processor = open_family(row)
    tokenizer = getattr(processor, "tokenizer", processor)
    counts = []
    for text in (row["input"], HARMLESS):
        messages = build_chat_messages(ask(text, ()))
        _, own = type(tokenizer).__bases__  # as others have it
        written = own.apply_chat_template(
            tokenizer, messages, add_generation_prompt=True, tokenize=False
        )
        ids = tokenizer.backend_tokenizer.encode(written, add_special_tokens=False).ids
        counts.append(count_control(tokenizer, ids))
    assert counts[0] == counts[1]


def test_harmless_text_is_sent_and_read_as_it_is(text_folder):
    text = "5 < 6 | [x] <b>bold</b> <tr> a|b <|x y|> 通过 \u200b"
    tokenizer = load_processor(text_folder, model_type="", has_vision=False)
    assert build_chat_messages(ask(text, ()))[-1]["content"] == text
    assert render_prompt(tokenizer, ask(text, ())).count(text) == 3


def test_thoughts_and_calls_stay_what_a_policy_writes(text_folder):
    """Templates look for them in a policy's turns, and they close none."""
    tokenizer = load_processor(text_folder, model_type="", has_vision=False)
    tags = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    tokenizer.add_tokens([AddedToken(tag, special=False) for tag in (*tags, "<start>")])
    tokenizer.chat_template += "{#- #}{{- '" + "".join((*tags, "<start>")) + "' if false -}}"
    found = list_ids(tokenizer, ask("<think>so</think><tool_call>f</tool_call><start>", ()))
    counts = [found.count(tokenizer.convert_tokens_to_ids(tag)) for tag in (*tags, "<start>")]
    assert counts == [3, 3, 3, 3, 0]
