"""The on-task question, and the rows of the SFT warm-up: new pairs in every epoch."""

import random
from collections.abc import Sequence
from dataclasses import replace

from groupwise.core import Example, Message, derive_seed, make_example
from groupwise.data.columns import fill_template
from groupwise.rewards import LabelParser
from groupwise.training.settings import RowsOfEpoch, SftRow
from groupwise_drawn.desktops.activities import ACTIVITIES
from groupwise_drawn.desktops.tasks import write_task
from groupwise_recipes.on_task.config import DRAWN, LABELS, OnTaskConfig, WarmupSettings
from groupwise_recipes.on_task.pairs import Pair, make_pairs
from groupwise_recipes.on_task.screenshots import Screenshot

_DESCRIBED = ("activity", "task_activity")
CORRECTED = "human_feedback"
"""The source of a row whose label is a person's word on an answer; it overrides every judge."""
HUMAN_LABEL = "human_label"
SCREEN_WORDS = "screen_words"
"""The field with the words that were read on the screen, where the prompt shows them."""
TIME = "time_s"
"""The field with the seconds at which the screen was seen. No policy is told it, so that it is no
part of what an item is."""
_NO_WORDS = "(none)"


def make_pair_example(pair: Pair, config: OnTaskConfig) -> Example:
    """Return the Example of a screenshot and a task."""
    screen, labels = pair.screen, dict(zip(LABELS, config.answer.labels, strict=True))
    label = None if pair.label is None else labels[pair.label]
    is_corrected = screen.source == CORRECTED and screen.label is not None
    fields = {
        HUMAN_LABEL: label if is_corrected else None,
        "task": pair.task,
        "activity": screen.activity,
        "task_activity": pair.task_activity,
        "language": screen.language,
        "difficulty": screen.difficulty,
        SCREEN_WORDS: screen.words,
    }
    # Jinja fills a place once, so that braces on a screen are shown as they are, and refuses a
    # prompt whose words nobody read: that is not a screen without words.
    shown = {"task": pair.task}
    if screen.words is not None:
        shown["words"] = screen.words or _NO_WORDS
    example = make_example(
        [Message("user", fill_template(config.prompt, shown, file=""))],
        cluster=screen.session,
        pictures=[screen.picture],
        label=label,
        fields={name: value for name, value in fields.items() if value is not None},
    )
    if screen.time_s is None:
        return example
    return replace(example, fields={**example.fields, TIME: screen.time_s})


def has_description(example: Example, parser: LabelParser) -> bool:
    """Whether both activities are known and the parser wants them named."""
    return bool(parser.describe) and set(_DESCRIBED) <= example.fields.keys()


def write_description(example: Example, parser: LabelParser) -> str:
    """Return the answer to teach up to, and without, its label."""
    assert example.label is not None
    return write_target(example, parser).removesuffix(example.label).rstrip()


def write_target(example: Example, parser: LabelParser) -> str:
    """Return the answer to teach: with a description where both activities are known."""
    assert example.label is not None
    if not has_description(example, parser):
        return parser.write(example.label)
    words = [str(example.fields[name]).replace("_", " ") for name in _DESCRIBED]
    return parser.write(example.label, words)


def make_warmup_rows(screens: Sequence[Screenshot], config: OnTaskConfig) -> RowsOfEpoch:
    """Return a function from an epoch to its rows; real and drawn screens are paired apart."""
    given = config.sft
    assert given is not None
    drawn = [screen for screen in screens if screen.source == DRAWN]
    real = [screen for screen in screens if screen.source != DRAWN]

    def list_rows(epoch: int) -> list[SftRow]:
        pairs = _pair(real, given.pairs_per_screen, config, epoch)
        pairs += _pair(drawn, 1, config, epoch)
        rng = random.Random(derive_seed(config.seed, "written tasks", epoch))
        pairs = [_rewrite_task(pair, given.written_tasks, rng) for pair in pairs]
        return [_make_row(make_pair_example(pair, config), given, config) for pair in pairs]

    return list_rows


def make_label_rows(
    examples: Sequence[Example], prefixes: Sequence[str], parser: LabelParser
) -> RowsOfEpoch:
    """Return rows that teach the label after the policy's own description.

    That is all that GRPO's rewards know: the label, and nothing about the description.
    """
    rows = [
        SftRow(example, prefix + parser.write(str(example.label)))
        for example, prefix in zip(examples, prefixes, strict=True)
    ]
    return lambda _: rows


def _pair(
    screens: Sequence[Screenshot], pairs_per_screen: int, config: OnTaskConfig, epoch: int
) -> list[Pair]:
    if not screens:
        return []
    seed = derive_seed(config.seed, "warm-up", epoch)
    return make_pairs(screens, seed=seed, pairs_per_screen=pairs_per_screen, on_tasks="activity")


def _rewrite_task(pair: Pair, probability: float, rng: random.Random) -> Pair:
    drawn = rng.random()
    if drawn >= probability or pair.task_activity not in ACTIVITIES:
        return pair
    language = pair.screen.language
    return replace(pair, task=write_task(pair.task_activity, rng=rng, language=language))


def _make_row(example: Example, given: WarmupSettings, config: OnTaskConfig) -> SftRow:
    if _is_labelled(example, given, config):
        return SftRow(example, write_target(example, config.answer))
    return SftRow(example, write_description(example, config.answer), is_finished=False)


def _is_labelled(example: Example, given: WarmupSettings, config: OnTaskConfig) -> bool:
    """Whether the decision on this session's screens is taught, the same in every epoch."""
    if not has_description(example, config.answer):
        return True
    rng = random.Random(derive_seed(config.seed, "labelled", example.cluster))
    return rng.random() < given.labelled_share
