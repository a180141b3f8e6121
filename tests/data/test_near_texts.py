"""Near texts: everything that is near is found, whatever runs find the candidates."""

from hypothesis import given
from hypothesis import strategies as st

from groupwise.data import find_near_texts

words = st.lists(st.sampled_from(["a", "b", "c", "三", "四", "1"]), min_size=1, max_size=12).map(
    " ".join
)
texts = st.lists(words, min_size=1, max_size=6)


def cut(text: str) -> set[tuple[str, ...]]:
    parts = text.split()
    return {tuple(parts[n : n + 3]) for n in range(max(1, len(parts) - 2))}


def share(one: str, other: str) -> float:
    return len(cut(one) & cut(other)) / len(cut(one) | cut(other))


@given(texts, texts, st.sampled_from([0.5, 0.8, 1.0]))
def test_the_index_finds_what_comparing_all_with_all_finds(
    asked: list[str], others: list[str], least: float
):
    wanted = [
        (index, next(n for n, other in enumerate(others) if share(text, other) >= least))
        for index, text in enumerate(asked)
        if any(share(text, other) >= least for other in others)
    ]
    assert [(i, j) for i, j, _ in find_near_texts(asked, others, least=least)] == wanted


def test_case_width_and_white_space_do_not_count():
    assert find_near_texts(["Ｗhat  IS it?\n"], ["what is it?"]) == [(0, 0, 1.0)]


def test_one_other_number_in_a_long_text_is_near_and_another_text_is_not():
    text = "A man has 12 apples and gives half of them to his two sisters, who share them."
    story = f"{text} Then he buys a bag with as many apples as he had in the morning before."
    others = [story.replace("12", "16"), "小明有三个苹果，又买了四个，一共有几个？"]
    assert [(i, j) for i, j, _ in find_near_texts([story], others)] == [(0, 0)]
    assert find_near_texts([story], others[1:]) == []
