"""What both stages are asked: one photo at a time, then the list of what was seen.

Only texts; what replies mean is read by ``summaries`` (Stage A) and ``verdicts`` (Stage B).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core import Example, Message, Picture, make_example
from groupwise_recipes.group_qc.missions import MissionTable
from groupwise_recipes.group_qc.words import Prompts, Words, fill_in


@dataclass(frozen=True, slots=True)
class Questions:
    """What both stages are asked.

    Attributes:
        missions: the table that both stages use.
        words: of the job.
        prompts: of the job.
    """

    missions: MissionTable
    words: Words
    prompts: Prompts

    def ask_of_photo(
        self, mission: str, picture: Picture, *, group: str, description: str | None = None
    ) -> Example:
        """Return the question about one photo; ``description`` is its true answer, if known."""
        question = fill_in(
            self.prompts.photo,
            mission=mission,
            focus=self.missions[mission].focus,
            key=self.words.name_photo(1),
            irrelevant=self.words.irrelevant,
        )
        return make_example(
            [Message("user", question)],
            cluster=group,
            pictures=[picture],
            label=description,
            fields={"mission": mission},
        )

    def write_photo_reply(self, description: str) -> str:
        """Return the reply that Stage A is to give for a photo with this description."""
        return json.dumps({self.words.name_photo(1): description}, ensure_ascii=False)

    def ask_of_group(
        self,
        mission: str,
        summaries: Mapping[str, str],
        *,
        group: str,
        label: str | None,
        images: Sequence[str] = (),
    ) -> Example:
        """Return the Stage B question about a photo group's summaries."""
        fields = {"group_id": group, "task_type": mission, "group_label": label}
        return make_example(
            self.ask_of_summaries(mission, summaries, answers=self.words.verdicts),
            cluster=group,
            label=label,
            fields={**fields, "stage_a_summaries": dict(summaries), "images": list(images)},
        )

    def ask_of_summaries(
        self, mission: str, summaries: Mapping[str, str], *, answers: Sequence[str]
    ) -> list[Message]:
        """Return the rules and the question which of the answers summaries call for, and why."""
        lines = [self.words.write_line(key, text) for key, text in summaries.items()]
        return self._write_turns(mission, self.missions[mission].key_points, lines, answers)

    def describe(self) -> list[Message]:
        """Return Stage B's question with ``{{ … }}`` for what is of a photo group."""
        line = self.words.write_line(self.words.name_photo(1), "{{ description }}")
        points = ["{{ key_points }}"]
        return self._write_turns("{{ mission }}", points, [line, "…"], self.words.verdicts)

    def _write_turns(
        self, mission: str, key_points: Sequence[str], lines: Sequence[str], answers: Sequence[str]
    ) -> list[Message]:
        words = self.words
        rules = fill_in(
            self.prompts.rules, pass_verdict=words.pass_verdict, fail_verdict=words.fail_verdict
        )
        question = fill_in(
            self.prompts.group,
            mission=mission,
            key_points=key_points,
            answers=answers,
            reason=words.reason,
            lines="\n".join(lines),
        )
        return [Message("system", rules), Message("user", question)]


def open_questions(config: Any) -> Questions:
    """Return the questions of a job's config, or of a view of it."""
    return Questions(config.data.load_missions(), config.words, config.prompts)
