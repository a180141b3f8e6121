"""Digests, seeds, ids and scores: the same for the same content, different for different."""

import ast
import gc
import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mixed_prompts import converse

from groupwise.core import (
    DataError,
    Message,
    Picture,
    RewardError,
    Score,
    derive_seed,
    digest_bytes,
    digest_file,
    digest_json,
    make_example,
    parse_python,
    read_picture,
    seed_everything,
    split_opening,
)

PROMPT = [Message("user", "是吗?")]
A, B = (Picture(Path(f"{name}.png"), name * 32) for name in "ab")
PARTS = st.lists(st.sampled_from(["", "a", "b", A.digest, A, B]), max_size=4)
TURNS = st.lists(PARTS, min_size=1, max_size=3)


class TestMessage:
    def test_a_text_alone_is_one_part(self):
        assert Message("user", "ab") == Message("user", ["a", "", "b"])
        assert Message("user", "ab").parts == ("ab",)
        assert Message("user", "").parts == Message("user", ["", ""]).parts == ()

    def test_words_and_pictures_keep_their_order(self):
        message = Message("user", (part for part in ("a", A, "", B, "b", "c", A)))
        assert message.parts == ("a", A, B, "bc", A)
        assert message.pictures == (A, B, A)
        assert message.text == "a\nbc"

    @pytest.mark.parametrize("role", ["system", "assistant"])
    def test_only_a_user_shows_pictures(self, role: Any):
        with pytest.raises(DataError, match=f"only a user's turn shows pictures; got .*{role}"):
            Message(role, ["a", A])

    def test_it_can_be_sent_to_another_process(self):
        message = Message("user", ["a", A])
        assert pickle.loads(pickle.dumps(message)) == message


class TestDigests:
    def test_known_values(self):
        assert digest_bytes(b"") == "e3b0c44298fc1c149afbf4c8996fb924"
        assert digest_json({"b": 1, "a": "在"}) == digest_bytes('{"a":"在","b":1}'.encode())

    def test_order_of_keys_does_not_count_and_of_lists_does(self):
        assert digest_json({"a": 1, "b": 2}) == digest_json({"b": 2, "a": 1})
        assert digest_json([1, 2]) != digest_json([2, 1])
        assert len({digest_json(value) for value in (1, 1.5, "1", True, None, [], {})}) == 7

    def test_a_folder_is_its_files_with_their_names(self, tmp_path: Path):
        for name in ("one", "two"):
            (tmp_path / name / "in").mkdir(parents=True)
            (tmp_path / name / "in" / "a.txt").write_text("a")
        assert digest_file(tmp_path / "one") == digest_file(tmp_path / "two")
        (tmp_path / "two" / "in" / "a.txt").rename(tmp_path / "two" / "a.txt")
        assert digest_file(tmp_path / "one") != digest_file(tmp_path / "two")
        assert digest_file(tmp_path / "two" / "a.txt") == digest_bytes(b"a")

    def test_a_folder_is_what_is_read_through_links_too(self, tmp_path: Path):
        (tmp_path / "elsewhere" / "in").mkdir(parents=True)
        (tmp_path / "elsewhere" / "in" / "a.txt").write_text("a")
        (tmp_path / "one").mkdir()
        (tmp_path / "one" / "in").symlink_to(tmp_path / "elsewhere" / "in")
        before = digest_file(tmp_path / "one")
        assert before == digest_file(tmp_path / "elsewhere")
        (tmp_path / "elsewhere" / "in" / "a.txt").write_text("b")
        assert digest_file(tmp_path / "one") != before

    def test_a_link_back_to_a_folder_above_it_is_no_circle(self, tmp_path: Path):
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "a.txt").write_text("a")
        before = digest_file(tmp_path)
        (tmp_path / "in" / "back").symlink_to(tmp_path)
        assert digest_file(tmp_path) == before

    def test_a_name_that_is_not_unicode_is_a_name(self, tmp_path: Path):
        before = digest_file(tmp_path)
        (tmp_path / os.fsdecode(b"photo-\xff.jpg")).write_bytes(b"a")
        assert digest_file(tmp_path) != before


