"""Rewards in the call shapes of TRL, verl and ms-swift; none of these libraries is imported here.

Out: a RewardSet as a reward function of the other library. In: TRL's reward functions as Rewards.
For GRPO with this library's own trainer ``groupwise.training`` does this by itself.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards.reward import BatchReward, RewardKind, read_list, read_mapping
from groupwise.rewards.reward_set import RewardSet
from groupwise.rewards.shaping import SoftOverlong

EXAMPLE_ID = "example_id"
"""What rows call the id of the example that they were made of."""
_ROLES = ("system", "user", "assistant")
_NO_JSON = object()


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """The range of another library's numbers, mapped to [0, 1].

    Raises:
        RewardError: if the range is empty or not finite.
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no range."""
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise RewardError("not a range", got=[self.low, self.high], expected="low < high")

    def read(self, name: str, value: object) -> Score:
        """Return a number as a Score; None and NaN are unscored.

        Raises:
            RewardError: if it is no number or outside the range.
        """
        number = _read_json(value)
        if number is None or (isinstance(number, float) and math.isnan(number)):
            return Score(None, f"{name} gave no value")
        if not isinstance(number, bool | int | float) or not self.low <= number <= self.high:
            raise RewardError(
                f"reward {name!r} returned a value outside its range",
                got=repr(value),
                expected=f"a number in [{self.low:g}, {self.high:g}] or None",
                fix="give it its range with values=ScoreRange(low, high)",
            )
        share = (number - self.low) / (self.high - self.low)
        return Score(min(1.0, max(0.0, share)), f"{name} gave {number:g}")


class TrlFunction:
    """A RewardSet as a TRL reward function, ``GRPOTrainer(reward_funcs=[TrlFunction(...)])``.

    What is unscored is None, which TRL leaves out. Parts, the invalid and the unscored
    share are logged as metrics.

    Args:
        rewards: what scores.
        label: column with the reference answer; the other columns become fields.
        end_token_ids: a completion that does not end with one of them was truncated; None: nobody
            asks.
    """

    __name__ = "groupwise"

    def __init__(
        self,
        rewards: RewardSet,
        *,
        label: str = "label",
        end_token_ids: Sequence[int] | None = None,
    ) -> None:
        self.rewards = rewards
        self.label = label
        self.end_token_ids = None if end_token_ids is None else frozenset(end_token_ids)

    def __call__(
        self,
        *,
        prompts: Sequence[object],
        completions: Sequence[object],
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return one value in [0, 1] or None per completion."""
        rows = _split_rows(columns, num_rows=len(prompts))
        examples = [
            _build_example(prompt, label=row.pop(self.label, None), fields=row)
            for prompt, row in zip(prompts, rows, strict=True)
        ]
        ends = self.end_token_ids
        wrapped: list[Completion] = []
        for said, ids in zip(completions, completion_ids or [()] * len(completions), strict=True):
            is_cut = ends is not None and (not ids or ids[-1] not in ends)
            reason = "length" if is_cut else "stop"
            wrapped.append(Completion(_read_text(said), tuple(ids), finish_reason=reason))
        scores = self.rewards.score_batch(examples, wrapped)
        if log_metric is not None and scores:
            log_metric("invalid", sum(score.invalid for score in scores) / len(scores))
            log_metric("unscored", sum(score.value is None for score in scores) / len(scores))
            for name in scores[0].breakdown:
                known = [value for score in scores if (value := score.breakdown[name]) is not None]
                if known:
                    log_metric(f"reward/{name}", sum(known) / len(known))
        return [score.value for score in scores]


