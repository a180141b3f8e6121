"""Mixes: by ratio, without a problem or nearly the same one in two splits, and all rows counted."""

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from real_data import find_real
from sandbox_host import needs_bubblewrap

from groupwise.core import DataError, GroupwiseError, write_jsonl
from groupwise.data.examples import DropLog
from groupwise.data.splits import find_near_texts
from groupwise.sandbox import Limits, ProgramTests, run_python
from groupwise_recipes.workflows.problem_loading import (
    LoadedProblems,
    ProblemSource,
    load_problems,
    read_problems,
)
from groupwise_recipes.workflows.problem_mixes import (
    MixedProblems,
    MixSettings,
    mix_problems,
    problem_mixes,
    report_test_parts,
    write_mix,
)
from groupwise_recipes.workflows.problem_sets import Problem

WORDS = ("red", "blue", "tall", "old", "new", "cold", "fast", "small", "round", "heavy")


def make(name: str, number: int, *, text: str | None = None, cluster: str = "") -> Problem:
    words = [WORDS[(number // 10**place) % 10] for place in range(4)]
    story = f"{name}: {' '.join(words)} and {' '.join(reversed(words))}"
    return Problem(
        id=f"{name}:{number}",
        source=name,
        problem_type="math" if name == "gsm8k" else "qa",
        problem=text or story,
        ground_truth=str(number),
        cluster=f"{name}:{cluster or number}",
    )


def load(name: Any, train: list[Problem], test: list[Problem], **settings: Any) -> LoadedProblems:
    source = ProblemSource(name=name, path="x", **settings)
    return LoadedProblems(source, tuple(train), tuple(test), DropLog(), len(train) + len(test))


def mix(*loaded: LoadedProblems, **settings: Any) -> MixedProblems:
    mixed = mix_problems(
        loaded, MixSettings(sources=tuple(one.source for one in loaded), **settings)
    )
    assert sum(map(len, mixed.splits.values())) + mixed.drops.total == mixed.num_rows
    return mixed


@given(st.integers(20, 60), st.integers(20, 60), st.sampled_from([0.5, 1, 2]), st.integers(0, 9))
@example(41, 52, 1, 5)
def test_splits_share_nothing_and_have_the_ratios(first: int, second: int, ratio: float, seed: int):
    texts = [f"a{n} b{n} c{n}" for n in range(2000)]
    firsts = [make("gsm8k", n, text=texts[n]) for n in range(first)]
    others = [make("hotpotqa", n, text=texts[-1 - n], cluster=str(n // 2)) for n in range(second)]
    mixed = mix(
        load("gsm8k", firsts, [make("gsm8k", 900)], ratio=ratio),
        load("hotpotqa", others, []),
        seed=seed,
    )
    texts = [problem.problem for split in mixed.splits.values() for problem in split]
    clusters = [{p.cluster for p in split} for split in mixed.splits.values()]
    assert len(set(texts)) == len(texts)
    assert not clusters[0] & clusters[1]
    counts = mixed.count()
    totals = [counts["train"][n] + counts["validation"][n] for n in ("gsm8k", "hotpotqa")]
    assert abs(totals[0] - ratio * totals[1]) <= ratio + 1
    # A share is one of clusters: of two problems, or of one where the ratio left the other out.
    for name in ("gsm8k", "hotpotqa"):
        num = [
            len({p.cluster for p in mixed.splits[split] if p.source == name})
            for split in ("train", "validation")
        ]
        assert abs(num[1] - 0.1 * sum(num)) <= 1


def test_what_is_nearly_the_same_as_a_test_problem_does_not_train():
    story = "Anna has 12 apples, gives 5 to her brother and then buys as many as she has left over"
    near = make("gsm8k", 1, text=f"{story} today.")
    test = [make("gsm8k", 500, text=f"{story}."), make("gsm8k", 501, text="The same?")]
    same = make("gsm8k", 2, text="the  SAME?")
    others = [make("gsm8k", n) for n in range(10, 40)]
    mixed = mix(load("gsm8k", [near, same, *others], test))
    reasons = mixed.drops.counts
    assert reasons["nearly the same as a problem of test"] == 1
    assert reasons["same as a problem of test"] == 1


def test_what_is_nearly_the_same_as_a_validation_problem_does_not_train():
    texts = [make("gsm8k", number).problem for number in range(11, 9000, 173)]
    longer = [f"{text} {text[::-1]}" for text in texts]
    firsts = [make("gsm8k", n, text=text) for n, text in enumerate(longer)]
    twins = [make("gsm8k", 1000 + n, text=f"{text} so") for n, text in enumerate(longer)]
    mixed = mix(load("gsm8k", [*firsts, *twins], []))
    assert mixed.drops.counts["nearly the same as a problem of validation"] > 0
    trained, validated = (
        [problem.problem for problem in mixed.splits[name]] for name in ("train", "validation")
    )
    assert not find_near_texts(trained, validated, least=0.8)


def test_a_test_problem_that_is_not_measured_does_not_train_either():
    train = [make("gsm8k", n) for n in range(20)]
    mixed = mix(load("gsm8k", train, [make("gsm8k", n) for n in range(10)]), max_test=1)
    ids = {problem.id for split in ("train", "validation") for problem in mixed.splits[split]}
    assert ids.isdisjoint(f"gsm8k:{n}" for n in range(10))
    assert mixed.drops.counts["more than max_test"] == 9


def test_a_seed_gives_the_same_mix_and_another_one_another():
    sets = load("gsm8k", [make("gsm8k", n) for n in range(0, 4000, 100)], [])
    first, again, other = (mix(sets, num_problems=20, seed=seed).splits for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_what_leaves_nothing_to_train_is_an_error():
    with pytest.raises(DataError, match="no problem may train"):
        mix(load("gsm8k", [], [make("gsm8k", 1)]))
    sets = [load(name, [make(name, n) for n in range(30)], []) for name in ("gsm8k", "hotpotqa")]
    small = load("hotpotqa", list(sets[1].train), [], ratio=0.01)
    with pytest.raises(DataError, match="the ratio of hotpotqa leaves it no problem"):
        mix(sets[0], small)


def test_a_type_that_is_only_measured_is_told():
    train = [make("gsm8k", n) for n in range(30)]
    mixed = mix(load("gsm8k", train, []), load("hotpotqa", [], [make("hotpotqa", 1)]))
    assert [finding.name for finding in mixed.findings] == ["type_is_only_measured"]


def test_a_mix_is_written_with_its_report_and_read_again(tmp_path: Path):
    mixed = mix(load("gsm8k", [make("gsm8k", n) for n in range(30)], [make("gsm8k", 1)]))
    write_mix(mixed, tmp_path)
    for name, problems in mixed.splits.items():
        assert read_problems(tmp_path / f"{name}.jsonl") == problems
    report = json.loads((tmp_path / "mix.json").read_text())
    assert report["num_rows"] == 31
    assert report["drops"]["total"] == mixed.drops.total == 1
    (tmp_path / "test.jsonl").write_text('{"id": "x"}\n')
    with pytest.raises(DataError, match="holds a row that is no problem"):
        read_problems(tmp_path / "test.jsonl")


def test_two_sources_with_the_same_id_are_refused():
    one = load("own", [make("own", 1)], [])
    other = load("own", [make("own", 1, text="Another problem.")], [])
    with pytest.raises(DataError, match="two sources have problems of the same id; got own:1"):
        mix_problems([one, other], MixSettings(sources=(one.source, other.source)))


@pytest.fixture
def gsm8k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "sets" / "gsm8k"
    folder.mkdir(parents=True)
    for part, first, number in (("train", 0, 30), ("test", 30, 4)):
        rows = [{"question": f"Q{n}?", "answer": f"#### {n}"} for n in range(first, first + number)]
        write_jsonl(folder / f"{part}.jsonl", [*rows, {"question": "", "answer": "#### 1"}])
    return folder


def call(*words: str) -> str:
    done = CliRunner().invoke(problem_mixes, [*words, "--out", "mixed"], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.usefixtures("gsm8k")
def test_a_mix_is_written_and_its_rows_add_up():
    said = call("mix", "--source", "gsm8k=sets/gsm8k", "--set", "num_problems=20")
    assert "dropped 10: beyond its ratio" in said
    assert "36 rows: 24 used, 12 dropped" in said
    report = json.loads(Path("mixed/mix.json").read_text())
    assert report["problems"] == {
        "train": {"gsm8k": 18}, "validation": {"gsm8k": 2}, "test": {"gsm8k": 4}
    }  # fmt: skip
    assert len(Path("mixed/train.jsonl").read_text().splitlines()) == 18


def test_a_config_has_paths_beside_it_and_findings_are_printed_first(gsm8k: Path):
    rows = [{"question": f"Q{n}?", "answer": f"#### {n}"} for n in range(30)]
    (gsm8k / "train.jsonl").unlink()
    write_jsonl(gsm8k / "test.jsonl", rows)
    source = "{name: gsm8k, path: gsm8k, split_test_part: true}"
    Path("sets/mix.yaml").write_text(f"sources: [{source}]\n")
    said = call("mix", "--config", "sets/mix.yaml")
    assert said.startswith("warning trains_on_test_part: Problems for training come from")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fetch", "gsm9k"], "there is no set 'gsm9k'; did you mean 'gsm8k'?"),
        (["mix"], "say what is mixed by either --config or --source"),
        (["mix", "--source", "gsm8k=none"], "there is no table at none"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], said: str):
    with pytest.raises(GroupwiseError, match=re.escape(said)):
        call(*words)


def test_fetching_offline_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any):
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", refuse)
    with pytest.raises(DataError, match=r"cannot fetch gsm8k from the hub \(no network\); go"):
        call("fetch", "gsm8k")


def load_real_sets(name: Any, **settings: Any) -> LoadedProblems:
    loaded = load_problems(ProblemSource(name=name, path=str(find_real(name)), **settings))
    assert len(loaded.train) + len(loaded.test) + loaded.drops.total == loaded.num_rows
    ids = [problem.id for problem in (*loaded.train, *loaded.test)]
    assert len(set(ids)) == len(ids)
    return loaded


def test_gsm8k():
    loaded = load_real_sets("gsm8k")
    assert (len(loaded.train), len(loaded.test)) == (7473, 1319)
    assert loaded.test[0].ground_truth == "18"


def test_mbpp_is_divided_by_its_numbers():
    loaded = load_real_sets("mbpp")
    assert loaded.num_rows == 974
    assert loaded.drops.counts == {
        "of the part for few-shot prompts": 10,
        "no hidden tests are left": 1,
        "repeats another row": 1,
    }
    numbers = [int(problem.id.partition(":")[2]) for problem in loaded.train]
    assert (min(numbers), max(numbers), len(numbers)) == (601, 974, 374)


def test_human_eval_is_for_tests_only():
    loaded = load_real_sets("humaneval")
    assert loaded.num_rows == 164
    assert not loaded.train
    assert loaded.drops.counts == {"no hidden tests are left": 1}


def test_mmlu_trains_only_if_it_is_said_and_then_by_subject():
    assert not load_real_sets("mmlu").train
    loaded = load_real_sets("mmlu", split_test_part=True)
    assert loaded.num_rows == 14042 + 285
    subjects = [{p.cluster for p in side} for side in (loaded.train, loaded.test)]
    assert not subjects[0] & subjects[1]
    assert len(subjects[0] | subjects[1]) == 57
    assert [finding.name for finding in report_test_parts([loaded])] == ["trains_on_test_part"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
@needs_bubblewrap
def test_every_reference_passes_its_tests_as_they_are_loaded(name: str):
    loaded = load_real_sets(name)
    problems = (*loaded.train, *loaded.test)

    def run(problem: Problem) -> str:
        tests = (problem.setup, *problem.public_tests, *problem.hidden_tests)
        asked = ProgramTests("\n".join(tests), problem.entry_point)
        result = run_python(problem.ground_truth, tests=asked, limits=Limits(timeout_s=60))
        return result.status if result.status == "passed" else f"{problem.id}: {result}"

    with ThreadPoolExecutor(2) as workers:
        results = Counter(workers.map(run, problems))
    assert results == {"passed": len(problems)}
