"""Results as lm-evaluation-harness writes them: one folder per model, results and samples.

A policy is a model and a split a task. What the run did not record is left out, never made up.

Source: EleutherAI/lm-evaluation-harness, ``lm_eval/result_schema.py`` and
``lm_eval/loggers/evaluation_tracker.py``. Deviations: intervals and split digests stand under the
additional key ``groupwise``; prompts are not in a run's predictions, so ``arg_0`` names the item
and ``prompt_hash`` is its id, which is a digest of its content.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from math import sqrt
from pathlib import Path
from typing import Any

from groupwise.core import digest_json, write_json, write_jsonl
from groupwise.evaluation.interchange.source import RunRecords
from groupwise.evaluation.interchange.tables import describe_records
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Prediction, group_by_policy

_FILTER = "none"
_HASHES = ("doc_hash", "prompt_hash", "target_hash")
_INVALID = "[invalid]"
_SHARES = ("accuracy", "invalid_rate", "accuracy[", "invalid_rate[", "precision:", "recall:")


def write_lm_eval(folder: Path, records: RunRecords) -> list[Path]:
    """Write ``MODEL/results_DATE.json`` and ``MODEL/samples_TASK_DATE.jsonl`` per policy.

    The date is that of the evaluation, so that exporting again replaces the same files.

    Returns:
        The paths of the results.
    """
    found = group_by_policy(records.predictions)
    date = _find_date(records).replace(":", "-")
    written: list[Path] = []
    for policy in records.policies:
        home = folder / _sanitize_model(_name_model(records, policy))
        tasks = {
            _name_task(records, split): rows
            for (split, name), rows in found.items()
            if name == policy
        }
        samples = {task: list(_list_samples(rows)) for task, rows in tasks.items()}
        results = _build_results(records, policy, tasks, samples)
        written.append(home / f"results_{date}.json")
        write_json(written[-1], results)
        for task, rows in samples.items():
            write_jsonl(home / f"samples_{task}_{date}.jsonl", rows)
    return written


def _build_results(
    records: RunRecords,
    policy: str,
    tasks: Mapping[str, Sequence[Prediction]],
    samples: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    metrics = {
        task: [m for m in records.metrics if (m.policy, m.split) == (policy, rows[0].split)]
        for task, rows in tasks.items()
    }
    model = _name_model(records, policy)
    known = records.directions
    return {
        "results": {task: _list_values(task, rows, metrics[task]) for task, rows in tasks.items()},
        "group_subtasks": {task: [] for task in tasks},
        "configs": {
            task: _describe_task(records, task, rows, metrics[task]) for task, rows in tasks.items()
        },
        "versions": {task: records.metric_versions.get("accuracy") for task in tasks},
        "n-shot": {
            task: num for task, rows in tasks.items() if (num := _count_shots(rows)) is not None
        },
        "higher_is_better": {
            task: {_rename(m.measure): known[m.measure] for m in found if m.measure in known}
            for task, found in metrics.items()
        },
        "n-samples": {
            task: {"original": len(rows), "effective": len(rows)} for task, rows in tasks.items()
        },
        "config": _describe_model(records, policy),
        **_describe_origin(records),
        "model_source": "groupwise",
        "model_name": model,
        "model_name_sanitized": _sanitize_model(model),
        "task_hashes": {
            task: digest_json([[row[name] for name in _HASHES] for row in rows])
            for task, rows in samples.items()
        },
        "groupwise": {
            **describe_records(records),
            "metrics": [asdict(metric) for found in metrics.values() for metric in found],
        },
    }


def _list_values(
    task: str, rows: Sequence[Prediction], metrics: Sequence[Metric]
) -> dict[str, Any]:
    values: dict[str, Any] = {"name": task, "alias": task, "sample_len": len(rows)}
    for metric in metrics:
        name = _rename(metric.measure)
        values[f"{name},{_FILTER}"] = metric.value
        values[f"{name}_stderr,{_FILTER}"] = _find_error(metric)
    return values


def _find_error(metric: Metric) -> float | str:
    """Return the standard error of a mean of 0 and 1; ``N/A`` for any other metric, as there."""
    if metric.n < 2 or not _is_share(metric.measure):
        return "N/A"
    return sqrt(metric.value * (1 - metric.value) / (metric.n - 1))


def _is_share(measure: str) -> bool:
    return any(
        measure.startswith(name) if name[-1] in "[:" else measure == name for name in _SHARES
    )


def _rename(measure: str) -> str:
    """Return a metric's name there: ``acc`` is accuracy, and a comma would begin the filter."""
    return "acc" if measure == "accuracy" else measure.replace(",", ";")


