"""Prompts as chat templates take and write them, and their token ids: one way for everybody.

Training, answers, serving and whatever reads an export see the same ids. A chat template writes
every control token of a prompt, the first one, too. Some tokenizers (those of Llama 3, Gemma and
Mistral) put that one before any text, and some callers let them: the model would then be trained on
one prompt and asked another.

And nothing else writes one. Text from outside (a row, the words of a screen, an answer that is
judged, a demonstration) may spell the token that ends a turn, or the one that stands for a picture;
read as tokens they would end it, or claim a picture. Such a spelling is broken by a character that
no text has before a template takes it, and the tokenizer reads what is around that character as
words, side by side.

Nor does a prompt depend on its day: where a template writes the date it is always the same one.
"""

import copy
import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from typing import Any

from groupwise.core import Example, ModelError, Picture, open_lazily

TOKEN_SIDE = 28
"""Pixels per side of the area that one picture token of a published Qwen2.5-VL model stands for."""
TINY_TOKEN_SIDE = 128
"""The same of a tiny random-init model."""
_BREAK = "\ufdd0"
_BREAK_FOR_OTHERS = "\u200b"
# What Llama's templates write where no clock is at hand.
_DAY = date(2024, 7, 26)
_TOLD_DAY = re.compile(r"""strftime_now\(\s*(["'])([^"'\\]*)\1\s*\)""")
# How families spell control tokens; of a server's model no more is known.
_SPELLED = (
    r"<\|[^<>|\s]+\|>|<\uff5c[^<>\uff5c\s]+\uff5c>|</?s>|<(?:bos|eos|pad|unk)>"
    r"|</?(?:start|end)_of_(?:turn|image|utterance)>|</?(?:img|image|video|audio)>|<IMG_CONTEXT>"
    r"|<(?:image_soft_token|fake_token_around_image|global-img|row_\d+_col_\d+)>"
    r"|\[/?(?:INST|IMG|IMG_BREAK|IMG_END|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
)
# What policies write themselves and templates look for in their turns; it closes none.
_OF_POLICIES = re.compile(r"</?(?:think|tool_call|tool_response|tools)>")


def build_messages(
    example: Example,
    *,
    show: Callable[[Picture], dict[str, Any]] = lambda _: {"type": "image"},
    write: Callable[[str], str] = str,
) -> list[dict[str, Any]]:
    """Return the prompt as chat messages, its pictures where they stand among the words.

    With pictures the content of every user turn is a list of parts; every other content is a
    plain string.

    Args:
        example: its prompt.
        show: returns the part that shows a picture; as it is, a processor fills it with the next.
        write: returns the words that stand for a turn's own.
    """
    has_pictures = bool(example.pictures)

    def write_part(part: str | Picture) -> dict[str, Any]:
        return {"type": "text", "text": write(part)} if isinstance(part, str) else show(part)

    return [
        {
            "role": turn.role,
            "content": list(map(write_part, turn.parts))
            if has_pictures and turn.role == "user"
            else write(turn.text),
        }
        for turn in example.prompt
    ]


def render_prompt(processor: Any, example: Example) -> str:
    """Return the prompt as a chat template writes it, up to where the answer starts.

    It is for the processor alone: people see what ``show_written`` makes of it.
    """
    return processor.apply_chat_template(
        build_messages(example), tokenize=False, add_generation_prompt=True
    )


def make_token_counter(processor: Any, *, has_vision: bool) -> Callable[[Example], int]:
    """Return a function that counts the prompt tokens of an example."""
    tokenizer = processor.tokenizer if has_vision else processor

    def measure(picture: Picture) -> tuple[int, int]:
        with open_lazily(picture.path) as opened:
            return opened.size

    def count(example: Example) -> int:
        seen = example if has_vision else example.with_pictures(())
        text = render_prompt(processor, seen)
        sizes = list(map(measure, seen.pictures))
        if sizes and not hasattr(processor.image_processor, "merge_size"):
            from PIL import Image

            # Each family writes pictures in a way of its own, which depends on their sizes alone.
            blank = [Image.new("RGB", size) for size in sizes]
            return len(processor(text=[text], images=[blank])["input_ids"][0])
        num_tokens = len(tokenizer.encode(text, add_special_tokens=False))
        counts = [count_picture_tokens(processor.image_processor, *size) for size in sizes]
        return num_tokens + sum(counts) - len(counts)

    return count


