"""Keeps away what Transformers prints for its own developers while our own lines say enough.

Warnings about models, settings and data still show, and downloads from the hub keep their
bars: they take long.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_OWN_DEPRECATIONS = r"`is_gradient_checkpointing` is deprecated"
_CHATTY_LOGGERS = ("transformers.trainer_utils", "transformers.integrations.bitsandbytes")


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Hide bars of weight files and notes on the libraries' own inner workings.

    Works as a ``with`` block and as a decorator.
    """
    from huggingface_hub import utils as hub
    from transformers.utils import logging as transformers

    chatty = [logging.getLogger(name) for name in _CHATTY_LOGGERS]
    levels = [logger.level for logger in chatty]
    scores = logging.getLogger("trl.trainer.grpo_trainer")
    was_shown = transformers.is_progress_bar_enabled()
    has_downloads = not hub.are_progress_bars_disabled()
    for logger in chatty:
        logger.setLevel(logging.ERROR)
    scores.addFilter(_is_no_note_of_unscored)
    transformers.disable_progress_bar()  # which hides downloads, too
    if has_downloads:
        hub.enable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_OWN_DEPRECATIONS, category=FutureWarning)
            yield
    finally:
        for logger, level in zip(chatty, levels, strict=True):
            logger.setLevel(level)
        scores.removeFilter(_is_no_note_of_unscored)
        if was_shown:
            transformers.enable_progress_bar()
        if not has_downloads:
            hub.disable_progress_bars()


def _is_no_note_of_unscored(record: logging.LogRecord) -> bool:
    """Hide TRL's note with prompt and reference: we count a completion without a score."""
    return not record.getMessage().startswith("All reward functions returned None")
