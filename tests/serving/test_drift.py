"""The server tells when the pictures that it is asked about are others than those of training."""

import base64
import math

import numpy as np
import pytest
from PIL import Image

from groupwise.evaluation import ALARM_LEVEL, DriftReference
from groupwise.serving.bench import Screens
from groupwise.serving.drift import DriftWatch
from groupwise.serving.meters import Meters


@pytest.fixture
def reference():
    rng = np.random.default_rng(0)
    return DriftReference(np.zeros((1, 32 * 24 * 3)), rng.uniform(0, 0.2, 50))


def read(meters, name):
    return meters.registry.get_sample_value(f"groupwise_picture_drift_{name}")


def test_nothing_is_known_before_a_window_is_full(reference):
    meters = Meters()
    watch = DriftWatch(reference, 10, meters)
    for number in range(9):
        watch.add(0.9, f"s{number}")
    assert all(math.isnan(read(meters, name)) for name in ("gap", "p_value", "alarm"))
    watch.add(0.9, "")
    assert (read(meters, "gap"), read(meters, "alarm")) == (1.0, 1.0)
    assert read(meters, "p_value") <= ALARM_LEVEL
    for number in range(10):
        watch.add(0.02 * number, "")
    assert read(meters, "alarm") == 0.0


def test_a_session_counts_once_in_a_window(reference):
    meters = Meters()
    watch = DriftWatch(reference, 3, meters)
    for _ in range(50):
        watch.add(0.9, "one")
    assert math.isnan(read(meters, "alarm"))
    for number in range(2):
        watch.add(0.9, f"s{number}")
    assert not math.isnan(read(meters, "alarm"))


def test_served_pictures_are_watched_as_they_are_stored(start, tmp_path, draw, reference):
    Image.new("RGB", (32, 24), "white").save(tmp_path / "white.png")
    assert reference.measure(tmp_path / "white.png") == 1.0
    client = start(behind=Screens(reference=reference), drift_window=8)
    held = base64.b64encode(draw("white", "PNG")).decode()
    for number in range(8):
        body = {"picture": held, "task": "doors", "session": f"s{number}"}
        assert client.post("/v1/screens", json=body).status_code == 200
    metrics = client.get("/metrics").text
    assert "groupwise_picture_drift_gap 1.0" in metrics
    assert "groupwise_picture_drift_alarm 1.0" in metrics
