"""A real Ray cluster on this machine with two workers, each with a policy of its own."""

import importlib.util
import os

import pytest
from streams import ask, draw

from groupwise.core import ConfigError, ModelError
from groupwise.inference import many_machines
from groupwise.inference.local import LocalModel
from groupwise.inference.local_stream import LocalStream
from groupwise.inference.many_machines import RayStream
from groupwise.inference.settings import RaySettings, Sampling, StreamSettings
from groupwise.inference.stream import Failure, generate_groups

GREEDY = Sampling(max_new_tokens=6)
SETTINGS = StreamSettings(batch_size=4)
HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'groupwise[ray]'"),
]


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def run(backend, groups):
    return list(generate_groups(backend, groups, sampling=GREEDY, settings=SETTINGS))


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_one_sentence_says_what_to_install():
    with pytest.raises(ConfigError, match=r"pip install 'groupwise\[ray\]'"):
        RayStream(RaySettings(), "anything")


class TestCluster:
    pytestmark = needs_ray

    def test_two_workers_give_what_this_process_gives(
        self, cluster, taught_folder, vision, photo_groups, picture_examples, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(taught_folder.parent)
        torn = draw(tmp_path / "torn.png", (60, 60))
        torn.write_bytes(torn.read_bytes()[:60])
        large = "large", [picture_examples[n % 8] for n in range(60)]
        broken = "broken", [ask("a", torn)]
        groups = [*photo_groups, broken, large]
        expected = run(LocalStream(LocalModel(vision)), groups)
        # A slice ends in the middle of the large group.
        monkeypatch.setattr(many_machines, "_SLICE", 40)
        backend = RayStream(RaySettings(), taught_folder.name, dtype="float32")
        found = run(backend, groups)
        assert found == expected
        [failure] = found[-2][1]
        assert isinstance(failure, Failure)
        assert failure.cause == "picture"

    def test_a_policy_that_is_not_there_is_one_sentence(self, cluster, tmp_path, photo_groups):
        backend = RayStream(RaySettings(), tmp_path / "none")
        with pytest.raises(ModelError, match=r"cannot load the model .*none"):
            run(backend, photo_groups)

    def test_a_policy_without_eyes_is_one_sentence(self, cluster, taught_text_folder, photo_groups):
        backend = RayStream(RaySettings(), taught_text_folder)
        with pytest.raises(ModelError, match="takes no pictures"):
            run(backend, photo_groups)