class TrlReward(BatchReward):
    """A plain TRL reward function as a Reward; it gets batches.

    Args:
        function: the function, or its dotted path such as ``trl.rewards.accuracy_reward``.
        kind: what its value rests on.
        name: in metrics; None: the function's own.
        label: name of the column that it takes the reference answer from.
        is_conversational: whether it takes messages; False: texts.
        values: the range of its values, mapped to [0, 1].

    Raises:
        RewardError: if the path leads nowhere or to nothing that can be called.
    """

    def __init__(
        self,
        function: Callable[..., Any] | str,
        *,
        kind: RewardKind = "other",
        name: str | None = None,
        label: str = "label",
        is_conversational: bool = True,
        values: ScoreRange | None = None,
    ) -> None:
        try:
            found: Any = resolve_name(function) if isinstance(function, str) else function
        except (ImportError, AttributeError, ValueError) as error:
            fix = "check the path and install its package"
            raise RewardError(f"cannot import {function!r} ({error})", fix=fix) from error
        if not callable(found):
            raise RewardError("not a reward function", got=repr(found))
        self._function = found
        self.name = name or str(getattr(found, "__name__", type(found).__name__))
        self.kind: RewardKind = kind
        self.label = label
        self.is_conversational = is_conversational
        self.values = values or ScoreRange()

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score per pair.

        Raises:
            RewardError: if the function returns no number per completion, or one out of range.
        """
        names = dict.fromkeys(name for example in examples for name in example.fields)
        columns = {name: [example.fields.get(name) for example in examples] for name in names}
        columns[self.label] = [example.label for example in examples]
        prompts: list[object] = ["\n".join(m.text for m in example.prompt) for example in examples]
        said: list[object] = [completion.text for completion in completions]
        if self.is_conversational:
            turns = [example.prompt for example in examples]
            prompts = [[{"role": m.role, "content": m.text} for m in prompt] for prompt in turns]
            said = [[{"role": "assistant", "content": text}] for text in said]
        returned = self._function(
            prompts=prompts,
            completions=said,
            completion_ids=[list(completion.token_ids) for completion in completions],
            **columns,
        )
        rows = read_list(returned)
        if rows is None or len(rows) != len(examples):
            raise RewardError(
                f"reward {self.name!r} did not return one value per completion",
                got=type(returned).__name__ if rows is None else f"{len(rows)} values",
                expected=f"a list of {len(examples)}",
            )
        return [self.values.read(self.name, row) for row in rows]


class VerlScore:
    """A RewardSet as verl's ``compute_score``; it may be called from several threads.

    verl loads it from a file by ``reward.custom_reward_function.path`` and ``.name``; there stands
    ``compute_score = VerlScore(RewardSet(...))``.

    The result is a dict with ``score``, ``invalid`` and one ``reward/NAME`` per part (NaN where a
    part has no value), always with the same keys, as verl needs.

    verl has no "unscored": a number is needed. Because that number is a reward like any
    other, it must be chosen, and without a choice such an answer is an error.

    Args:
        rewards: what scores.
        unscored: what verl gets for an answer that is unscored; None: a RewardError.
        examples: what is asked about, by id; a row names its own as ``example_id`` in its
            ``extra_info``. None: an example is made of each row.

    Raises:
        RewardError: if ``unscored`` is outside [0, 1], or a reward counts tokens, of which verl
            says nothing.
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
        counting = [n for n, part in rewards.rewards.items() if isinstance(part, SoftOverlong)]
        if counting:
            raise RewardError(
                f"the reward {counting[0]!r} counts tokens, and verl gives texts alone",
                fix="leave it out",
            )
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
        prompt = fields.get("prompt", fields.get("question", ""))
        example = _find_example(self.examples, prompt, label=ground_truth, fields=fields)
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
    rewards: RewardSet,
    *,
    label: str = "solution",
    name: str = "Groupwise",
    examples: Mapping[str, Example] | None = None,
) -> type:
    """Return an outcome reward (ORM) class of ms-swift around a RewardSet.

    Swift looks the class up in ``swift.rewards.orms`` and makes one object with ``args``; a plug-in
    file registers it: ``orms["groupwise"] = make_swift_orm(RewardSet(...))``.

    Args:
        rewards: what scores; what is unscored is None, which swift leaves out.
        label: column with the reference answer; the other columns become fields.
        name: of the class, which is the name in swift's metrics.
        examples: what is asked about, by id, which rows have in the column ``example_id``; None:
            an example is made of each row.
    """

    def start(self: object, args: object = None, **_: Any) -> None:
        """Take swift's arguments and need none of them."""

    def score(self: object, completions: Sequence[str], **columns: Any) -> list[float | None]:
        """Return one value in [0, 1] or None per completion."""
        asked: list[Example] = []
        said: list[Completion] = []
        rows = _split_rows(columns, num_rows=len(completions))
        for text, row in zip(completions, rows, strict=True):
            ids = tuple(_flatten(row.get("response_token_ids")))
            reason = "length" if row.get("is_truncated") is True else "stop"
            said.append(Completion(text, ids, finish_reason=reason))
            prompt, answer = row.pop("messages", ""), row.pop(label, None)
            asked.append(_find_example(examples, prompt, label=answer, fields=row))
        return [result.value for result in rewards.score_batch(asked, said)]

    return type(name, (), {"__init__": start, "__call__": score, "__doc__": make_swift_orm.__doc__})


