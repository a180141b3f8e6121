"""Configs: every problem at once, in words that say what to write instead."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from groupwise.core import (
    BUDGET,
    Config,
    ConfigError,
    Harmless,
    Seed,
    Source,
    describe_unknown,
    dump_config,
    find_effect,
    find_nearest,
    flatten_settings,
    list_effects,
    load_config,
    parse_yaml,
    read_config,
)
from groupwise.core.config import read_other_names
from groupwise.data.columns import TableSettings
from groupwise.training.settings import GrpoSettings, SftSettings


class Optimiser(Config):
    learning_rate: float = Field(1e-3, gt=0)
    num_steps: int = 10


class Job(Config):
    name: str
    mode: Literal["on", "off"] = "on"
    folds: tuple[int, ...] = (0, 1)
    optimiser: Optimiser = Optimiser()
    extra: Optimiser | None = None


def load(tmp_path: Path, text: str, *overrides: str) -> Job:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(Job, path, overrides=overrides)


def fail(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, *overrides)
    return str(caught.value)


def test_values_defaults_and_overrides(tmp_path: Path):
    text = "name: 任务\nmode: off\noptimiser: {learning_rate: 1e-5}\n"
    job = load(tmp_path, text, "optimiser.num_steps=3", "folds=[2, 3]", "extra.num_steps=1")
    assert (job.name, job.mode, job.folds) == ("任务", "off", (2, 3))
    assert job.optimiser == Optimiser(learning_rate=1e-5, num_steps=3)
    assert job.extra == Optimiser(num_steps=1)


def test_the_resolved_config_loads_as_the_same(tmp_path: Path):
    job = load(tmp_path, "name: x\nextra: {num_steps: 4}\n")
    assert load_config(Job, dump_config(job)) == job
    assert dump_config(job)["optimiser"] == {"learning_rate": 0.001, "num_steps": 10}


def test_a_config_cannot_be_changed(tmp_path: Path):
    with pytest.raises(ValueError, match="frozen"):
        load(tmp_path, "name: x").name = "y"


def test_overrides_do_not_change_the_source():
    source = {"name": "x", "optimiser": {"num_steps": 1}}
    load_config(Job, source, overrides=["optimiser.num_steps=2"])
    assert source == {"name": "x", "optimiser": {"num_steps": 1}}


def test_all_problems_come_at_once_with_file_and_key(tmp_path: Path):
    text = "optimser: {}\noptimiser: {learning_rate: -1, num_step: 2}\nfolds: [a]\nmode: sideways\n"
    message = fail(tmp_path, text + "extra: {num_step: 1}\n")
    lines = message.splitlines()
    assert lines[0] == "7 problem(s) in the configuration:"
    assert all(line.startswith(f"  {tmp_path / 'job.yaml'}: ") for line in lines[1:])
    for expected in (
        "name: missing",
        "optimser: unknown key; did you mean 'optimiser'? (allowed: extra, folds, mode,",
        "optimiser.num_step: unknown key; did you mean 'num_steps'?",
        "extra.num_step: unknown key; did you mean 'num_steps'?",
        "optimiser.learning_rate: Input should be greater than 0; got -1",
        "mode: Input should be 'on' or 'off'; got 'sideways'",
        "folds.0: Input should be a valid integer",
    ):
        assert expected in message


def test_a_validator_speaks_for_itself():
    class Pair(Config):
        low: int
        high: int

        def model_post_init(self, context: object) -> None:
            if self.low > self.high:
                raise ValueError("low is above high; swap them")

    with pytest.raises(ConfigError, match=r"config: low is above high; swap them$"):
        load_config(Pair, {"low": 2, "high": 1})


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*No such file"):
        load_config(Job, tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, word) for word in ("on", "off", "yes", "no", "On", "OFF", "y", "n")),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("1e-5", 1e-5),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("-0.5e+2", -50.0),
        ("+3", 3),
        ("012", "012"),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("1.2.3", "1.2.3"),
        ("'on'", "on"),
        ("通过", "通过"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object):
    found = parse_yaml(text)
    assert (found, type(found)) == (value, type(value))


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abcxyz_", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_VALUES)
def test_json_is_read_as_it_was_written(value: object):
    assert parse_yaml(json.dumps(value, ensure_ascii=False)) == value


_PIECES = st.sampled_from(
    [*"[]{}a1\n", ": ", ", ", "- ", "? ", "&a ", "*a", "!!int ", "!!map ", "<<"]
)


@given(st.text() | st.lists(_PIECES, max_size=12).map("".join))
def test_any_text_is_a_value_or_a_yaml_error(text: str):
    try:
        value = parse_yaml(text)
    except yaml.YAMLError:
        return
    assert not isinstance(value, yaml.Node)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_override_is_applied_or_refused_in_words(key: str, value: str):
    try:
        loaded = load_config(Job, {"name": "x"}, overrides=[f"{key}={value}"])
    except ConfigError:
        return
    assert isinstance(loaded, Job)


def test_settings_are_flat_and_empty_sections_stay():
    config = {"a": {"b": 1, "c": {"d": None}}, "e": [1, 2], "f": {}}
    flat = [("x/a.b", 1), ("x/a.c.d", None), ("x/e", [1, 2]), ("x/f", {})]
    assert list(flatten_settings(config, "x/")) == flat


LOOK = Harmless("only looked at", "仅旁观")


class Inner(Config):
    size: int = 0
    rate: Annotated[float, BUDGET] = 0.0


class Other(Config):
    size: Annotated[int, LOOK] = 0


class Outer(Config):
    seed: int = 0
    root: Annotated[str | None, Source("data")] = None
    one: Inner = Inner()
    seen: Annotated[Inner, LOOK] = Inner()
    either: Inner | Other | None = None
    named: dict[str, Inner] = {}  # noqa: RUF012
    rows: tuple[Inner, ...] = ()


def test_every_path_has_its_effect() -> None:
    kinds = {path: effect.kind for path, effect in list_effects(Outer).items()}
    assert kinds == {
        "seed": "counts",
        "root": "source",
        "one": "counts",
        "one.size": "counts",
        "one.rate": "budget",
        "seen": "harmless",
        "seen.size": "harmless",
        "seen.rate": "budget",
        "either": "counts",
        "either.size": "counts",
        "either.rate": "budget",
        "named": "counts",
        "named.*.size": "counts",
        "named.*.rate": "budget",
        "rows": "counts",
    }


def test_a_setting_is_found_by_its_path_or_by_its_section() -> None:
    effects = list_effects(Outer)
    assert find_effect(effects, "named.left.rate") == BUDGET
    assert find_effect({"seen": LOOK}, "seen.size.deep") == LOOK
    assert find_effect({"seen": LOOK, "seen.size": BUDGET}, "seen.size") == BUDGET
    assert find_effect(effects, "gone").kind == "counts"
    assert isinstance(effects, Mapping)


class TrainingJob(Config):
    data: TableSettings | None = None
    sft: SftSettings = SftSettings()
    grpo: GrpoSettings = GrpoSettings()


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("grpo.num_generations=8", "'group_size'"),
        ("grpo.lr=1e-5", "'learning_rate'"),
        ("grpo.per_device_train_batch_size=4", "'prompts_per_step'"),
        ("sft.per_device_train_batch_size=4", "'batch_size'"),
        ("grpo.trainable.lora.r=4", "'rank'"),
        ("num_generations=8", "'grpo.group_size'"),
        ("lr=1", "'sft.learning_rate' or 'grpo.learning_rate'"),
        ("grpo.beta_kl=1", "'beta'"),
        ("grpo.max_completion_length=8", "'max_new_tokens'"),
        ("grpo.num_train_epochs=8", "'epochs'"),
        ("sft.gradient_accumulation_steps=8", "'gradient_accumulation'"),
        ("data.train_file=rows.csv", "'files'"),
        ("data.system_prompt=Be brief", "'system'"),
        ("data.columns.question=q", "'prompt'"),
        ("data.columns.label=q", "'answer'"),
        ("data.columns.images=q", "'pictures'"),
        ("grpo.group_sise=8", "'group_size'"),
    ],
)
def test_settings_are_known_by_their_names_elsewhere(override: str, meant: str):
    with pytest.raises(ConfigError) as caught:
        load_config(TrainingJob, {}, overrides=[override])
    assert f"unknown key; did you mean {meant}?" in str(caught.value)


def test_no_setting_has_two_of_these_names():
    names = [(ours, name) for ours, others in read_other_names().items() for name in others]
    assert len(set(names)) == len(names)
    assert not {name for _, name in names} & set(read_other_names())


@given(st.lists(st.text(max_size=8)), st.text(max_size=8))
def test_what_is_suggested_is_known(known: list[str], name: str):
    near = find_nearest(name, known)
    assert near is None or near in known
    if name in known:
        assert near == name


def test_the_sentence():
    assert describe_unknown("recipe", "tinny", ["on_task", "tiny"]) == (
        "there is no recipe 'tinny'; did you mean 'tiny'? (there are: on_task, tiny)"
    )
    assert describe_unknown("step", "x", []) == "there is no step 'x' (there are: none)"


class Judge(Config):
    model: str = "none"
    size: int = Field(default=1, ge=1)


class JudgedJob(Config):
    name: str
    judge: Judge = Judge()
    steps: int = 1


def write(folder: Path, **files: str) -> Path:
    """Write files by name, with ``__`` for a folder; return the one called job."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "job.yaml"


