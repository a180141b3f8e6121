"""When an alarm is raised: every threshold, with what it is measured in."""

from pydantic import Field, field_validator

from groupwise.core import Config
from groupwise.evaluation.measures import find_measure


class AlarmSettings(Config):
    """Thresholds of the alarms; a row is one logged row of ``metrics.jsonl``.

    Attributes:
        window: rows that "the start" and "now" are means of; alarms that compare the two want
            twice as many rows.
        heldout_measures: held-out values that are better when they are higher.
        heldout_drop: smallest fall below the best held-out check that counts.
        heldout_deviations: the fall must also be so many standard errors of one check, where the
            number of held-out items is known.
        reward_rise: smallest rise of the mean reward since the best held-out check that counts.
        entropy_share: entropy below this share of its start has collapsed.
        solved_reward: from this mean reward on nothing is left to try, and low entropy is right.
        length_factor: length above so many times its start has grown …
        length_tokens: … if it is also so many tokens more.
        history: rows before a jump that it is compared with; at least half of them must be there.
        kl_factor: KL above so many times the median of the rows before has jumped …
        kl_floor: … if it is also above this, in nats.
        grad_factor: gradient norm above so many times the median of the rows before is a spike …
        grad_floor: … if it is also above this.
        truncated_share: greatest share of completions that may reach the length limit.
        invalid_share: greatest share of completions that may be no answer.
        unscored_share: greatest share of completions that no reward could score.
        dead_share: groups count as all dead from this share on.
        loss_change: a loss that changed by less than this share of its start has not moved …
        loss_floor: … unless it was below this from the start.
        no_verdict_share: greatest share of a judge's questions without a verdict.
        no_verdict_questions: below so many questions there is no share.
    """

    window: int = Field(default=5, ge=1)
    heldout_measures: tuple[str, ...] = ("accuracy", "balanced_accuracy", "f1", "reward", "pass@1")
    heldout_drop: float = Field(default=0.02, ge=0)
    heldout_deviations: float = Field(default=2.0, ge=0)
    reward_rise: float = Field(default=0.01, ge=0)
    entropy_share: float = Field(default=0.2, gt=0, lt=1)
    solved_reward: float = Field(default=0.98, ge=0, le=1)
    length_factor: float = Field(default=1.5, gt=1)
    length_tokens: float = Field(default=8.0, ge=0)
    history: int = Field(default=10, ge=2)
    kl_factor: float = Field(default=5.0, gt=1)
    kl_floor: float = Field(default=0.1, ge=0)
    grad_factor: float = Field(default=20.0, gt=1)
    grad_floor: float = Field(default=1.0, ge=0)
    truncated_share: float = Field(default=0.25, ge=0, le=1)
    invalid_share: float = Field(default=0.2, ge=0, le=1)
    unscored_share: float = Field(default=0.05, ge=0, le=1)
    dead_share: float = Field(default=0.999, gt=0, le=1)
    loss_change: float = Field(default=0.01, ge=0)
    loss_floor: float = Field(default=0.01, ge=0)
    no_verdict_share: float = Field(default=0.05, ge=0, le=1)
    no_verdict_questions: int = Field(default=20, ge=1)

    @field_validator("heldout_measures")
    @classmethod
    def _check_direction(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse a measure whose rise would be told as good news."""
        known = {name: find_measure(name) for name in names}
        falling = [name for name, one in known.items() if one and not one.is_higher_better]
        if falling:
            raise ValueError(f"less is better of {', '.join(falling)}; give measures that rise")
        return names