def _find_example(
    examples: Mapping[str, Example] | None,
    prompt: object,
    *,
    label: object,
    fields: Mapping[str, object],
) -> Example:
    """Return the example that a row was made of, or one that is made of the row."""
    if examples is None:
        return _build_example(prompt, label=label, fields=fields)
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


def _build_example(prompt: object, *, label: object, fields: Mapping[str, object]) -> Example:
    read = {name: _read_json(value) for name, value in fields.items()}
    kept = {name: value for name, value in read.items() if value is not _NO_JSON}
    reference = _read_json(label)
    text = str(reference) if isinstance(reference, str | int | float) else None
    if text is None and reference is not None and reference is not _NO_JSON:
        kept["label"] = reference
    messages: list[Message] = [Message("user", prompt)] if isinstance(prompt, str) else []
    to_list: object = getattr(prompt, "tolist", None)
    for given in read_list(to_list() if callable(to_list) else prompt) or ():
        entry = read_mapping(given) or {}
        messages += [
            Message(role, _read_content(entry.get("content")))
            for role in _ROLES
            if role == entry.get("role")
        ]
    while messages and messages[-1].role != "user":
        messages.pop()
    asked = messages or [Message("user", "")]
    return make_example(asked, cluster="", label=text, fields=kept)


def _split_rows(columns: Mapping[str, Any], *, num_rows: int) -> list[dict[str, Any]]:
    """Return the rows of what is a column with one value per row."""
    kept = {name: read_list(values) or () for name, values in columns.items()}
    kept = {name: values for name, values in kept.items() if len(values) == num_rows}
    return [{name: values[row] for name, values in kept.items()} for row in range(num_rows)]


def _flatten(ids: object) -> list[int]:
    """Return token ids; swift may nest them by turn."""
    items = read_list(ids) or ()
    return [n for item in items for n in ([item] if isinstance(item, int) else _flatten(item))]


def _read_text(message: object) -> str:
    """Return the text of a completion: a text, or the last of a list of messages."""
    if isinstance(message, str):
        return message
    messages = read_list(message)
    last = read_mapping(messages[-1]) if messages else None
    if last is None:
        raise RewardError("a completion without a text", got=repr(message)[:200])
    return _read_content(last.get("content"))


def _read_content(content: object) -> str:
    """Return the text of a message's content; of a list of parts only those with text."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [read_mapping(part) or {} for part in read_list(content) or ()]
    return "".join(str(part["text"]) for part in parts if isinstance(part.get("text"), str))


def _read_json(value: object) -> object:
    """Return a JSON value with arrays as lists and their numbers plain; _NO_JSON if it is none."""

    def convert(other: Any) -> object:
        return dict(other) if isinstance(other, Mapping) else other.tolist()

    try:
        return json.loads(json.dumps(value, default=convert))
    except (AttributeError, TypeError, ValueError, RecursionError):
        return _NO_JSON
