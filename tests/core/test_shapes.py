"""Values of files that are not what they should be."""

import pytest
from pydantic import TypeAdapter

from groupwise.core import DataError, EvaluationError, parse_value

SHAPE = TypeAdapter(dict[str, list[int]])


def test_a_value_of_another_shape_is_refused_with_the_first_fault_and_its_place() -> None:
    assert parse_value({"a": ["1"]}, SHAPE, "unused") == {"a": [1]}
    with pytest.raises(DataError, match=r"^x\.json is odd; got a\.1: Input should be a valid int"):
        parse_value({"a": [1, None, None]}, SHAPE, "x.json is odd")
    with pytest.raises(EvaluationError, match="write it again"):
        parse_value([], SHAPE, "x.json is odd", error=EvaluationError, fix="write it again")