def count_picture_tokens(image_processor: Any, width: int, height: int) -> int:
    """Return the number of tokens of a picture of ``width`` x ``height`` pixels."""
    patches = image_processor.get_number_of_image_patches(height, width)
    return int(patches) // image_processor.merge_size**2


def estimate_picture_tokens(
    width: int, height: int, *, max_pixels: int, token_side: int = TOKEN_SIDE
) -> int:
    """Return about how many tokens a Qwen2.5-VL processor would make of a picture.

    The sides are scaled down to ``max_pixels`` where needed and rounded to multiples of
    ``token_side``, the pixels per side of what one token stands for.
    """
    scale = min(1.0, (max_pixels / (width * height)) ** 0.5)
    columns, rows = (max(1, round(side * scale / token_side)) for side in (width, height))
    return columns * rows


class _BreakingTurns:
    """Gives its template turns whose spellings of control tokens are broken."""

    def apply_chat_template(self, conversation: Any, *given: Any, **named: Any) -> Any:
        pattern = _find_control_tokens(self, named.get("chat_template"))
        own: Any = super()

        def write(value: Any) -> Any:
            if isinstance(value, str):
                return pattern.sub(rf"\g<0>{_BREAK}", value)
            if isinstance(value, Mapping):
                return {
                    name: part
                    if name in ("role", "type") and isinstance(part, str)
                    else write(part)
                    for name, part in value.items()
                }
            return [write(part) for part in value] if isinstance(value, list | tuple) else value

        return own.apply_chat_template(write(conversation), *given, **named)


class _AsWritten(_BreakingTurns):
    """A tokenizer that adds no tokens to a text, whoever calls it, and however."""

    def _encode_plus(
        self, text: Any, text_pair: Any = None, add_special_tokens: bool = False, **named: Any
    ) -> Any:
        read = _find_reader(self) if _has_break(text) else self
        own: Any = super(_AsWritten, read)
        return own._encode_plus(text, text_pair, add_special_tokens=False, **named)


@cache
def _derive(own: type, more: type) -> type:
    """Return a class of the same name, so that what it saves others open."""
    return own if issubclass(own, more) else type(own.__name__, (more, own), {})


def encode_as_written(processor: Any) -> Any:
    """Let a processor, or a tokenizer, make ids of what its template writes and of nothing else.

    Calls, ``encode`` and ``apply_chat_template`` all do so then: words that spell a control token
    are read as words. Other text has the ids that it had. The date that a template writes is
    pinned, and who knows no token for padding pads with the end token; what is saved stays as it
    was but for these.
    """
    tokenizer = getattr(processor, "tokenizer", processor)
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ModelError(
                "the tokenizer has no token that pads rows of a batch, nor one that ends a text",
                fix='name one of its tokens "pad_token" and "eos_token" in the model\'s '
                "tokenizer_config.json",
            )
        tokenizer.pad_token = tokenizer.eos_token
    for one in {id(processor): processor, id(tokenizer): tokenizer}.values():
        one.chat_template = _pin_day(one.chat_template)
    tokenizer.__class__ = _derive(type(tokenizer), _AsWritten)
    if processor is not tokenizer:
        processor.__class__ = _derive(type(processor), _BreakingTurns)
    return processor


def _pin_day(template: Any) -> Any:
    if isinstance(template, Mapping):
        return {name: _pin_day(one) for name, one in template.items()}
    if not template:
        return template
    pinned = _TOLD_DAY.sub(lambda found: repr(_DAY.strftime(found[2])), template)
    if "strftime_now(" in pinned.replace(" ", ""):
        raise ModelError(
            "the chat template writes the date of the day in a way that cannot be pinned, so that "
            "each day's prompts would be others",
            got="strftime_now of what is no plain text",
            fix="write a date into the model's chat_template.jinja, or choose another model",
        )
    return pinned


