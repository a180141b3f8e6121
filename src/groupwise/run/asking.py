"""The policies of a run: what reports call them, how they are opened, asked and how sure they are.

A policy's confidence is calibrated by a temperature, fitted on validation items and kept. It
belongs to weights and not to a name: predictors look it up by the digest of what they load.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise import core
from groupwise.core import Completion, DataError, Example
from groupwise.data.examples import read_splits
from groupwise.evaluation.baselines import JOINT
from groupwise.evaluation.predictions import (
    Prediction,
    RunPolicy,
    read_predictions,
    write_predictions,
)
from groupwise.evaluation.report.phrases import Phrases, format_share
from groupwise.inference.local import LocalModel, time_answers
from groupwise.inference.model import Sampling
from groupwise.models.identity import digest_base
from groupwise.models.policy import Policy, load_policy
from groupwise.rewards import Parsed, read_leniently
from groupwise.run.steps import StepContext

if TYPE_CHECKING:
    from groupwise.run.task import Task

BASE = "prompt"
"""The name of the untrained policy."""
LENIENT = "prompt_lenient"
"""The policy whose answers are those of ``prompt``, read leniently."""
RANKED = "joint.json"
"""In the folder of ``baselines``: the joint baseline's candidates, and what none of them saw."""
_REFUSED = "could not be asked"


def list_usual_policies(task: Task[Any], context: StepContext) -> list[RunPolicy]:
    """Return the baselines, the base and what the stages that ``evaluate`` uses have trained."""
    run, base = context.run, Path(task.find_base(context.config, context.run))
    is_own = base.is_relative_to(run)  # else it comes from outside
    found = [tell_winner(one, run) for one in task.baselines]
    found.append(make_policy(BASE, weights=base.relative_to(run).as_posix() if is_own else None))
    if task.reads_prompting and task.parser(context.config).labels:
        found.append(make_policy(LENIENT))
    taught = "warmup" if (run / task.data_stage / "warmup.jsonl").is_file() else "train"
    start = "sft" if "sft" in context.uses else BASE
    trained = {"sft": (taught,), "sft_control": ("train",), "grpo": ("train", "validation")}
    for step, splits in trained.items():
        if step not in context.uses:
            continue
        one = make_policy(step, trained_from=BASE if step == "sft" else start, trained_on=splits)
        path = run / step / "selection.json"
        if path.is_file():  # looks at validation decided of which step the weights are, or the end
            chosen = core.read_json(path, dict)
            kept, last, num = chosen["kept_step"], chosen["last_step"], len(chosen["looks"])
            note = f"weights of step {kept} of {last}, chosen on validation in {num} looks"
            note_zh = f"取第 {kept} 步（共 {last} 步）的权重，由验证集上的 {num} 次检查选出"
            one = replace(one, note=f"{one.note}; {note}", note_zh=f"{one.note_zh}；{note_zh}")
        found.append(one)
    return found


@cache
def _read_texts() -> Mapping[str, Mapping[str, Any]]:
    return core.parse_yaml(Path(__file__).with_name("policies.yaml").read_text(encoding="utf-8"))


def make_policy(name: str, *, numbers: Mapping[str, int] | None = None, **more: Any) -> RunPolicy:
    """Return a policy with the titles and notes of ``policies.yaml``.

    A trained one has the name of its step. ``more`` are its other fields.
    """
    texts = {key: text.format(**(numbers or {})) for key, text in _read_texts()[name].items()}
    if texts["kind"] == "trained":
        more |= {"step": name, "weights": f"{name}/policy"}
    return RunPolicy(name=name, **texts, **more)


def tell_winner(policy: RunPolicy, run: Path) -> RunPolicy:
    """Say which candidate the joint baseline took, and how right it was in cross-validation."""
    path = run / "baselines" / RANKED
    ranked = core.read_json(path, dict)["ranked"] if path.is_file() else []
    if policy.name != JOINT.name or not ranked:
        return policy
    name, share = ranked[0]["name"], format_share(ranked[0]["accuracy"])
    note = f"{policy.note}; here {name} ({share} in cross-validation on training rows)"
    chinese = Phrases("zh").translate(name)
    note_zh = f"{policy.note_zh}；此处为{chinese}（训练样本交叉验证 {share}）"
    return replace(policy, note=note, note_zh=note_zh)


def open_policy(config: Any, name: str | Path) -> Policy:
    """Load a policy as ``model`` says; an adapter brings its base along."""
    model = config.model
    return load_policy(
        name, dtype=model.dtype, max_pixels=model.max_pixels, quantization=model.quantization
    )


def answer_greedily(
    policy: Policy, config: Any, examples: Sequence[Example], **named: Any
) -> list[Completion]:
    """Return a policy's greedy answers; ``report_progress`` may be given by name."""
    engine = LocalModel(policy, batch_size=config.evaluation.batch_size)
    sampling = Sampling(max_new_tokens=config.grpo.max_new_tokens)
    return [found for [found] in engine.generate(examples, sampling=sampling, **named)]


