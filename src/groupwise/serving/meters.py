"""What the server counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_GROUPS = (1, 2, 4, 8, 16, 32)


class Meters:
    """Counters of one server; each server has its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "groupwise_requests_total", "Answers by status.", ["status"], registry=self.registry
        )
        self.seconds = Histogram(
            "groupwise_request_seconds",
            "From the first byte of a group to its answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.verdicts = Counter(
            "groupwise_verdicts_total",
            "Groups by task and verdict; 'none' where there is none.",
            ["task", "verdict"],
            registry=self.registry,
        )
        self.for_people = Counter(
            "groupwise_groups_for_people_total",
            "Groups marked for a person.",
            ["task"],
            registry=self.registry,
        )
        self.batch_groups = Histogram(
            "groupwise_batch_groups", "Groups in a batch.", buckets=_GROUPS, registry=self.registry
        )
        self.waiting = Gauge(
            "groupwise_groups_waiting", "Groups taken and not answered.", registry=self.registry
        )
        self.errors = Counter(
            "groupwise_predictor_errors_total",
            "Groups that the predictor broke on.",
            registry=self.registry,
        )

    def render(self) -> bytes:
        """Return the page that Prometheus reads."""
        return generate_latest(self.registry)
