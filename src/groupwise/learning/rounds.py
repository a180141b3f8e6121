"""Rounds of a loop: when one is started, what it is given, and what follows from it."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from groupwise.core import STEP_DONE, RunFolder, Say, digest_file, load_config
from groupwise.data.examples import read_examples
from groupwise.feedback import (
    FeedbackItem,
    FeedbackStore,
    order_by_priority,
    read_items,
    write_items,
)
from groupwise.feedback.sides import list_complete, name_session
from groupwise.learning.certificate import CANDIDATE, FILE, Certificate, read_certificate
from groupwise.learning.judged import is_judged, take_verdict
from groupwise.learning.loop import LogLine, Loop
from groupwise.learning.rows import LEARNED
from groupwise.learning.settings import LoopSettings, RoundConfig, RoundData
from groupwise.models.export import export_policy
from groupwise.models.identity import is_adapter
from groupwise.run.predict import Served, open_run, read_served
from groupwise.run.recipe import find_recipe
from groupwise.run.running import run_recipe
from groupwise.run.steps import StepProgress

RECIPE = "round"
Next = Literal["finish", "look", "train", "wait"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a loop stands.

    Attributes:
        num_rounds: begun so far.
        num_new: labels of sessions that teach which no round has learned from.
        num_new_sessions: that test and are complete, which the last candidate was not looked at
            with.
        is_unfinished: whether the last round has not ended.
        certificate: of the last candidate; None: there is none (yet).
        is_pending: whether it is undecided, and may still take the place of what is served.
    """

    num_rounds: int
    num_new: int
    num_new_sessions: int
    is_unfinished: bool
    certificate: Certificate | None
    is_pending: bool


def choose_next(standing: Standing, settings: LoopSettings, *, is_wanted: bool = False) -> Next:
    """Return what a loop does next.

    Args:
        standing: of the loop.
        settings: when rounds are started.
        is_wanted: a round was asked for: one new label is enough, and a candidate that is
            undecided is given up for it.
    """
    if standing.is_unfinished:
        return "finish"
    if is_wanted and standing.num_new:
        return "train"
    if standing.is_pending and standing.num_new_sessions >= settings.look_every:
        return "look"
    needed = settings.every * (settings.life if standing.is_pending else 1)
    return "train" if standing.num_new >= needed else "wait"