def make_ask(policy: Policy, config: Any) -> Callable[..., list[str]]:
    """Return an ``Ask`` of a policy; ``report_progress`` may be given by name."""

    def ask(examples: Sequence[Example], **named: Any) -> list[str]:
        return [found.text for found in answer_greedily(policy, config, examples, **named)]

    return ask


def check_heldout(
    task: Task[Any], policy: Policy, examples: Sequence[Example], config: Any, *, run: Path
) -> Mapping[str, float]:
    """Return the task's own measures, the share of invalid answers and, with labels, accuracy.

    ``commonest`` is the share of the items that get the commonest answer, ``majority`` that of the
    commonest truth, where there are truths.

    The first value is the one that a checkpoint is chosen by: the task's headline measure where it
    is measured here and more of it is better, else accuracy, else the first of the task's own.
    """
    answers = answer_greedily(policy, config, examples)
    texts = [answer.text for answer in answers]
    said = [one.label for one in task.read_answers(config, run, examples, texts)]
    truths = [example.label for example in examples]
    num_items, own = len(examples), task.list_measures(config)
    scores = task.score_answers(config, run, examples, answers)

    def share_commonest(labels: Sequence[str | None]) -> float:
        counts = Counter(label for label in labels if label is not None)
        return max(counts.values(), default=0) / num_items

    values = {
        **{
            name: fmean(one[name] for one in scores if name in one)
            for name in dict.fromkeys(name for one in scores for name in one)
        },
        "invalid": said.count(None) / num_items,
        **task.measure_heldout(config, examples, texts),
        "commonest": share_commonest(said),
        "n": num_items,
    }
    if any(truth is not None for truth in truths):
        values["accuracy"] = sum(a == b for a, b in zip(said, truths, strict=True)) / num_items
        values["majority"] = share_commonest(truths)
    preferred = (task.headline, "accuracy", *(one.name for one in own))
    lower = [one.name for one in own if not one.is_higher_better]
    chosen_by = next((n for n in preferred if n in values and n not in lower), None)
    if chosen_by is None:
        raise core.TrainingError(
            f"none of {num_items} held-out answers has a value by which to choose",
            got=f"no value of {', '.join(one.name for one in own)}",
            fix="let the first measure return a number for every answer",
        )
    return {chosen_by: values[chosen_by], **values}


def ask_policy(
    task: Task[Any],
    policy: Policy,
    examples: Sequence[Example],
    context: StepContext,
    *,
    name: str,
    answer: Callable[..., Sequence[Completion]] | None = None,
) -> list[Prediction]:
    """Return a policy's predictions, one for each example, in order; ``name`` stands in them.

    ``answer`` is how it answers; None: greedily, each label with its probability, and the first
    items are asked one by one and timed. An example that the policy's processor does not take has
    no answer, and says why.
    """
    ask = partial(_ask_taken, task, policy, context=context, name=name, answer=answer)
    try:
        return ask(examples)
    except DataError:
        refused = LocalModel(policy).explain_refused(examples)
        taken = [one for one in examples if one.id not in refused]
        if not refused or not taken:
            raise
    first, why = next(iter(refused.items()))
    counted = f"{len(refused)} of {len(examples)} {task.things}"
    context.say(f"{counted} {_REFUSED}, such as {first}: {why}")
    asked = iter(ask(taken))
    found: list[Prediction] = []
    for one in examples:
        if one.id not in refused:
            found.append(next(asked))
            continue
        # Scored as an empty answer is.
        [scores] = task.score_answers(context.config, context.run, [one], [Completion("", ())])
        nothing = Parsed(None, f"{_REFUSED} ({refused[one.id]})")
        found.append(_predict(one, name, nothing, scores=scores))
    return found


def predict_each(
    policies: Iterable[str], ask: Callable[[str], Iterable[Prediction]], *, folder: Path
) -> list[Prediction]:
    """Return the predictions of policies, each asked once and kept in ``<policy>.jsonl``.

    So a step that is killed between two policies does not ask the first one again.
    """
    found: list[Prediction] = []
    for policy in policies:
        path = folder / f"{policy}.jsonl"
        if not path.exists():
            write_predictions(path, ask(policy))
        found += read_predictions(path)
    return found


def _predict(example: Example, name: str, found: Parsed, **others: Any) -> Prediction:
    return Prediction(
        example_id=example.id,
        cluster=example.cluster,
        split="test",
        policy=name,
        label=example.label,
        predicted=found.label,
        reason=found.reason,
        pictures=tuple(str(picture.path) for picture in example.pictures),
        picture_digests=tuple(picture.digest for picture in example.pictures),
        fields=dict(example.fields),
        **{"text": "", "probabilities": None, "latency_s": None, **others},
    )