def break_tokens(processor: Any, text: str) -> str:
    """Return a text that is put behind a written prompt, and is read as words."""
    return _find_control_tokens(processor).sub(rf"\g<0>{_BREAK}", text)


def break_tokens_for_others(text: str, processor: Any = None) -> str:
    """Return a text as it is sent to who writes and reads prompts himself, such as a server.

    A character without width stays in what spells a control token.

    Args:
        text: from outside.
        processor: or tokenizer of the model that reads it; None: families' spellings are broken.
    """
    text = _compile(_SPELLED, "<[").sub(rf"\g<0>{_BREAK_FOR_OTHERS}", text)
    if processor is None:
        return text
    return _find_control_tokens(processor).sub(rf"\g<0>{_BREAK_FOR_OTHERS}", text)


def show_written(text: str) -> str:
    """Return what a template wrote as people read it."""
    return text.replace(_BREAK, "")


def encode_words(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of what a policy says: special tokens that it spells are words, too."""
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)


def _find_control_tokens(processor: Any, template: Any = None) -> re.Pattern[str]:
    """Return what matches the first character of each spelling of a control token.

    Those are all special tokens, placeholders of pictures, and others that stand in the template,
    but for tags of thoughts and calls.
    """
    tokenizer = getattr(processor, "tokenizer", processor)
    template = template or processor.chat_template or ""
    if not isinstance(template, str):
        template = "\n".join(template.values())
    known = tokenizer.__dict__.setdefault("_control_tokens", {})
    key = len(tokenizer), template
    if key not in known:
        own = {name: value for name, value in vars(processor).items() if name.endswith("_token")}
        others = tokenizer._get_control_tokens(template)
        special = set(tokenizer.all_special_tokens)
        tokens = {one for one in others if one in special or not _OF_POLICIES.fullmatch(one)}
        tokens |= set(own.values())
        spelled = sorted(one for one in tokens if isinstance(one, str) and len(one) > 1)
        first = "".join(sorted({one[0] for one in spelled}))
        known[key] = _compile("|".join(map(re.escape, spelled)), first)
    return known[key]


@cache
def _compile(pattern: str, first: str) -> re.Pattern[str]:
    """Return what matches the first character of each match, also of one within another.

    Most characters are none of the ``first`` ones, and looked at no further.
    """
    return re.compile(f"(?=[{re.escape(first)}])(?={pattern})." if first else "(?!)", re.DOTALL)


def _has_break(text: Any) -> bool:
    return _BREAK in text if isinstance(text, str) else any(map(_has_break, text))


def _find_reader(tokenizer: Any) -> Any:
    """Return a tokenizer that finds its tokens first, and only then takes breaks out of the text.

    What a break parted is so never found, and is read as the words around it are. Tokens that are
    looked for behind that step are looked for before it here. A tokenizer that is not made of such
    steps reads the break, too.
    """
    from tokenizers import Tokenizer

    if not tokenizer.is_fast:
        return tokenizer
    known = tokenizer.__dict__.setdefault("_reader", {})
    if len(tokenizer) not in known:
        backend = json.loads(tokenizer.backend_tokenizer.to_str())
        for token in backend["added_tokens"]:
            token["normalized"] = token["normalized"] and token["content"].isspace()
        steps = [{"type": "Replace", "pattern": {"String": _BREAK}, "content": ""}]
        steps += [backend["normalizer"]] if backend["normalizer"] else []
        backend["normalizer"] = {"type": "Sequence", "normalizers": steps}
        reader = copy.copy(tokenizer)
        reader._tokenizer = Tokenizer.from_str(json.dumps(backend))
        known.clear()
        known[len(tokenizer)] = reader
    return known[len(tokenizer)]


def drop_videos(own: type[Any], *, name: str) -> type[Any]:
    """Return a processor of Transformers without its video half, which needs torchvision.

    It is called ``name``, so that what it saves others open.
    """
    made_of: Any = own
    parts = [part for part in made_of.get_attributes() if part != "video_processor"]
    return type(name, (made_of,), {"get_attributes": classmethod(lambda _: list(parts))})