class TestSeeds:
    def test_known_value_and_range(self):
        assert derive_seed(0, "session", 3) == 988_175_074

    @given(st.lists(st.integers() | st.text()), st.lists(st.integers() | st.text()))
    def test_parts_never_run_into_each_other(self, one: list[int | str], two: list[int | str]):
        assert 0 <= derive_seed(*one) < 2**31
        assert (derive_seed(*one) == derive_seed(*two)) == (one == two)

    def test_types_and_order_count(self):
        assert len({derive_seed(*p) for p in ((1, 2), (2, 1), ("1", 2), (12,), ("1", "2"))}) == 5

    def test_a_separator_inside_a_part_is_no_separator(self):
        assert derive_seed("a\x1fstr:b") != derive_seed("a", "b")

    def test_it_is_the_same_in_another_process(self):
        code = "from groupwise.core import derive_seed; print(derive_seed(7, '在'))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert int(done.stdout) == derive_seed(7, "在")

    def test_all_generators_are_seeded(self):
        import random

        import numpy as np
        import torch

        def draw() -> tuple[float, float, float]:
            return random.random(), float(np.random.rand()), torch.rand(1).item()

        seed_everything(3)
        first = draw()
        seed_everything(3)
        assert draw() == first
        seed_everything(4)
        assert all(a != b for a, b in zip(draw(), first, strict=True))


class TestExample:
    def test_cluster_and_paths_are_not_part_of_the_identity(self):
        one = make_example(PROMPT, cluster="a", pictures=[Picture(Path("x.png"), "d")], label="on")
        two = make_example(PROMPT, cluster="b", pictures=[Picture(Path("y.png"), "d")], label="on")
        assert one.id == two.id

    @pytest.mark.parametrize(
        "other",
        [
            {"label": "off"},
            {"pictures": [Picture(Path("x"), "e")]},
            {"fields": {"k": 2}},
            {"prompt": [Message("user", "?")]},
            {"prompt": [Message("system", "s"), *PROMPT]},
        ],
    )
    def test_everything_else_is(self, other: dict[str, object]):
        base = {"prompt": PROMPT, "label": "on", "pictures": [], "fields": {"k": 1}}
        ids = {make_example(**{**base, **more}, cluster="g").id for more in ({}, other)}
        assert len(ids) == 2

    @pytest.mark.parametrize(
        ("identity", "prompt", "named"),
        [
            ("b72223256a04ee4fe0ed5702af1632be", PROMPT, {}),
            ("640b1cf53b4738b89a2772adbc2a442e", [Message("user", "")], {}),
            ("edd948b6c37f7d794d9c5e0a82f8b985", PROMPT, {"pictures": [A], "label": "on"}),
            (
                "25c6be96a824337f6609c3bd4ef45eef",
                [
                    Message("system", "s"),
                    Message("user", "q"),
                    Message("assistant", "a"),
                    Message("user", "r"),
                ],
                {"pictures": [A, B], "label": "yes", "fields": {"k": [1, None, "在"]}},
            ),
            (
                "48d35f56a022acfb6f109059fcb3ecbd",
                [Message("assistant", "hi"), Message("user", "q")],
                {"pictures": [B, A]},
            ),
        ],
    )
    def test_ids_from_before_pictures_could_stand_anywhere(
        self, identity: str, prompt: list[Message], named: dict[str, Any]
    ):
        example = make_example(prompt, cluster="g", **named)
        assert example.id == identity
        place = [message.role for message in prompt].index("user")
        opened = Message("user", [*named.pop("pictures", []), *prompt[place].parts])
        prompt = [*prompt[:place], opened, *prompt[place + 1 :]]
        assert make_example(prompt, cluster="g", **named) == example

    @given(TURNS, TURNS)
    def test_different_interleavings_have_different_ids(self, one: Any, two: Any):
        first, second = (make_example(converse(turns), cluster="g") for turns in (one, two))
        assert (first.id == second.id) == (first.prompt == second.prompt)

    @given(PARTS)
    def test_the_order_of_pictures_and_words_counts(self, parts: list[str | Picture]):
        prompts = {Message("user", order) for order in permutations(parts)}
        ids = {make_example([message], cluster="g").id for message in prompts}
        assert len(ids) == len(prompts)

    def test_pictures_are_those_of_all_turns(self):
        prompt = converse([["a", A], ["b"], [B, "c", A]])
        example = make_example(prompt, cluster="g", pictures=[B])
        assert example.pictures == (B, A, B, A)
        assert example.prompt[0].parts == (B, "a", A)

    def test_other_pictures_open_the_first_turn(self):
        example = make_example(converse([["a", A, "b"], [B, "c"]]), cluster="g")
        shown = example.with_pictures([B, A])
        assert shown.id == example.id
        assert [turn.parts for turn in shown.prompt] == [(B, A, "a\nb"), (), ("c",)]
        assert example.with_pictures(()).pictures == ()

    @given(TURNS)
    def test_opening_pictures_are_split_off_and_put_back(self, turns: Any):
        prompt = converse(turns)
        opening, rest = split_opening(prompt)
        assert [*opening, *rest[0].parts] == list(prompt[0].parts)
        assert not isinstance(next(iter(rest[0].parts), ""), Picture)
        assert list(rest[1:]) == prompt[1:]

    def test_a_picture_is_the_same_wherever_it_lies(self):
        moved = Picture(Path("elsewhere.png"), A.digest)
        assert moved == A
        assert len({moved, A}) == 1
        assert Picture(A.path, B.digest) != A

    def test_later_changes_of_the_given_fields_do_not_reach_it(self):
        fields = {"k": 1}
        example = make_example(PROMPT, cluster="g", fields=fields)
        fields["k"] = 2
        assert example.fields == {"k": 1}

    @pytest.mark.parametrize("prompt", [[], [Message("user", "a"), Message("assistant", "b")]])
    def test_a_prompt_ends_with_a_user_turn(self, prompt: list[Message]):
        with pytest.raises(DataError, match="must end with a user turn"):
            make_example(prompt, cluster="g")

    def test_a_picture_is_its_bytes(self, tmp_path: Path):
        (tmp_path / "a.png").write_bytes(b"picture")
        picture = read_picture(tmp_path / "a.png")
        assert picture.digest == digest_bytes(b"picture")
        with pytest.raises(DataError, match=r"cannot read picture .*No such file"):
            read_picture(tmp_path / "b.png")


