from collections.abc import Callable
from typing import Any

import pytest
from asked_rows import count
from real_data import find_real

from groupwise.data.tables import LoadedTable

Load = Callable[..., LoadedTable]

CHOICES = ["choice0", "choice1", "choice2", "choice3"]
CHOICE_PROMPT = (
    "{{ question }}\nA. {{ choice0 }}\nB. {{ choice1 }}\nC. {{ choice2 }}\nD. {{ choice3 }}"
)


def test_gsm8k(load: Load):
    folder = find_real("gsm8k")
    loaded = load(
        files={"train": f"{folder}/train.jsonl", "test": f"{folder}/test.jsonl"},
        columns={
            "prompt": "question",
            "answer": "{{ answer.split('####')[1] }}",
            "target": "answer",
        },
    )
    assert loaded.num_rows == 7473 + 1319
    assert count(loaded)[-1] == 1319
    assert not loaded.findings
    assert loaded.splits["test"][0].label == "18"
    assert len(loaded.targets) == 7473 + 1319 - loaded.drops.total


def test_mmlu_by_subject_trains_on_the_test_part_and_says_so(load: Load):
    folder = find_real("mmlu")
    loaded = load(
        files=[f"{folder}/dev", f"{folder}/test/*.csv"],
        columns={
            "prompt": CHOICE_PROMPT,
            "answer": "{{ 'ABCD'[answer|int] }}",
            "options": CHOICES,
            "cluster": "{{ _file | replace('_test', '') | replace('_dev', '') }}",
        },
    )
    assert loaded.num_rows == 285 + 14042
    assert set(loaded.drops.counts) == {"repeats another row"}
    subjects = [{e.cluster for e in examples} for examples in loaded.splits.values()]
    assert len(set().union(*subjects)) == sum(map(len, subjects)) == 57
    assert [finding.name for finding in loaded.findings] == ["trains_on_test_part"]
    assert {e.label for e in loaded.splits["test"]} == set("ABCD")


@pytest.mark.parametrize(
    ("files", "columns", "num_rows"),
    [
        ("humaneval/HumanEval.jsonl.gz", {"prompt": "prompt"}, 164),
        ("mbpp/mbpp.jsonl", {"prompt": "text", "target": "code"}, 974),
        (
            "llmbar/Natural/dataset.json",
            {"prompt": "{{ input }}\n1: {{ output_1 }}\n2: {{ output_2 }}", "answer": "label"},
            100,
        ),
        ("vsr/random/dev.jsonl", {"prompt": "{{ image }} {{ caption }}", "answer": "label"}, 1097),
        (
            "screenagent/index.jsonl",
            {"prompt": "task_en", "answer": "activity", "pictures": "image", "cluster": "session"},
            657,
        ),
        (
            "tile_clusters/photo_labels.csv",
            {
                "prompt": "{{ '有什么缺陷？' }}",
                "answer": "defect",
                "pictures": "photo",
                "cluster": "group_id",
            },
            253,
        ),
    ],
)
def test_files_load_as_they_are(load: Load, files: str, columns: dict[str, Any], num_rows: int):
    folder, _, name = files.partition("/")
    loaded = load(files=f"{find_real(folder)}/{name}", columns=columns)
    assert loaded.num_rows == num_rows
    assert loaded.drops.total < 0.02 * num_rows