def _ask_taken(
    task: Task[Any],
    policy: Policy,
    examples: Sequence[Example],
    *,
    context: StepContext,
    name: str,
    answer: Callable[..., Sequence[Completion]] | None,
) -> list[Prediction]:
    config, run = context.config, context.run
    progress = core.ProgressLine(f"{task.things} answered by {name}", context.say)
    say = answer or partial(answer_greedily, policy, config)
    said = say(examples, report_progress=progress)
    texts = [one.text for one in said]
    probed = task.probe(config, make_ask(policy, config), examples, texts)
    scored = task.score_answers(config, run, examples, said)
    answers = task.read_answers(config, run, examples, texts)
    labels = () if answer else task.parser(config).labels
    shares = share_labels(policy, examples, answers, labels=labels, config=config)
    latencies = time_answers(
        policy,
        examples,
        sampling=Sampling(max_new_tokens=config.grpo.max_new_tokens),
        num_timed=0 if answer else config.evaluation.num_latency_items,
    )
    return [
        _predict(
            example,
            name,
            found,
            text=text,
            probabilities=None if found.label is None else share,
            latency_s=latency_s,
            scores={**one, **two},
        )
        for example, text, found, share, latency_s, one, two in zip(
            examples, texts, answers, shares, latencies, probed, scored, strict=True
        )
    ]


def read_again(
    task: Task[Any],
    policy: Policy,
    examples: Sequence[Example],
    asked: Sequence[Prediction],
    config: Any,
) -> list[Prediction]:
    """Return an untrained policy's predictions, as well as it can be understood.

    Nobody has taught it the form of an answer: it says the label that its text names, and where
    that names none, or several, the label that it finds likeliest. Nothing for open answers.
    """
    parser = task.parser(config)
    if not parser.labels:
        return []
    pairs = list(zip(examples, asked, strict=True))
    taken = [pair for pair in pairs if not pair[1].reason.startswith(_REFUSED)]
    found = [replace(one, policy=LENIENT) for _, one in pairs if one.reason.startswith(_REFUSED)]
    bare = [Parsed(None, "not answered yet")] * len(taken)
    known = [example for example, _ in taken]
    shares = share_labels(policy, known, bare, labels=parser.labels, config=config)
    for (example, one), share in zip(taken, shares, strict=True):
        if share is not None:
            likeliest = max(share, key=share.__getitem__)
            said = read_leniently(parser, one.text, example) or likeliest
            changes: Any = {"predicted": said, "probabilities": share, "reason": ""}
            found.append(replace(one, policy=LENIENT, latency_s=None, scores={}, **changes))
    return found


def share_labels(
    policy: Policy,
    examples: Sequence[Example],
    answers: Sequence[Parsed],
    *,
    labels: Sequence[str],
    config: Any,
) -> Sequence[Mapping[str, float] | None]:
    """Return the labels' probabilities behind what a policy said before; None for open answers."""
    if not labels:
        return [None] * len(examples)
    engine = LocalModel(policy, batch_size=config.evaluation.batch_size)
    prefixes = [answer.prefix for answer in answers]
    return engine.label_probabilities(examples, labels=labels, leads=prefixes)


def draw_items(examples: Sequence[Example], config: Any) -> list[Example]:
    """Return ``evaluation.num_items`` of the test items in their order, or all of them."""
    num_items = config.evaluation.num_items
    if num_items is None:
        return list(examples)
    if num_items > len(examples):
        raise DataError(
            "the test split has fewer items than evaluation.num_items asks for",
            got=num_items,
            expected=f"at most {len(examples)}",
        )
    return choose_items(examples, config.seed, num_items)


def choose_items(examples: Sequence[Example], seed: int, num_items: int) -> list[Example]:
    """Return so many items in their order, or all of them where there are no more.

    Each has its place by the seed and its id, so fewer are always among more.
    """
    places = [core.derive_seed(seed, "item", example.id) for example in examples]
    chosen = sorted(range(len(examples)), key=places.__getitem__)[:num_items]
    return [examples[index] for index in sorted(chosen)]


MIN_ITEMS = 20  # below which no temperature is fitted
_LEAST = 1e-12  # stands for a probability that was rounded to 0
_FILE = "calibration.json"


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
    from scipy.optimize import minimize_scalar

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

    Returns temperatures by policy; nothing where answers are open or no item is to be asked.
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
    core.write_json(context.folder / _FILE, rows)
    return found


def read_temperatures(run: Path) -> dict[str, float]:
    """Return the temperatures of a run by the digest of the weights that they are of.

    A DataError if the file is damaged.
    """
    path, found = run / "evaluate" / _FILE, dict[str, float]()
    for name, row in (core.read_json(path, dict) if path.is_file() else {}).items():
        weights, value = (row.get("weights"), row.get("value")) if isinstance(row, dict) else (0, 0)
        if value is None or weights is None:
            continue
        if not isinstance(weights, str) or not isinstance(value, int | float) or not value > 0:
            raise DataError(f"{path} has no temperature of {name}", got=repr(row))
        found[weights] = float(value)
    return found