def _describe_task(
    records: RunRecords, task: str, rows: Sequence[Prediction], metrics: Sequence[Metric]
) -> dict[str, Any]:
    split, known = rows[0].split, records.directions
    config: dict[str, Any] = {
        "task": task,
        "test_split": split,
        "output_type": "generate_until",
        "metric_list": [
            {
                "metric": _rename(metric.measure),
                "aggregation": "mean" if _is_share(metric.measure) else metric.measure,
                **({"higher_is_better": known[metric.measure]} if metric.measure in known else {}),
            }
            for metric in metrics
        ],
        "metadata": {
            "version": records.metric_versions.get("accuracy"),
            "split_digests": records.digest_splits()[split],
            "metric_versions": dict(records.metric_versions),
        },
    }
    if records.conditions.get("decoding"):
        config["generation_kwargs"] = dict(records.conditions["decoding"])
    return config


def _count_shots(rows: Sequence[Prediction]) -> int | None:
    """Return how many demonstrations each prompt had, where every item says the same number."""
    found = {row.fields.get("num_shots") for row in rows}
    num_shots = found.pop() if len(found) == 1 else None
    return num_shots if isinstance(num_shots, int) else None


def _describe_model(records: RunRecords, policy: str) -> dict[str, Any]:
    manifest = records.manifest
    base = manifest.get("config", {}).get("model", {}).get("base")
    arguments = {"run": records.name, "policy": policy}
    config: dict[str, Any] = {
        "model": "groupwise",
        "model_args": arguments if base is None else {"pretrained": str(base), **arguments},
        "limit": None,
    }
    if "seed" in manifest:
        config["random_seed"] = manifest["seed"]
    if records.conditions.get("decoding"):
        config["gen_kwargs"] = dict(records.conditions["decoding"])
    return config


def _describe_origin(records: RunRecords) -> dict[str, Any]:
    manifest = records.manifest
    found: dict[str, Any] = {"date": datetime.fromisoformat(_find_date(records)).timestamp()}
    if manifest.get("git_revision"):
        found["git_hash"] = manifest["git_revision"]
    if "transformers" in manifest.get("packages", {}):
        found["transformers_version"] = manifest["packages"]["transformers"]
    if "duration_s" in records.evaluation:
        found["total_evaluation_time_seconds"] = str(records.evaluation["duration_s"])
    return found


def _find_date(records: RunRecords) -> str:
    return str(
        records.evaluation.get("finished_at")
        or records.manifest.get("started_at")
        or "1970-01-01T00:00:00+00:00"
    )


def _list_samples(rows: Sequence[Prediction]) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(rows):
        doc = {
            "example_id": row.example_id,
            "cluster": row.cluster,
            "label": row.label,
            "pictures": list(row.pictures),
            "pair": row.pair,
            "fields": dict(row.fields),
        }
        values = {"acc": float(row.is_correct), "invalid_rate": float(row.predicted is None)}
        sample: dict[str, Any] = {
            "doc_id": place,
            "doc": doc,
            "target": row.label,
            "arguments": {"gen_args_0": {"arg_0": f"item {row.example_id}", "arg_1": ""}},
            "resps": [[row.text]],
            "filtered_resps": [_INVALID if row.predicted is None else row.predicted],
            "filter": _FILTER,
            "doc_hash": digest_json(doc),
            "prompt_hash": row.example_id,
            "target_hash": digest_json(row.label),
        }
        for name, score in row.scores.items():
            is_taken = name in {*sample, *values, "metrics"}
            values[f"score_{name}" if is_taken else name] = score
        yield {**sample, "metrics": list(values), **values}


def _name_model(records: RunRecords, policy: str) -> str:
    return f"{records.name}:{policy}"


def _name_task(records: RunRecords, split: str) -> str:
    return re.sub(r"\W", "_", f"{records.manifest.get('recipe', 'run')}_{split}")


def _sanitize_model(name: str) -> str:
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", name)
