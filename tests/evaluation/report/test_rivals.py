"""A report begins with the rival that its policy does not beat, and names the halves that tell."""

from dataclasses import replace
from pathlib import Path

from agreement import draw_agreement

from groupwise.core import Example, write_json
from groupwise.evaluation import (
    Policies,
    Prediction,
    RunPolicy,
    compute_metrics,
    predict_joint,
    predict_majority,
    predict_picture_only,
    predict_text_only,
    write_metrics,
    write_policies,
    write_predictions,
)
from groupwise.evaluation.baselines import JOINT, MAJORITY, PICTURE_ONLY, TEXT_ONLY
from groupwise.evaluation.page import Words
from groupwise.evaluation.report import build_report

LABELS = ("yes", "no")
TRAINED = RunPolicy(name="grpo", title="GRPO", title_zh="GRPO", kind="trained")
POLICIES = (MAJORITY, TEXT_ONLY, PICTURE_ONLY, JOINT, TRAINED)


def write_run(
    folder: Path, train: list[Example], test: list[Example], *, wrong_every: int
) -> list[str]:
    """Write a run with all baselines and a policy that errs so often; return what it says first."""
    rows = [
        row
        for predict, named in (
            (predict_majority, {}),
            (predict_text_only, {}),
            (predict_picture_only, {}),
            (predict_joint, {"concepts": ("shows", "asks")}),
        )
        for row in predict(train, test, split="test", seed=0, **named)
    ]
    rows += list(answer(rows[: len(test)], wrong_every))
    write_predictions(folder / "evaluate/predictions.jsonl", rows)
    write_metrics(folder / "evaluate/metrics.json", compute_metrics(rows, labels=LABELS))
    write_policies(folder, POLICIES)
    write_json(folder / "audit/audit.json", {"findings": [], "splits": {}})
    write_json(folder / "manifest.json", {"recipe": "r", "config": {}})
    words = Words("en", policies=Policies(POLICIES))
    return [words.say(one).replace("\u00a0", " ") for one in build_report(folder).notices]


def answer(rows: list[Prediction], wrong_every: int):
    """Yield a policy's answers: right but for one of so many."""
    for number, row in enumerate(rows):
        other = LABELS[row.label == LABELS[0]]
        said = other if number % wrong_every == 0 else row.label
        yield replace(row, policy="grpo", predicted=said, text=f"Answer: {said}.")


def test_where_the_joint_baseline_is_perfect_the_report_begins_with_it(tmp_path: Path) -> None:
    examples = list(draw_agreement(270, tmp_path))
    found = write_run(tmp_path, examples[:150], examples[150:], wrong_every=8)
    assert found[0].startswith("On test, GRPO is not clearly above the best baseline: 87.5 % (")
    assert found[0].endswith("against 100.0 % of Joint baseline.")
    assert not any("alone gives part of the answer away" in one for one in found)


def test_where_words_alone_tell_the_report_says_so(tmp_path: Path) -> None:
    """The same pictures, but whoever asks for a colour that is shown asks politely."""
    examples = [polite(one) for one in draw_agreement(270, tmp_path)]
    found = write_run(tmp_path, examples[:150], examples[150:], wrong_every=8)
    assert found[0].startswith("On test, GRPO is not clearly above the best baseline")
    assert any("the text alone gives part of the answer away" in one for one in found)


def polite(example: Example) -> Example:
    """Return the example with a word more where the label is yes."""
    message = example.prompt[0]
    end = " Please." if example.label == "yes" else ""
    parts = [f"{part}{end}" if isinstance(part, str) else part for part in message.parts]
    return replace(example, prompt=(replace(message, parts=tuple(parts)),))
