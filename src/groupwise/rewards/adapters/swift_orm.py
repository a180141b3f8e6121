"""ms-swift's outcome rewards (ORM): a class whose objects take ``(completions, **columns)``.

Swift looks the class up in ``swift.rewards.orms`` and makes one object with ``args``; a plug-in
file registers it: ``orms["groupwise"] = make_swift_orm(RewardSet(...))``.
"""

from collections.abc import Callable, Sequence
from typing import Any

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.adapters.imports import load_object
from groupwise.rewards.adapters.rows import ScoreRange, build_example, write_messages
from groupwise.rewards.adapters.trl_function import make_columns, read_scores, select_columns
from groupwise.rewards.fields import read_list
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.reward_set import RewardSet


def make_swift_orm(rewards: RewardSet, *, label: str = "solution", name: str = "Groupwise") -> type:
    """Return an ORM class around a RewardSet.

    Args:
        rewards: what scores; what is unscored is None, which swift leaves out.
        label: column with the reference answer; the other columns become fields.
        name: of the class, which is the name in swift's metrics.
    """

    def start(self: object, args: object = None, **_: Any) -> None:
        """Take swift's arguments and need none of them."""

    def score(self: object, completions: Sequence[str], **columns: Any) -> list[float | None]:
        """Return one value in [0, 1] or None per completion."""
        kept = select_columns(columns, num_rows=len(completions))
        messages = kept.get("messages", [""] * len(completions))
        labels = kept.get(label, [None] * len(completions))
        fields = {column: kept[column] for column in kept if column not in ("messages", label)}
        examples = [
            build_example(
                messages[row],
                label=labels[row],
                fields={column: values[row] for column, values in fields.items()},
            )
            for row in range(len(completions))
        ]
        ids = kept.get("response_token_ids", [()] * len(completions))
        cut = kept.get("is_truncated", [False] * len(completions))
        wrapped = [
            Completion(
                text, _read_ids(ids[row]), finish_reason="length" if cut[row] is True else "stop"
            )
            for row, text in enumerate(completions)
        ]
        return [result.value for result in rewards.score_batch(examples, wrapped)]

    return type(name, (), {"__init__": start, "__call__": score, "__doc__": make_swift_orm.__doc__})


class SwiftReward:
    """An ORM of ms-swift as a Reward; it gets batches.

    Args:
        orm: an object of an ORM class, or the dotted path of the class.
        kind: what its value rests on.
        name: in metrics; None: the name of its class.
        label: name of the column that it takes the reference answer from.
        values: the range of its values, mapped to [0, 1].

    Raises:
        RewardError: if the path leads nowhere or to nothing that can be called.
    """

    def __init__(
        self,
        orm: Callable[..., Any] | str,
        *,
        kind: RewardKind = "other",
        name: str | None = None,
        label: str = "solution",
        values: ScoreRange | None = None,
    ) -> None:
        found = load_object(orm) if isinstance(orm, str) else orm
        made: object = found() if isinstance(found, type) else found
        if not callable(made):
            raise RewardError("not an ORM", got=repr(made))
        self._orm: Callable[..., Any] = made
        self.name = name or type(made).__name__
        self.kind: RewardKind = kind
        self.label = label
        self.values = values or ScoreRange()

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one completion."""
        return self.score_batch([example], [completion])[0]

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score per pair.

        Raises:
            RewardError: if the ORM returns no number per completion, or one out of range.
        """
        returned = self._orm(
            [completion.text for completion in completions],
            messages=[
                [*write_messages(example), {"role": "assistant", "content": completion.text}]
                for example, completion in zip(examples, completions, strict=True)
            ],
            response_token_ids=[list(completion.token_ids) for completion in completions],
            is_truncated=[completion.finish_reason == "length" for completion in completions],
            **make_columns(examples, label=self.label),
        )
        return read_scores(self.name, returned, num_rows=len(examples), values=self.values)


def _read_ids(ids: object) -> tuple[int, ...]:
    """Return token ids; swift may nest them by turn."""
    flat: list[int] = []
    for item in read_list(ids) or ():
        flat.extend([item] if isinstance(item, int) else _read_ids(item))
    return tuple(flat)
