"""Features of published models compete with words within the joint baseline."""

import numpy as np

from groupwise.core import Example, Message
from groupwise.evaluation import predict_joint, rank_joint_candidates

LABELS = ("no", "yes")


def make_examples(num: int, *, start: int = 0) -> list[Example]:
    """Items whose words say nothing of the label."""
    rng = np.random.default_rng(start)
    return [
        Example(
            id=str(number),
            prompt=(Message("user", " ".join(rng.choice(list("abcdefgh"), 6))),),
            label=LABELS[number % 2],
            cluster=str(number // 2),
            fields={},
        )
        for number in range(start, start + num)
    ]


def embed(examples: list[Example]) -> dict[str, np.ndarray]:
    """Features of which some tell the label, and some tell whose cluster an item is of."""
    rng = np.random.default_rng(len(examples))
    noise = rng.normal(size=(len(examples), 20)).astype(np.float32)
    telling = noise.copy()
    telling[:, 0] += [4.0 * (example.label == "yes") for example in examples]
    return {"noise": noise, "telling": telling}


def test_the_features_that_tell_most_win_and_are_recorded() -> None:
    train, test = make_examples(60), make_examples(40, start=60)
    recorded = []
    found = predict_joint(train, test, split="test", seed=0, embed=embed, record=recorded.extend)
    assert recorded[0].name == "telling"
    assert {"words", "noise"} <= {one.name for one in recorded}
    assert np.mean([one.predicted == one.label for one in found]) > 0.9
    assert next(one for one in recorded if one.name == "noise").accuracy < 0.75


def test_without_features_nothing_else_is_a_candidate() -> None:
    train = make_examples(40)
    names = {one.name for one in rank_joint_candidates(train, seed=0)}
    assert names == {"words", "words in their order"}
    more = {one.name for one in rank_joint_candidates(train, seed=0, embed=embed)}
    assert more == names | {"noise", "telling"}


def test_of_one_cluster_words_are_taken_and_nothing_is_recorded() -> None:
    train = [
        Example(one.id, one.prompt, one.label, "same", one.fields) for one in make_examples(20)
    ]
    recorded = []
    predict_joint(train, train[:3], split="test", seed=0, embed=embed, record=recorded.extend)
    assert recorded == []


def test_features_are_judged_out_of_cluster() -> None:
    """Two items of a cluster have the same features and label: only divided folds see through."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 40)
    examples = [
        Example(
            f"{cluster}-{number}",
            (Message("user", f"{cluster} {number}"),),
            LABELS[labels[cluster]],
            str(cluster),
            {},
        )
        for cluster in range(40)
        for number in range(2)
    ]
    own = rng.normal(size=(40, 60)).astype(np.float32)

    def embed_clusters(rows: list[Example]) -> dict[str, np.ndarray]:
        return {"cluster": np.stack([own[int(one.cluster)] for one in rows])}

    [rated] = [
        one
        for one in rank_joint_candidates(examples, seed=0, embed=embed_clusters)
        if one.name == "cluster"
    ]
    assert rated.accuracy < 0.75
