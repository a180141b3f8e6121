"""Served answers are the offline ones."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from small_task import SmallConfig, SmallTask

from groupwise.models.tiny import write_tiny_policy
from groupwise.run.predict import PolicyPredictor, answer_requests
from groupwise.serving import Request

ROW = '{"task": "doors"}'


@pytest.fixture(params=[pytest.param("tiny-qwen2", marks=pytest.mark.slow), "tiny-qwen2.5-vl"])
def predictor(request: pytest.FixtureRequest, tmp_path: Path) -> PolicyPredictor:
    """An untrained policy: what it says is of no use, and differs with what is asked."""
    model = {"base": request.param, "max_pixels": 4096}
    config = SmallConfig(
        **{
            "model": model,
            "data": {"budget": {"max_prompt_tokens": 128}},
            "grpo": {"epochs": 1, "prompts_per_step": 2, "group_size": 2, "max_new_tokens": 6},
        }
    )
    texts = [f"第{number}个螺栓的力矩是多少，合格还是不合格？" for number in range(9)]
    folder = tmp_path / "policy"
    write_tiny_policy(request.param, folder, seed=1, texts=texts, max_pixels=4096)
    return PolicyPredictor(SmallTask(), config, folder)


@pytest.mark.parametrize("num_requests", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_served_answers_are_the_offline_ones(
    num_requests: int,
    start: Callable[..., Any],
    predictor: Any,
    draw: Callable[..., bytes],
    tmp_path: Path,
) -> None:
    has_pictures = predictor.describe()["base"] != "tiny-qwen2"
    requests: list[Request] = []
    for number in range(num_requests):
        picture = tmp_path / f"{number}.png"
        picture.write_bytes(
            draw(f"hsl({number * 6}, 90%, 50%)", "PNG", size=(20 + number % 60, 24))
        )
        row = {"question": f"第{number}个螺栓" + "的力矩" * (number % 5)}
        requests.append(Request(str(number), row, (picture,) * (has_pictures and 1 + number % 2)))
    offline = [answer_requests(predictor, [request])[0] for request in requests]
    client = start(max_batch=8, batch_wait_ms=50)

    def ask(request: Request) -> Any:
        files = [("pictures", (path.name, path.read_bytes())) for path in request.pictures]
        form = {"row": json.dumps(dict(request.row)), "id": request.id}
        parts = [(name, (None, value)) for name, value in form.items()]
        return client.post("/v1/predict", files=[*parts, *files]).json()

    with ThreadPoolExecutor(32) as pool:
        served = list(pool.map(ask, requests))
    assert [one["id"] for one in served] == [request.id for request in requests]
    keys = ("text", "answer", "reason", "needs_person")
    assert [[one[key] for key in keys] for one in served] == [
        [getattr(one, key) for key in keys] for one in offline
    ]
    assert len({one.text for one in offline}) > 15


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_answer_depends_on_what_loading_another_policy_changes_for_a_moment(
    predictor: PolicyPredictor, dtype: str, draw: Callable[..., bytes], tmp_path: Path
) -> None:
    predictor._policy.model.to(getattr(torch, dtype))
    picture = tmp_path / "1.png"
    picture.write_bytes(draw("red", "PNG"))
    has_pictures = predictor.describe()["base"] != "tiny-qwen2"
    rows = [{"question": "合格" * number} for number in range(1, 4)]
    asked = [Request(str(row), row, (picture,) * has_pictures) for row in rows]
    before = answer_requests(predictor, asked)
    other = torch.float32 if dtype == "bfloat16" else torch.bfloat16
    usual = torch.get_default_dtype()
    for default in (other, getattr(torch, dtype)):
        torch.set_default_dtype(default)
        try:
            assert answer_requests(predictor, asked) == before
        finally:
            torch.set_default_dtype(usual)
