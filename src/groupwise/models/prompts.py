"""Prompts as chat templates take and write them, and how many tokens they have."""

from collections.abc import Callable
from typing import Any

from PIL import Image

from groupwise.core import Example, Picture, open_lazily


def _leave_place(_: Picture) -> dict[str, Any]:
    """Return the part that a processor fills with the next picture."""
    return {"type": "image"}


def build_messages(
    example: Example,
    *,
    show: Callable[[Picture], dict[str, Any]] = _leave_place,
    write: Callable[[str], str] = str,
) -> list[dict[str, Any]]:
    """Return the prompt as chat messages, its pictures where they stand among the words.

    With pictures the content of every user turn is a list of parts; every other content is a
    plain string.

    Args:
        example: its prompt.
        show: returns the part that shows a picture.
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


TOKEN_SIDE = 28
"""Pixels per side of the area that one picture token of a published Qwen2.5-VL model stands for."""
TINY_TOKEN_SIDE = 128
"""The same of a tiny random-init model."""


def make_token_counter(processor: Any, *, has_vision: bool) -> Callable[[Example], int]:
    """Return a function that counts the prompt tokens of an example."""
    tokenizer = processor.tokenizer if has_vision else processor

    def count(example: Example) -> int:
        seen = example if has_vision else example.with_pictures(())
        text = render_prompt(processor, seen)
        sizes = list(map(_measure_picture, seen.pictures))
        if sizes and not hasattr(processor.image_processor, "merge_size"):
            # Each family writes pictures in a way of its own, which depends on their sizes alone.
            blank = [Image.new("RGB", size) for size in sizes]
            return len(processor(text=[text], images=[blank])["input_ids"][0])
        num_tokens = len(tokenizer.encode(text, add_special_tokens=False))
        counts = [count_picture_tokens(processor.image_processor, *size) for size in sizes]
        return num_tokens + sum(counts) - len(counts)

    return count


def _measure_picture(picture: Picture) -> tuple[int, int]:
    with open_lazily(picture.path) as opened:
        return opened.size


def render_prompt(processor: Any, example: Example) -> str:
    """Return the prompt as a chat template writes it, up to where the answer starts.

    It is for the processor alone: people see what ``show_written`` makes of it.
    """
    return processor.apply_chat_template(
        build_messages(example), tokenize=False, add_generation_prompt=True
    )


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