class Learner:
    """Carries out the rounds of a loop.

    Args:
        loop: locked by this process.
        store: what people say.
        say: told what happens.
        report_progress: as for ``run_recipe``.
    """

    def __init__(
        self,
        loop: Loop,
        store: FeedbackStore,
        *,
        say: Say = lambda _: None,
        report_progress: Callable[[StepProgress], None] = lambda _: None,
    ) -> None:
        self._loop, self._store = loop, store
        self._say, self._report = say, report_progress

    def look_up(self) -> Standing:
        """Return where the loop stands."""
        last = self._loop.rounds[-1] if self._loop.rounds else None
        certificate = None if last is None else self._read_certificate(last)
        known = {name_session(one.shown) for one in self._read_asked()}
        return Standing(
            num_rounds=len(self._loop.rounds),
            num_new=len(self._list_new()),
            num_new_sessions=len({name_session(one.shown) for one in self._list_tested()} - known),
            is_unfinished=last is not None and certificate is None,
            certificate=certificate,
            is_pending=certificate is not None
            and certificate.promotion.verdict == "undecided"
            and certificate.served == self._loop.read_log()[-1].version,
        )

    def advance(self, what: Next) -> LogLine | None:
        """Do what ``choose_next`` returned; return the promotion that came of it, if one did.

        Raises:
            GroupwiseError: as ``run_recipe``.
        """
        if what == "wait":
            return None
        if what == "train":
            self._begin_round()
        elif what == "look":
            write_items(self._snapshot("asked"), self._list_tested())
        folder = self._loop.rounds[-1]
        recipe: Any = find_recipe(RECIPE)
        config = self._make_config(folder)
        run_recipe(recipe, config, out=folder, say=self._say, report_progress=self._report)
        return self.settle()

    def settle(self) -> LogLine | None:
        """Draw the consequences of the last certificate, if that was not done; return a promotion.

        A candidate is served unless what it was held against is served no more.
        """
        folder = self._loop.rounds[-1] if self._loop.rounds else None
        certificate = None if folder is None else self._read_certificate(folder)
        if folder is None or certificate is None:
            return None
        self._store.note_use(read_items(folder / "prepare" / LEARNED), certificate.version)
        digest = self._loop.keep_certificate(folder / "decide" / FILE)
        log = self._loop.read_log()
        is_known = any(line.certificate == digest for line in log)
        is_stale = certificate.served != log[-1].version
        if certificate.promotion.verdict != "promoted" or is_known or is_stale:
            return None
        place = folder.relative_to(self._loop.folder).as_posix()
        return self._loop.record("promoted", place, CANDIDATE, certificate.version, digest)

    def _begin_round(self) -> None:
        """Give the next round what there is now, what teaches most first."""
        number = len(self._loop.rounds) + 1
        write_items(self._snapshot("asked", number), self._list_tested())
        taught = [*self._list_teaching(), *self._list_judged()]
        write_items(self._snapshot("items", number), order_by_priority(taught))
        (self._loop.folder / "rounds" / f"{number:03}").mkdir()

    def _make_config(self, folder: Path) -> RoundConfig:
        """Return the config of a round; that of its first start holds to its end."""
        if (folder / "manifest.json").is_file():
            return load_config(RoundConfig, RunFolder(folder).read_manifest()["config"])
        number, settings = int(folder.name), self._loop.settings
        served = read_served(self._loop.folder)
        origin, how = open_run(self._loop.origin), settings.round
        base = str(self._find_base(served))
        # Some of what people said may turn out to be of no use (pictures deleted, seen in tests).
        num_items = max(1, len(read_items(self._snapshot("items", number))) // 2)
        num_old = len(read_examples(origin.folder / origin.task.data_stage / "train.jsonl"))
        num_rows = num_items + min(num_old, round(num_items * how.replay))
        return RoundConfig(
            seed=settings.seed,
            model=origin.config.model.model_copy(update={"base": base}),
            data=RoundData(
                origin=self._loop.origin,
                items=self._snapshot("items", number).absolute(),
                asked=self._snapshot("asked", number).absolute(),
                pictures=self._store.pictures.folder.absolute(),
                sides=self._loop.sides,
                variants=how.variants,
                replay=how.replay,
                mirror_invariant=origin.config.data.mirror_invariant,
                budget=origin.config.data.budget,
            ),
            sft=how.choose_sft(origin.config),
            grpo=how.choose_grpo(origin.config, num_rows),
            evaluation=how.evaluation or origin.config.evaluation,
            trained_share=how.trained_share,
            served=served.version,
            candidate=number,
            level=settings.level,
            margin=settings.margin,
        )

    def _find_base(self, served: Served) -> str | Path:
        """Return the weights of what is served; an adapter is merged first, once."""
        policy = open_run(served.run).find_policy(served.policy)
        if not is_adapter(Path(policy)):
            return policy
        merged = self._loop.folder / "bases" / served.version
        if not merged.is_dir():
            merged.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=merged.parent) as folder:
                os.replace(export_policy(Path(policy), Path(folder, "new")).merged, merged)
        return merged

    def _list_teaching(self) -> list[FeedbackItem]:
        return [
            item
            for item in self._store.list_items()
            if item.label is not None
            and self._loop.sides.find(name_session(item.shown)) == "teaches"
        ]

    def _list_judged(self) -> list[FeedbackItem]:
        """Return what a judge is sure of against the policy, where nobody spoke."""
        least = self._loop.settings.round.learn_from_judge
        if least is None:
            return []
        verdicts = (take_verdict(one, least) for one in self._store.list_unlabelled())
        return [
            one
            for one in verdicts
            if one and self._loop.sides.find(name_session(one.shown)) == "teaches"
        ]

    def _list_new(self) -> list[FeedbackItem]:
        learned = {
            item.shown.id
            for path in self._loop.folder.glob("snapshots/*.items.jsonl")
            for item in read_items(path)
            if not is_judged(item)
        }
        return [item for item in self._list_teaching() if item.shown.id not in learned]

    def _list_tested(self) -> list[FeedbackItem]:
        """Return what people said in complete sessions that test.

        A session keeps the answers that it was looked at with: others would be another session.
        """
        items = {item.shown.id: item for item in self._store.list_items()}
        shown = [*(item.shown for item in items.values()), *self._store.list_unlabelled()]
        before = [one.shown for one in self._read_asked()]
        known = {name_session(one) for one in before}
        new = [one for one in shown if name_session(one) not in known]
        asked = self._loop.sides.draw_asked(new, self._loop.settings.asked_per_session)
        kept = [items[one.id] for one in before if one.id in items]
        return [
            *(item for item in kept if item.label is not None),
            *list_complete(asked, items),
        ]

    def _read_asked(self) -> list[FeedbackItem]:
        path = self._snapshot("asked")
        return read_items(path) if path.is_file() else []

    def _snapshot(self, what: str, number: int | None = None) -> Path:
        """Return the file of what a round was given; of the last one, without a number."""
        number = len(self._loop.rounds) if number is None else number
        return self._loop.folder / "snapshots" / f"{number:03}.{what}.jsonl"

    def _read_certificate(self, folder: Path) -> Certificate | None:
        """Return the certificate of a round that has ended, with all that it was given."""
        if not (folder / "decide" / STEP_DONE).is_file():
            return None
        found = read_certificate(folder / "decide" / FILE)
        is_last = found.asked_file == digest_file(self._snapshot("asked", int(folder.name)))
        return found if is_last else None