def test_what_is_included_is_joined_and_the_own_values_count(tmp_path: Path) -> None:
    job = write(
        tmp_path,
        job="include: [base.yaml, parts/judge.yaml]\njudge: {size: 3}\n",
        base="name: a\nsteps: 5\njudge: {model: small, size: 1}\n",
        parts__judge="judge: {model: large, size: 2}\n",
    )
    loaded = load_config(JudgedJob, job, overrides=["steps=7"])
    assert loaded == JudgedJob(name="a", judge=Judge(model="large", size=3), steps=7)
    assert "include" not in dump_config(loaded)


def test_included_files_include_others_from_their_own_folder(tmp_path: Path) -> None:
    job = write(
        tmp_path,
        job="include: [parts/one.yaml]",
        parts__one="include: [two.yaml]\nsteps: 1",
        parts__two="name: deep\nsteps: 2",
    )
    assert load_config(JudgedJob, job) == JudgedJob(name="deep", steps=1)


def test_eight_files_include_one_another(tmp_path: Path) -> None:
    chain = {f"f{n}": f"include: [f{n + 1}.yaml]" for n in range(9)}
    job = write(tmp_path, job="include: [f2.yaml]", f9="name: end", **chain)
    assert load_config(JudgedJob, job).name == "end"


def test_a_problem_names_the_file_that_it_is_in(tmp_path: Path) -> None:
    job = write(
        tmp_path,
        job="include: [parts/judge.yaml]\nsteps: many\n",
        parts__judge="judge: {size: 0, sise: 2}\n",
    )
    with pytest.raises(ConfigError) as caught:
        load_config(JudgedJob, job)
    lines = str(caught.value).splitlines()[1:]
    assert [line.partition(": ")[0].strip() for line in lines] == [
        str(job),
        str(tmp_path / "parts/judge.yaml"),
        str(tmp_path / "parts/judge.yaml"),
        str(job),
    ]


