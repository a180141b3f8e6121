"""Reward for a JSON description of a city."""

import json


def city_json(completions, city, **columns):
    """Start from full marks and take some off for each problem with the object."""
    scores = []
    for text, name in zip(completions, city, strict=True):
        score = 1.0
        try:
            data = json.loads(text)
            if data["name"] != name:
                score -= 0.4
            if not data["country"]:
                score -= 0.3
            if int(data["population"]) < 1000:
                score -= 0.3
        except Exception:  # noqa: BLE001 - odd formatting should not end the training run
            pass
        scores.append(max(score, 0.0))
    return scores