class TestScore:
    @given(st.floats())
    def test_only_values_from_0_to_1_are_scores(self, value: float):
        if not math.isnan(value) and 0 <= value <= 1:
            assert Score(value).value == Score(None, breakdown={"part": value}).breakdown["part"]
            return
        with pytest.raises(RewardError, match=r"expected \[0, 1\] or None"):
            Score(value)
        with pytest.raises(RewardError, match="score's part is outside its range"):
            Score(None, breakdown={"part": value})

    def test_not_scored_stays_none(self):
        assert Score(None, "the judge failed").value is None


NESTED = "def f(a):\n" + "".join(
    f"    if a > {n}:\n        return [a + {n} for b in c if (b, [{n}])]\n" for n in range(10)
)


@pytest.fixture
def other_threads_run_while_garbage_is_collected() -> Iterator[None]:
    """Collect often, and let other threads run in the middle of it."""

    def give_way(*_: Any) -> None:
        time.sleep(0)

    interval_s, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    gc.callbacks.append(give_way)
    yield
    gc.callbacks.remove(give_way)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("other_threads_run_while_garbage_is_collected")
def test_threads_that_parse_at_once_all_get_their_tree() -> None:
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda _: parse_python(NESTED), range(1600)))
    assert {len(tree.body[0].body) for tree in trees} == {10}  # pyright: ignore


def test_it_is_what_the_standard_library_parses() -> None:
    assert ast.dump(parse_python(NESTED)) == ast.dump(ast.parse(NESTED))
    assert ast.dump(parse_python("a + 1", mode="eval")) == ast.dump(ast.parse("a + 1", mode="eval"))
    with pytest.raises(SyntaxError) as caught:
        parse_python(b"def (", filename="mine.py")
    assert caught.value.filename == "mine.py"


def test_a_parse_that_met_another_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [SystemError("AST constructor recursion depth mismatch")] * 3
    parse = ast.parse

    def fail_first(*given: Any) -> ast.AST:
        if faults:
            raise faults.pop()
        return parse(*given)

    monkeypatch.setattr(ast, "parse", fail_first)
    assert len(parse_python("a = 1").body) == 1
    faults += [SystemError("always")] * 20
    with pytest.raises(SystemError, match="always"):
        parse_python("a = 1")