KEYS = st.sampled_from(["a", "b", "c"])
SECTIONS: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2) | st.none(),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
FILES = st.lists(st.dictionaries(KEYS, SECTIONS, max_size=3), min_size=1, max_size=4)


def find_last(files: list[dict[str, Any]], path: tuple[str, ...]) -> Any:
    """Return what the last file says that has something at a path or above it."""
    for values in reversed(files):
        found: Any = values
        for key in path:
            if not isinstance(found, dict):
                return found
            if key not in found:
                break
            found = found[key]
        else:
            return found
    raise AssertionError(path)


def list_leaves(values: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(values, dict) or not values:
        return [above]
    return [leaf for key, inner in values.items() for leaf in list_leaves(inner, (*above, key))]


@given(files=FILES)
def test_of_several_values_the_last_counts(files, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("files")
    for number, values in enumerate(files[:-1]):
        (folder / f"{number}.yaml").write_text(yaml.safe_dump(values))
    names = [f"{number}.yaml" for number in range(len(files) - 1)]
    (folder / "job.yaml").write_text(yaml.safe_dump({"include": names, **files[-1]}))
    joined = read_config(folder / "job.yaml")
    assert joined.keys() == set().union(*files)
    for leaf in list_leaves(joined) if joined else ():
        assert find_last(files, leaf) == find_last([joined], leaf)


class NumberPart(Config):
    share: float = 0.5


class NumberJob(Config):
    count: int = 1
    weight: float = 1.0
    large: int = Field(default=1, le=10**13)
    name: str = ""
    place: Path = Path()
    sizes: tuple[int, ...] = ()
    more: Mapping[str, Any] = {}
    seed: Seed = 0
    inner: NumberPart = NumberPart()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("weight=1e400", "weight: a number must be finite; got inf"),
        ("weight='1e400'", "weight: a number must be finite; got '1e400'"),
        ("weight=.nan", "weight: a number must be finite"),
        ("inner.share=-.inf", "inner.share: a number must be finite"),
        ("weight=1e13", "weight: a number must not be beyond 1,000,000,000,000"),
        ("count=1000000001", "count: a number must not be beyond 1,000,000,000"),
        ("count='99999999999999999999'", "count: a number must not be beyond"),
        ("count=-9999999999", "count: a number must not be beyond"),
        ("sizes=[1, 9999999999]", "sizes: a number must not be beyond"),
        ("more={a: [{b: .nan}]}", "more: a number must be finite"),
        ("more={a: 9999999999}", "more: a number must not be beyond"),
        ("large=99999999999999", "large: Input should be less than or equal to"),
        ('name="a\\0b"', "name: a text must not hold a NUL"),
        ('place="a\\0b"', "place: a text must not hold a NUL"),
        ('more={"a\\0b": 1}', "more: a text must not hold a NUL"),
        ('name="\\ud800"', "name: a text must not hold half of a surrogate pair"),
        ("seed=-1", "seed: Input should be greater than or equal to 0"),
        ("seed=4294967296", "seed: Input should be less than 4294967296"),
    ],
)
def test_they_are_refused_by_key(value: str, problem: str):
    with pytest.raises(ConfigError) as caught:
        load_config(NumberJob, {}, overrides=[value])
    assert f"\n  config: {problem}" in str(caught.value)


