"""TRL's reward functions: ``f(prompts, completions, completion_ids, **columns) -> list``.

For GRPO with this library's own trainer ``groupwise.training`` does this by itself; here a
RewardSet serves in a stock GRPOTrainer, and a plain TRL function serves in a RewardSet.
"""

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.adapters.rows import ScoreRange, build_example, read_text, select_columns
from groupwise.rewards.fields import read_list
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.reward_set import RewardSet


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
        kept = select_columns(columns, num_rows=len(prompts))
        examples = [
            build_example(
                prompt,
                label=kept.get(self.label, [None] * len(prompts))[row],
                fields={name: values[row] for name, values in kept.items() if name != self.label},
            )
            for row, prompt in enumerate(prompts)
        ]
        ids = completion_ids or [()] * len(completions)
        wrapped = [
            self._wrap(read_text(completion), tokens)
            for completion, tokens in zip(completions, ids, strict=True)
        ]
        scores = self.rewards.score_batch(examples, wrapped)
        if log_metric is not None and scores:
            _log(scores, log_metric)
        return [score.value for score in scores]

    def _wrap(self, text: str, ids: Sequence[int]) -> Completion:
        is_cut = self.end_token_ids is not None and (not ids or ids[-1] not in self.end_token_ids)
        return Completion(text, tuple(ids), finish_reason="length" if is_cut else "stop")


class TrlReward:
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
        self._function = _load_function(function)
        own_name: object = getattr(self._function, "__name__", type(self._function).__name__)
        self.name = name or str(own_name)
        self.kind: RewardKind = kind
        self.label = label
        self.is_conversational = is_conversational
        self.values = values or ScoreRange()

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one completion."""
        return self.score_batch([example], [completion])[0]

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
        returned = self._function(
            prompts=[self._show_prompt(example) for example in examples],
            completions=[self._show_completion(completion) for completion in completions],
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

    def _show_prompt(self, example: Example) -> object:
        if not self.is_conversational:
            return "\n".join(message.text for message in example.prompt)
        return [{"role": turn.role, "content": turn.text} for turn in example.prompt]

    def _show_completion(self, completion: Completion) -> object:
        if not self.is_conversational:
            return completion.text
        return [{"role": "assistant", "content": completion.text}]


def _log(scores: Sequence[Score], log_metric: Callable[[str, float], None]) -> None:
    log_metric("invalid", sum(score.invalid for score in scores) / len(scores))
    log_metric("unscored", sum(score.value is None for score in scores) / len(scores))
    for name in scores[0].breakdown:
        known = [value for score in scores if (value := score.breakdown[name]) is not None]
        if known:
            log_metric(f"reward/{name}", sum(known) / len(known))


def _load_function(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """Return a function, or what ``package.module.name`` or ``package.module:name`` names."""
    try:
        found: object = resolve_name(function) if isinstance(function, str) else function
    except (ImportError, AttributeError, ValueError) as error:
        raise RewardError(
            f"cannot import {function!r} ({error})", fix="check the path and install its package"
        ) from error
    if not callable(found):
        raise RewardError("not a reward function", got=repr(found))
    return found
