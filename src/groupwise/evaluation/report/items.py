"""Items on the page of a run: pictures, prompts, truths and answers, and the worst mistakes."""

from collections.abc import Sequence
from pathlib import Path

from groupwise.core import digest_file, is_below
from groupwise.evaluation import page
from groupwise.evaluation.page import Block, Part, Words
from groupwise.evaluation.predictions import MARKS, MAX_TEXT, Prediction, have_truths
from groupwise.evaluation.report.content import Report
from groupwise.evaluation.report.files import RunFiles

NUM_MISTAKES = 10
_MAX_ANSWER = 60
_MARKED = ("reference", "answer")


def show_item(
    one: Prediction,
    said: str,
    words: Words,
    *,
    pills: Sequence[tuple[str, str]],
    files: RunFiles,
) -> page.Card:
    """Return a card; ``pills`` follow the truth.

    Its title is the item's field ``task`` or, where it has none, the last turn of its prompt. What
    the answer's field ``MARKS`` tells is drawn on the picture and said beside it.
    """
    task = one.fields.get("task") or files.prompts.turns.get(one.example_id)
    picture = _find_picture(one, files.folder)
    truth = [] if one.label is None else [words.label("truth_is", label=cut_answer(one.label))]
    where = words.label(
        "where", cluster=page.mark_code(one.cluster), item=page.mark_code(one.example_id[:8])
    )
    marks = one.fields.get(MARKS, {})
    regions = tuple(
        page.Region(kind, *sides, name=name)
        for kind in _MARKED
        for *sides, name in marks.get(kind, ())
    )
    remark = marks.get("remark", {}).get(words.language, "")
    gone = words.label("picture_gone" if picture is None else "picture_broken")
    return page.Card(
        title=page.shorten(task, MAX_TEXT) if isinstance(task, str) else words.label("no_task"),
        pills=(*(("truth", text) for text in truth), *pills),
        said=f"{said}; {where}" + (f"; {remark}" if remark else ""),
        picture=picture,
        gone=gone if one.pictures else "",
        alt=words.label("picture_of", item=one.example_id[:8]),
        regions=regions,
    )


def cut_answer(answer: str) -> str:
    """Return a label or another parsed answer, at most 60 characters of it."""
    return page.shorten(answer, _MAX_ANSWER)


def show_prompt(report: Report, words: Words) -> tuple[Part, ...]:
    """Return one prompt as the model sees it, where the run knows it."""
    asked = report.files.prompts
    if not asked.shown:
        return ()
    pictures = words.label("with_pictures", names=asked.pictures) if asked.pictures else ""
    values = {"item": asked.item[:8], "split": report.split, "pictures": pictures}
    blocks = (page.Paragraph(words.label("prompt_lead", **values)), page.Verbatim(asked.shown))
    return (Part("prompt", words.label("prompt"), blocks),)


def _find_picture(one: Prediction, folder: Path) -> Path | None:
    """Return the first picture, named from the run's folder or from here; None if it is gone.

    Rows may come from anybody, and a report may go to anybody: a file outside the run is shown
    only if it is the very one that the run asked about.
    """
    for name in one.pictures[:1]:
        for path in (folder / name, Path(name)):
            if _may_show(path, folder, one.picture_digests[:1]):
                return path
    return None


def _may_show(path: Path, folder: Path, known: Sequence[str]) -> bool:
    try:
        if not path.is_file():
            return False
        return is_below(path, folder) or digest_file(path) in known
    except OSError:  # such as a name that is too long
        return False


def show_mistakes(report: Report, words: Words) -> tuple[Part, ...]:
    """Return the most confident mistakes of the last policy; nothing where none can be wrong."""
    blocks: list[Block] = []
    answers = [item for items in report.answers.values() for item in items]
    if answers and not have_truths(answers):
        return ()
    if report.answers:
        policy, items = list(report.answers.items())[-1]
        wrong = [item for item in items if not item.is_correct]
        shown = choose_mistakes(wrong)
        lead = words.label(
            "some_wrong" if wrong else "none_wrong",
            policy=words.title_policy(policy),
            split=report.split,
            num=len(wrong),
            all=len(items),
            shown=len(shown),
        )
        cards = tuple(_show_mistake(one, report.files, words) for one in shown)
        blocks = [page.Paragraph(lead), *([page.Cards(cards)] if cards else [])]
    return (Part("mistakes", words.label("mistakes"), tuple(blocks)),)


def choose_mistakes(wrong: Sequence[Prediction]) -> list[Prediction]:
    """Return the most confident mistakes, one per picture while there are others.

    Wrong labels come before invalid answers, and those without a known confidence last.
    """
    firsts: dict[tuple[str, ...], Prediction] = {}
    for item in (ranked := sorted(wrong, key=_rank_mistake)):
        firsts.setdefault(item.pictures or (item.example_id,), item)
    chosen_ids = {item.example_id for item in firsts.values()}
    chosen = [*firsts.values(), *(item for item in ranked if item.example_id not in chosen_ids)]
    return sorted(chosen[:NUM_MISTAKES], key=_rank_mistake)


def _rank_mistake(item: Prediction) -> tuple[bool, bool, float, str]:
    confidence = item.confidence
    return (item.predicted is None, confidence is None, -(confidence or 0.0), item.example_id)


def _show_mistake(one: Prediction, files: RunFiles, words: Words) -> page.Card:
    sure = "" if one.confidence is None else words.label("sure", share=one.confidence)
    wrong = words.label("invalid_answer")
    if one.predicted is not None:
        wrong = words.label("answered", answer=cut_answer(one.predicted))
    said = words.label("said_nothing")
    if one.text:
        said = words.label("said", text=page.shorten(one.text, MAX_TEXT))
    reason = words.label("reason_said", reason=one.reason) if one.reason else ""
    return show_item(
        one, f"{said}{reason}", words, pills=[("wrong", f"{wrong}{sure}")], files=files
    )
