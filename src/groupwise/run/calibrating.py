"""Calibrated confidence: a temperature for each policy, fitted on validation items and kept.

It belongs to weights and not to a name: predictors look it up by the digest of what they load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize_scalar

from groupwise.core import DataError, read_json, write_json
from groupwise.data.examples import read_splits
from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.predictions import Policies, Prediction, RunPolicy
from groupwise.evaluation.report.page import Section, Table, describe_metric
from groupwise.evaluation.report.phrases import DASH, LANGUAGES, Phrases, format_plain
from groupwise.models.identity import digest_base
from groupwise.run.asking import choose_items, make_ask, open_policy, share_labels
from groupwise.run.steps import StepContext

if TYPE_CHECKING:
    from groupwise.run.task import Task


MIN_ITEMS = 20  # below which no temperature is fitted
_LEAST = 1e-12  # stands for a probability that was rounded to 0
_FILE = "calibration.json"
_PHRASES = Path(__file__).with_name("phrases.yaml")
_COLUMNS = ("policy", "temperature", "fitted_on", "mistakes", "error_before", "error_after")


@dataclass(frozen=True, slots=True)
class Temperature:
    """What was fitted, or why nothing was."""

    value: float | None  # above 1: the policy was too sure; None: it is not known
    num_items: int  # with probabilities
    num_mistakes: int  # of them, those whose likeliest label is wrong
    reason: str = ""  # why there is none


def fit_temperature(shares: Sequence[Mapping[str, float]], truths: Sequence[str]) -> Temperature:
    """Return the temperature under which the true labels are likeliest, within 1/20 to 20.

    ``shares`` are probabilities by label for each item. Where all or none of the likeliest labels
    are right, ever lower or higher ones would fit better: none is known then. Source: Guo et al.
    2017, section 4.2.
    """
    pairs = zip(shares, truths, strict=True)
    mistakes = sum(max(one, key=one.__getitem__) != truth for one, truth in pairs)
    known = (len(shares), mistakes)
    if len(shares) < MIN_ITEMS:
        return Temperature(None, *known, f"fewer than {MIN_ITEMS} items")
    if mistakes in (0, len(shares)):
        return Temperature(None, *known, "no mistake" if mistakes == 0 else "nothing right")
    labels = list(shares[0])
    logs = np.log(np.clip([[one[label] for label in labels] for one in shares], _LEAST, None))
    true = logs[np.arange(len(logs)), [labels.index(truth) for truth in truths]]

    def lose(log_value: float) -> float:
        value = math.exp(log_value)
        return float(np.mean(np.logaddexp.reduce(logs / value, axis=1) - true / value))

    found: Any = minimize_scalar(lose, bounds=np.log([1 / 20, 20.0]), method="bounded")
    return Temperature(math.exp(found.x), *known)


def temper(shares: Mapping[str, float], value: float) -> dict[str, float]:
    """Return probabilities at another temperature; at 1 they stay what they are."""
    logs = np.log(np.clip(list(shares.values()), _LEAST, None)) / value
    scaled = np.exp(logs - np.logaddexp.reduce(logs))
    return dict(zip(shares, scaled.tolist(), strict=True))


def calibrate_policies(
    task: Task[Any], context: StepContext, policies: Mapping[str, str | Path]
) -> dict[str, Temperature]:
    """Fit the temperature of each policy on validation items, and write them with its weights.

    Returns:
        Temperatures by policy; nothing where answers are open or no item is to be asked.
    """
    config = context.config
    labels, num_items = task.parser(config).labels, config.evaluation.num_calibration_items
    if not labels or num_items == 0:
        return {}
    validation = read_splits(context.output_of(task.data_stage), "validation")["validation"]
    labelled = [example for example in validation if example.label is not None]
    asked = choose_items(labelled, config.seed, num_items)
    if not asked:
        return {}
    found: dict[str, Temperature] = {}
    rows: dict[str, dict[str, Any]] = {}
    for name, place in policies.items():
        context.say(f"calibrating {name} on {len(asked)} validation {task.things}")
        policy = open_policy(config, place)
        answers = task.read_answers(config, context.run, asked, make_ask(policy, config)(asked))
        shares = share_labels(policy, asked, answers, labels=labels, config=config)
        known = [
            (share, str(example.label))
            for share, answer, example in zip(shares, answers, asked, strict=True)
            if share is not None and answer.label is not None
        ]
        found[name] = fit_temperature([one for one, _ in known], [truth for _, truth in known])
        rows[name] = {"weights": digest_base(place), **asdict(found[name])}
    write_json(context.folder / _FILE, rows)
    return found


def read_temperatures(run: Path) -> dict[str, float]:
    """Return the temperatures of a run by the digest of the weights that they are of.

    Raises:
        DataError: if the file is damaged.
    """
    path = run / "evaluate" / _FILE
    if not path.is_file():
        return {}
    found: dict[str, float] = {}
    for name, row in read_json(path, dict).items():
        weights, value = (row.get("weights"), row.get("value")) if isinstance(row, dict) else (0, 0)
        if value is None or weights is None:
            continue
        if not isinstance(weights, str) or not isinstance(value, int | float) or not value > 0:
            raise DataError(f"{path} has no temperature of {name}", got=repr(row))
        found[weights] = float(value)
    return found


def make_calibration_sections(
    predictions: Sequence[Prediction],
    temperatures: Mapping[str, Temperature],
    *,
    labels: Sequence[str],
    policies: Sequence[RunPolicy],
    seed: int,
) -> list[Section]:
    """Return what the report says of confidence before and after, by language."""
    before = [one for one in predictions if one.policy in temperatures]
    if not before:
        return []
    after: list[Prediction] = []
    for one in before:
        value, shares = temperatures[one.policy].value, one.probabilities
        if value is not None and shares is not None:
            one = replace(one, probabilities=temper(shares, value))
        after.append(one)
    errors = [
        {
            one.policy: one
            for one in compute_metrics(rows, labels=labels, seed=seed)
            if one.measure == "ece"
        }
        for rows in (before, after)
    ]
    num_items = len({one.example_id for one in before})
    sections: list[Section] = []
    for language in LANGUAGES:
        phrases = Phrases(language, policies=Policies(tuple(policies)), own=_PHRASES)
        rows: list[tuple[str, ...]] = []
        for name, one in temperatures.items():
            if one.value is None:
                reason = phrases.title("reasons", one.reason)
                shown = f"{DASH}\n{phrases.say('why_none', reason=reason)}"
            else:
                shown = format_plain(one.value)
            told = (describe_metric(found[name]) if name in found else DASH for found in errors)
            counts = str(one.num_items), str(one.num_mistakes)
            rows.append((phrases.title_policy(name), shown, *counts, *told))
        lead = phrases.say("calibration_lead", num=num_items, split="test", dash=DASH)
        table = Table("", phrases.say_each(*_COLUMNS), tuple(rows))
        sections.append(Section(phrases.say("calibration"), lead, (table,), language=language))
    return sections
