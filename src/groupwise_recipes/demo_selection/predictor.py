"""What a finished run is asked: a new query, or labelled questions of somebody else.

It gives the demonstrations and the answer behind them. A labelled question has one picture and the
answers of several people.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from groupwise.core import (
    DataError,
    Example,
    Message,
    ModelError,
    RunError,
    digest_file,
    load_config,
    make_example,
    read_picture,
)
from groupwise.data.examples import DropLog
from groupwise.data.files import Row
from groupwise.data.rows import PICTURE_COLUMNS, read_asked_rows
from groupwise.rewards import VqaParser
from groupwise.serving import Answer, Request
from groupwise_recipes.demo_selection.asking import Answerer, List
from groupwise_recipes.demo_selection.candidate_files import read_candidates
from groupwise_recipes.demo_selection.choosing import PooledQueries, choose_by_selector
from groupwise_recipes.demo_selection.conditions import SAME_IN_EVALUATION, find_differences
from groupwise_recipes.demo_selection.config import DemoSelectionConfig, VqaFiles
from groupwise_recipes.demo_selection.data_stages import load_files, open_features, read_items
from groupwise_recipes.demo_selection.items import list_contents, read_question
from groupwise_recipes.demo_selection.list_stages import (
    SELECTOR,
    draw_run_pools,
    open_answerer,
)
from groupwise_recipes.demo_selection.selector import PointerSelector
from groupwise_recipes.demo_selection.vqa import make_vqa_example

_AT_ONCE = 64


def ask_about_picture(request: Request) -> Example:
    """Return the question of a row about its one picture."""
    question = request.row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise DataError("a row needs a question", got=repr(question))
    if len(request.pictures) != 1:
        raise DataError("a row needs one picture", got=len(request.pictures))
    return make_example(
        [Message("user", (question, read_picture(request.pictures[0])))],
        cluster=request.id,
        fields={"question": question},
    )


class DemoPredictor:
    """Draws the pool of a query as in training, picks a list and asks the answerer with it.

    Where the answerer is not at hand, lists are chosen all the same and there is no answer.

    Args:
        config: of the run.
        base: folder or hub id of the answerer.
        policy: folder of a selector.
        run: the run folder, with its train items and features.
    """

    labels: tuple[str, ...] = ()

    def __init__(
        self, config: DemoSelectionConfig, base: str | Path, *, policy: Path, run: Path
    ) -> None:
        self._config = config
        self._train = {one.id: one for one in read_items(run / "prepare")["train"]}
        self._clip = open_features(config, run)
        self._table = self._clip.tabulate(list_contents(self._train.values()))
        self._weights = digest_file(policy / SELECTOR)
        self._selector = PointerSelector.load(policy / SELECTOR)
        self._trained = read_candidates(run / "candidates" / "anchors.jsonl").conditions
        self._answerer = _try_open(config, base, list(self._train.values()))
        # A pool's digest does not depend on the query.
        some = self._clip.tabulate(list_contents([next(iter(self._train.values()))]))
        self._refuse_unlike(draw_run_pools(config, some, self._table).digest)

    def describe(self) -> Mapping[str, Any]:
        """Return the weights, and what lists and answers are made under."""
        found = None if self._answerer is None else self._answerer.identity
        return {"selector": self._weights, **self._trained.describe(), "answerer": found}

    def make_question(self, request: Request, folder: Path) -> Example:
        """Return the question of a row about its one picture."""
        del folder
        return ask_about_picture(request)

    def answer(self, questions: Sequence[Example]) -> list[Answer]:
        """Return the list of each query with scores, and what the answerer says behind it."""
        asked = self._pool(questions)
        lists = self._choose(asked)
        texts = self._ask(questions, lists)
        scores = self._score(asked)
        return [self._write(*row) for row in zip(lists, scores, texts, strict=True)]

    def write_prompts(self, questions: Sequence[Example]) -> list[Example]:
        """Return each query behind the demonstrations chosen for it, as the answerer is asked."""
        lists, form = self._choose(self._pool(questions)), self._config.form.make()
        return [
            make_example(
                form.write(question, [self._train[one] for one in demos]), cluster=question.cluster
            )
            for question, demos in zip(questions, lists, strict=True)
        ]

    def _pool(self, questions: Sequence[Example]) -> PooledQueries:
        queries = self._clip.tabulate(list_contents(questions))
        pools = draw_run_pools(self._config, queries, self._table)
        return PooledQueries(tuple(questions), queries, self._table, pools)

    def _choose(self, asked: PooledQueries) -> list[List]:
        shots = self._config.recording.num_shots
        return choose_by_selector(self._selector, asked, num_shots=shots)

    def _refuse_unlike(self, sampler: str) -> None:
        ours = {"sampler": sampler}
        if self._answerer is not None:
            ours = self._answerer.describe(sampler=sampler).describe()
        theirs = self._trained.describe()
        names = [name for name in SAME_IN_EVALUATION if name in ours]
        found = find_differences(ours, theirs, names=names)
        if found:
            raise RunError(
                "the selector was trained under other conditions",
                got=" ".join(found.values()),
                fix="run the recipe again with what there is now",
            )

    def _score(self, asked: PooledQueries) -> list[dict[str, float]]:
        """Return the score of each candidate of a first pick, by its id."""
        found: list[dict[str, float]] = []
        for rows, queries, pools in asked.split(_AT_ONCE):
            with torch.no_grad():
                scores = self._selector.score(queries, pools).tolist()
            names = [asked.name_pool(asked.features.ids[row]) for row in rows]
            found += [dict(zip(*pair, strict=True)) for pair in zip(names, scores, strict=True)]
        return found

    def _ask(self, questions: Sequence[Example], lists: Sequence[List]) -> list[str | None]:
        if self._answerer is None:
            return [None] * len(questions)
        return self._answerer.answer(list(zip(questions, lists, strict=True)))

    def _write(self, demos: List, scores: Mapping[str, float], text: str | None) -> Answer:
        shown = [
            {
                "id": one,
                "question": self._train[one].fields["question"],
                "answer": self._train[one].label,
                "picture": str(self._train[one].pictures[0].path),
                "score": scores[one],
            }
            for one in demos
        ]
        details = {"demonstrations": shown}
        if text is None:
            return Answer("", None, "the answerer is not at hand", details=details)
        found = VqaParser().parse(text)
        return Answer(text, found.label, found.reason, details=details)


def _try_open(
    config: DemoSelectionConfig, base: str | Path, train: Sequence[Example]
) -> Answerer | None:
    try:
        return open_answerer(config, base, train)
    except ModelError:
        return None


def read_labelled_questions(path: Path, shown: Iterable[Example]) -> tuple[list[Example], DropLog]:
    """Return the questions of a table, or of official files that a YAML file names."""
    if path.suffix in (".yaml", ".yml"):
        loaded = load_files(load_config(VqaFiles, path))
        found, drops = [make_vqa_example(row) for row in loaded.rows], loaded.drops
    else:
        rows, drops = read_asked_rows(path, pictures=PICTURE_COLUMNS)
        found = [one for row in rows if (one := _read_row(row, drops)) is not None]
    known = {_identify(one) for one in shown}
    for one in found:
        if _identify(one) in known:
            drops.add("a demonstration or trained on", one.id)
    return [one for one in found if _identify(one) not in known], drops


def _read_row(row: Row, drops: DropLog) -> Example | None:
    answers = row.values.get("answers")
    listed = answers if isinstance(answers, list) else []
    texts = [text for text in listed if isinstance(text, str) and text.strip()]
    if not row.values.get("question"):
        drops.add("no column question", row.where)
    elif not row.pictures:
        drops.add("no column image", row.where)
    elif len(texts) < 2:
        drops.add("no column answers with two or more people's", row.where)
    else:
        try:
            asked = ask_about_picture(Request(row.where, row.values, row.pictures))
        except DataError as fault:
            drops.add("unreadable question or picture", f"{row.where}: {fault}")
        else:
            return make_example(
                asked.prompt,
                cluster=asked.pictures[0].digest,
                label=Counter(text.strip() for text in texts).most_common(1)[0][0],
                fields={**asked.fields, "answers": texts},
            )
    return None


def _identify(item: Example) -> tuple[str, str]:
    return item.pictures[0].digest, read_question(item)