def test_what_a_run_can_use_is_taken():
    values = {
        "count": -(10**9),
        "weight": 1e12,
        "large": 10**13,
        "name": "\N{PILE OF POO}\t",
        "more": {"a": [None, True, 1e-300]},
        "seed": 2**32 - 1,
    }
    assert load_config(NumberJob, values).model_dump(exclude_unset=True) == values


@pytest.mark.parametrize("text", ["x" * 5 * 2**20, "/dev/zero"])
def test_a_file_is_read_up_to_a_size(tmp_path: Path, text: str):
    path = Path(text) if text.startswith("/") else tmp_path / "large.yaml"
    if text.startswith("x"):
        path.write_text(text)
    with pytest.raises(ConfigError, match="is no configuration; expected at most 4 MiB"):
        load_config(NumberJob, path)


def test_what_is_told_of_very_much_is_short():
    many = {f"key{number}": "y" * 1000 for number in range(1000)}
    for values in (many, {"count": "z" * 10**5}):
        with pytest.raises(ConfigError) as caught:
            load_config(NumberJob, values)
        assert len(str(caught.value)) < 20_000
    with pytest.raises(ConfigError) as caught:
        load_config(NumberJob, {}, overrides=["more=" + "[" * 3000])
    assert len(str(caught.value)) < 1000


def test_a_key_of_an_override_is_nested_no_deeper_than_yaml():
    with pytest.raises(ConfigError, match=r"expected key\.path=value"):
        load_config(NumberJob, {}, overrides=[".".join(["more"] * 5000) + "=1"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("? [1, 2]\n: 3", "a key is a list or a section"),
        ("? {a: b}\n: 3", "a key is a list or a section"),
        ("n: " + "9" * 5000, "out of range"),
        ("[" * 5000 + "]" * 5000, "more than 64 levels"),
        ("{a: " * 3000, "more than 64 levels"),
        ("- " * 5000, "more than 64 levels"),
        ("\n".join(" " * level + "a:" for level in range(1000)), "more than 64 levels"),
        ("&a {b: *a}", "no whole 'a' above"),
        ("a: &a {<<: *a}", "no whole 'a' above"),
        ("a: &a [1]\n" + "".join(f"a{n}: &a [*a]\n" for n in range(70)), "more than 64 levels"),
        ("a: 1\n---\nb: 1", "more than one document"),
        ("<<: 1", "what is merged is no section"),
        *((f"{tag} a", "has no tags") for tag in ("!!int", "!!map", "!!str", "!", "!x", "!!set")),
        ('"\\UFFFFFFFF"', "out of range"),
        ('"\\U00110000"', "out of range"),
        ("%YAML 1." + "9" * 5000 + "\n---\na", "out of range"),
    ],
)
def test_what_no_config_has_is_a_yaml_error(text: str, problem: str):
    with pytest.raises(yaml.YAMLError, match=problem):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["2020-13-45", "2020-01-01", "2020-01-01T25:99:99", "=", "0x10"])
def test_dates_and_the_like_are_texts(text: str):
    """As in YAML 1.2: an impossible date is a text like any other."""
    assert parse_yaml(text) == text


def test_merges_without_end_are_refused_before_they_are_written_out():
    keys = ", ".join(f"k{number}: 1" for number in range(1000))
    text = f"a: &a {{{keys}}}\nb: {{<<: [{', '.join(['*a'] * 300)}]}}"
    with pytest.raises(yaml.YAMLError, match="more than 200000 values, aliases written out"):
        parse_yaml(text)


def test_aliases_and_merges_are_written_out():
    text = "base: &base {a: 1, b: 2}\nown: {<<: *base, b: 3}\nsame: {<<: {a: 1}, a: 2}"
    found = parse_yaml(text + "\nlist: [*base, *base]")
    assert found["own"] == {"a": 1, "b": 3}
    assert found["same"] == {"a": 2}
    assert found["list"] == [{"a": 1, "b": 2}] * 2
