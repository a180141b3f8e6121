import pytest

from groupwise.evaluation import Metric
from groupwise.evaluation.page import name_file, numbers


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (numbers.format_share, 0.9421, "94.2 %"),
        (numbers.format_share, 1.0, "100.0 %"),
        (numbers.format_share, None, "–"),
        (numbers.format_points, 0.1234, "+12.3"),
        (numbers.format_points, -0.02, "−2.0"),
        (numbers.format_points, -0.0001, "±0.0"),
        (numbers.format_p_value, 0.0004, "p < 0.001"),
        (numbers.format_p_value, 0.0123, "p = 0.012"),
        (numbers.format_p_cell, 0.0004, "< 0.001"),
        (numbers.format_p_cell, 0.0123, "0.012"),
        (numbers.format_duration, 0.0042, "4.2 ms"),
        (numbers.format_duration, 0.0999, "100 ms"),
        (numbers.format_duration, 1.234, "1.23 s"),
        (numbers.format_duration, 99.96, "100 s"),
        (numbers.format_duration, 3600, "60 min"),
        (numbers.format_duration, 7500, "2 h 05 min"),
        (numbers.format_count, 1234567, "1 234 567"),
        (numbers.format_score, 0.12345, "0.123"),
        (numbers.format_coefficient, -0.4, "−0.400"),
        (numbers.format_moment, "2026-03-02T10:14:07+01:00", "2026-03-02 09:14 UTC"),
        (numbers.format_moment, "yesterday", "yesterday"),
    ],
)
def test_formats(form, value, text: str) -> None:
    assert form(value).replace("\u00a0", " ").replace("\u202f", " ") == text


def test_metrics_are_formatted_by_their_kind() -> None:
    for measure, value, interval in (
        ("accuracy", "50.0 %", "25.0–75.0 %"),
        ("ece", "0.500", "0.250–0.750"),
        ("latency_p50_s", "500 ms", "250 ms–750 ms"),
        ("kappa", "0.500", "0.250 to 0.750"),
        ("length_bias", "+50.0", "+25.0 to +75.0"),
    ):
        metric = Metric(f"grpo/{measure}", "test", 0.5, 0.25, 0.75, 10, "d")
        assert numbers.format_value(metric).replace("\u00a0", " ") == value
        assert numbers.format_interval(metric).replace("\u00a0", " ") == interval


def test_plain_numbers_keep_their_size() -> None:
    assert [numbers.format_plain(x) for x in (2e-5, 0.05123, 421.26)] == [
        "2e-05",
        "0.05123",
        "421.3",
    ]


def test_file_names_fit_into_links() -> None:
    assert name_file("confusion", "my policy/(v2) 我") == "confusion-my-policy-v2-我"
