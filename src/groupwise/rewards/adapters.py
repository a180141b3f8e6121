"""A RewardSet in the call shapes of verl and ms-swift; neither library is imported here.

For GRPO with this library's own trainer ``groupwise.training`` does this by itself, and functions
of TRL's shape are a FunctionReward.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from groupwise.core import Completion, Example, Message, RewardError, make_example
from groupwise.rewards.reward import read_list, read_mapping
from groupwise.rewards.reward_set import RewardSet

EXAMPLE_ID = "example_id"
"""What rows call the id of the example that they were made of."""
_NO_JSON = object()


class VerlScore:
    """A RewardSet as verl's ``compute_score``; it may be called from several threads.

    verl says nothing of tokens: a reward that counts them has no value there.

    verl loads it from a file by ``reward.custom_reward_function.path`` and ``.name``; there stands
    ``compute_score = VerlScore(RewardSet(...))``. It returns a dict with ``score``, ``invalid`` and
    one ``reward/NAME`` per part (NaN where a part has no value), always with the same keys.

    Args:
        rewards: what scores.
        unscored: what verl gets for an answer that is unscored, as it has no such thing and needs
            a number, which is a reward like any other; None: a RewardError.
        examples: what is asked about, by id; a row names its own as ``example_id`` in its
            ``extra_info``. None: an example is made of each row.

    Raises:
        RewardError: if ``unscored`` is outside [0, 1].
    """

    __name__ = "compute_score"

    def __init__(
        self,
        rewards: RewardSet,
        *,
        unscored: float | None = None,
        examples: Mapping[str, Example] | None = None,
    ) -> None:
        if unscored is not None and not 0.0 <= unscored <= 1.0:
            raise RewardError("unscored is out of range", got=unscored, expected="[0, 1]")
        self.rewards = rewards
        self.unscored = unscored
        self.examples = examples

    def __call__(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: object,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> dict[str, float]:
        """Return the score and its parts.

        Where no examples are given, the ground truth becomes the label, what stands in
        ``extra_info`` the fields, and its ``question`` the prompt.

        Raises:
            RewardError: if the answer is unscored and no number was chosen for that, or the row is
                not that of an example that is known.
        """
        fields = {"data_source": data_source, **(extra_info or {})}
        example = _find_example(self.examples, fields.get("question", ""), ground_truth, fields)
        score = self.rewards.score(example, Completion(solution_str))
        value = self.unscored if score.value is None else score.value
        if value is None:
            raise RewardError(
                f"an answer to {data_source} is unscored ({score.reason})",
                fix="verl needs a number: choose one with VerlScore(..., unscored=)",
            )
        parts = {
            f"reward/{name}": math.nan if part is None else part
            for name, part in score.breakdown.items()
        }
        return {"score": value, "invalid": float(score.invalid), **parts}


def make_swift_orm(
    rewards: RewardSet, *, examples: Mapping[str, Example] | None = None
) -> type[Any]:
    """Return an outcome reward (ORM) class of ms-swift around a RewardSet.

    Swift looks the class up in ``swift.rewards.orms`` and makes one object with ``args``; a plug-in
    file registers it: ``orms["groupwise"] = make_swift_orm(RewardSet(...))``. It returns a value in
    [0, 1] per completion, or None for what is unscored, which swift leaves out.

    Args:
        rewards: what scores.
        examples: what is asked about, by id, which rows have in the column ``example_id``; None:
            an example is made of each row, with the column ``solution`` as its label.
    """

    class Groupwise:
        def __init__(self, args: object = None, **_: Any) -> None:
            """Take swift's arguments and need none of them."""

        def __call__(self, completions: Sequence[str], **columns: Any) -> list[float | None]:
            lists = {name: read_list(values) or () for name, values in columns.items()}
            kept = {name: rows for name, rows in lists.items() if len(rows) == len(completions)}
            asked: list[Example] = []
            said: list[Completion] = []
            for place, text in enumerate(completions):
                row = {name: values[place] for name, values in kept.items()}
                ids = tuple(_flatten(row.get("response_token_ids")))
                reason = "length" if row.get("is_truncated") is True else "stop"
                said.append(Completion(text, ids, finish_reason=reason))
                prompt, label = row.pop("messages", ""), row.pop("solution", None)
                asked.append(_find_example(examples, prompt, label, row))
            return [result.value for result in rewards.score_batch(asked, said)]

    return Groupwise


def _find_example(
    examples: Mapping[str, Example] | None,
    prompt: object,
    label: object,
    fields: Mapping[str, object],
) -> Example:
    """Return the example that a row was made of, or one that is made of the row."""
    if examples is None:
        read = {name: _read_json(value) for name, value in fields.items()}
        kept = {name: value for name, value in read.items() if value is not _NO_JSON}
        given = _read_json(label)
        text = json.dumps(given, ensure_ascii=False) if isinstance(given, list | dict) else None
        text = str(given) if isinstance(given, str | int | float) else text
        return make_example(_read_turns(prompt), cluster="", label=text, fields=kept)
    name = fields.get(EXAMPLE_ID)
    known = examples.get(name) if isinstance(name, str) else None
    if known is None:
        raise RewardError(f"a row has no {EXAMPLE_ID} of an example that is known", got=repr(name))
    if label != known.label:
        raise RewardError(
            f"the row of example {known.id} has another reference answer",
            got=repr(label),
            expected=repr(known.label),
            fix="export the rows again, or correct the labels where the run takes them from",
        )
    return known


def _read_turns(prompt: object) -> list[Message]:
    """Return a text as the user's turn, or the turns up to the last one of the user."""
    messages = [Message("user", prompt)] if isinstance(prompt, str) else []
    for turn in map(read_mapping, read_list(prompt) or ()):
        given = (turn or {}).get("content") or ""
        parts = [{"text": given}] if isinstance(given, str) else read_list(given) or ()
        texts = [str((read_mapping(part) or {}).get("text") or "") for part in parts]
        role = (turn or {}).get("role")
        if role in ("system", "user", "assistant"):
            messages.append(Message(cast("Any", role), "".join(texts)))
    while messages and messages[-1].role != "user":
        messages.pop()
    return messages or [Message("user", "")]


def _flatten(ids: object) -> list[int]:
    """Return token ids; swift may nest them by turn."""
    items = read_list(ids) or ()
    return [n for item in items for n in ([item] if isinstance(item, int) else _flatten(item))]


def _read_json(value: object) -> object:
    """Return a JSON value with arrays as lists and their numbers plain; _NO_JSON if it is none."""

    def convert(other: Any) -> object:
        return dict(other) if isinstance(other, Mapping) else other.tolist()

    try:
        return json.loads(json.dumps(value, default=convert))
    except (AttributeError, TypeError, ValueError, RecursionError):
        return _NO_JSON
