"""The judge of the recipe: a larger model that says whether a screen fits a task.

It sees the screen and the task and never the policy's answer, so no answer can talk to it.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from groupwise.core import Completion, Example, Harmless, Score
from groupwise.inference import Responder, ResponderSettings, open_responder
from groupwise.judges import (
    JudgeSettings,
    LogitJudge,
    Question,
    ReplyCache,
    Verdict,
    load_prompt,
)
from groupwise.rewards import Judged, LabelParser

_PROMPTS = Path(__file__).parent / "prompts"
OPTION_TEXTS = {
    "en": ("the screen is on-task", "the screen is off-task"),
    "zh": ("在任务上", "不在任务上"),
}
"""What the judge reads for each label, whatever word the policy has for it."""

_CACHED = Harmless("a verdict from the cache is the verdict", "缓存中的裁决与重新裁决相同")


class OnTaskJudgeSettings(ResponderSettings):
    """The model that judges, and how it is asked.

    Attributes:
        language: of the prompt and the options.
        cache: file of replies that several runs may share; None: one in the step's folder.
        cache_mib: size that the file is kept below.
        settings: retries, and when too many questions without a verdict stop the run.
    """

    language: Literal["en", "zh"] = "en"
    cache: Annotated[Path | None, _CACHED] = None
    cache_mib: Annotated[float, _CACHED] = Field(default=256.0, gt=0)
    settings: JudgeSettings = JudgeSettings()


def open_judge(settings: OnTaskJudgeSettings, parser: LabelParser, folder: Path) -> LogitJudge:
    """Load the model, or make ready to ask its server; replies are kept in ``folder``."""
    cache = ReplyCache(settings.cache or folder / "judge.sqlite", max_mib=settings.cache_mib)
    return make_judge(settings, parser, open_responder(settings), cache=cache)


def make_judge(
    settings: OnTaskJudgeSettings,
    parser: LabelParser,
    responder: Responder,
    *,
    cache: ReplyCache | None = None,
) -> LogitJudge:
    """Return the judge with ``responder`` behind it; it lists the labels in both orders."""
    return LogitJudge(
        responder,
        load_prompt(_PROMPTS / f"judge.{settings.language}.txt"),
        labels=parser.labels,
        option_texts=OPTION_TEXTS[settings.language],
        name="on-task judge",
        settings=settings.settings,
        cache=cache,
    )


def make_judged(judge: LogitJudge, parser: LabelParser) -> Judged:
    """Return the reward: the judge's probability of the label that the policy gave."""

    def ask(example: Example, completion: Completion) -> Question | Score:
        answer = parser.parse(completion.text)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        return Question({"task": str(example.fields["task"])}, example.pictures)

    def pay(verdict: Verdict, _: Example, completion: Completion) -> float:
        label = parser.parse(completion.text).label
        assert label is not None
        return verdict.probabilities[label]

    return Judged(judge, ask=ask, pay=pay)
