"""The on-task question and the answers it is taught with."""

from groupwise.core import Example, Message, make_example
from groupwise.data import Pair, fill_template
from groupwise.rewards import LabelParser
from groupwise_recipes.on_task.config import LABELS, OnTaskConfig

_DESCRIBED = ("activity", "task_activity")


def make_pair_example(pair: Pair, config: OnTaskConfig) -> Example:
    """Return the Example of a screenshot and a task."""
    screen, labels = pair.screen, dict(zip(LABELS, config.answer.labels, strict=True))
    fields = {
        "task": pair.task,
        "activity": screen.activity,
        "task_activity": pair.task_activity,
        "language": screen.language,
        "difficulty": screen.difficulty,
    }
    return make_example(
        [Message("user", fill_template(config.prompt, {"task": pair.task}, file=""))],
        cluster=screen.session,
        pictures=[screen.picture],
        label=None if pair.label is None else labels[pair.label],
        fields={name: value for name, value in fields.items() if value is not None},
    )


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
