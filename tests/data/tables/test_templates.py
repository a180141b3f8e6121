import pytest

from groupwise.data.tables.templates import FillError, check_template, fill_template, list_columns


def test_columns_of_any_name_fill_a_template():
    values = {"问题": "好吗？", "the answer": 3, "list": ["a", "b"]}
    text = '{{ 问题 }} {{ row["the answer"] }} {{ list[1] }} {{ _file }}'
    assert fill_template(text, values, file="评论") == "好吗？ 3 b 评论"


@pytest.mark.parametrize("missing", [None, "", "  "])
def test_a_missing_value_is_never_shown_as_nothing_or_none(missing: str | None):
    values = {"question": "why?", "hint": missing}
    with pytest.raises(FillError, match="missing"):
        fill_template("{{ question }} {{ hint }}", values, file="")
    assert (
        fill_template("{{ question }}{% if hint %} {{ hint }}{% endif %}", values, file="")
        == "why?"
    )
    assert fill_template("{{ question }} {{ hint or 'none' }}", values, file="") == "why? none"


@pytest.mark.parametrize(
    "text",
    [
        "{{ other }}",
        '{{ row["other"] }}',
        "{{ a.b }}",
        "{{ a | int(default=none) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ a + 1 }}",
        "{{ 'AB'[9] }}",
    ],
)
def test_what_cannot_be_filled_says_so(text: str):
    with pytest.raises(FillError):
        fill_template(text, {"a": "x"}, file="")


def test_the_columns_that_a_template_needs_are_known_before_it_is_filled():
    text = "{% for x in 选项 %}{{ loop.index }}{{ x }}{% endfor %}{{ range(a)|list }}{{ _file }}"
    assert list_columns(text) == {"选项", "a"}
    assert list_columns("问题") == {"问题"}


def test_a_broken_template_is_described():
    assert (
        check_template("{{ a")
        == "line 1: unexpected end of template, expected 'end of print statement'."
    )
    assert check_template("{{ a }}") == ""


NESTED = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def test_loops_of_a_row_are_bounded_together():
    with pytest.raises(FillError, match="more than 10,000 turns; write what it repeats"):
        fill_template(NESTED, {}, file="")
    line = "{% for x in xs %}{{ loop.index }}/{{ loop.length }}{{ x }} {% else %}none{% endfor %}"
    for _ in range(3):  # each row has all turns
        assert len(fill_template(line, {"xs": range(9_000)}, file="").split()) == 9_000
    assert fill_template(line, {"xs": []}, file="") == "none"
    with pytest.raises(FillError, match="undefined"):
        fill_template(line, {}, file="")
