"""What the choices alone tell: a rival that sees neither the picture nor the question."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from groupwise.core import Example
from groupwise.evaluation.predictions import Prediction, RunPolicy

CHOICES = RunPolicy(
    name="choices",
    title="Choices alone",
    title_zh="仅看选项",
    note="of the commonest letter, the commonest set of letters and the longest choice, "
    "the one that is right most often in training",
    note_zh="最常见的字母、最常见的字母组合、最长的选项：取训练中答对最多的一种",
    kind="baseline",
    step="baselines",
    trained_on=("train",),
    blind_to=("picture",),
)
Rule = Callable[[Example], str]


def predict_choices(train: Sequence[Example], test: Sequence[Example]) -> list[Prediction]:
    """Return the answers of the rule that is best in training; none without choices in both.

    A statement among the questions gets the commonest label of statements. If all answers are one,
    there are none: that is what the majority label tells.
    """
    asked = [one for one in train if "options" in one.fields]
    if not asked or not any("options" in one.fields for one in test):
        return []
    told = [str(one.label) for one in train if "options" not in one.fields]
    rule, label = choose_rule(asked), _find_commonest(told) if told else None
    found = [_predict(one, rule(one) if "options" in one.fields else label) for one in test]
    return found if len({one.predicted for one in found}) > 1 else []


def choose_rule(examples: Sequence[Example]) -> Rule:
    """Return the rule that answers most examples with choices right; of equals, the simplest."""
    labels = [str(one.label) for one in examples]
    letter = _find_commonest(letter for label in labels for letter in label.split(", "))
    several = _find_commonest(labels)
    rules: tuple[Rule, ...] = (lambda _: letter, lambda _: several, name_longest)
    return max(rules, key=lambda rule: sum(rule(one) == one.label for one in examples))


def name_longest(example: Example) -> str:
    """Return the letter of the choice with the most characters, of equals the first."""
    options = example.fields["options"]
    return chr(ord("A") + max(range(len(options)), key=lambda place: len(options[place])))


def _find_commonest(names: Iterable[str]) -> str:
    """Return the commonest name, of equals the first by the alphabet."""
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name))


def _predict(example: Example, label: str | None) -> Prediction:
    return Prediction(
        example_id=example.id,
        cluster=example.cluster,
        split="test",
        policy=CHOICES.name,
        label=str(example.label),
        predicted=label,
        reason="" if label else "there is no statement in training",
        text=label or "",
    )
