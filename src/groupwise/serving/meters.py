"""What the server counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_SIZES = (1, 2, 4, 8, 16, 32)


class Meters:
    """Counters of one server; each server has its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "groupwise_requests_total", "Answers by status.", ["status"], registry=self.registry
        )
        self.seconds = Histogram(
            "groupwise_request_seconds",
            "From a whole request to its answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.answers = Counter(
            "groupwise_answers_total",
            "Questions by label; 'open' for open answers, 'none' where there is none.",
            ["answer"],
            registry=self.registry,
        )
        self.for_people = Counter(
            "groupwise_answers_for_people_total",
            "Answers marked for a person.",
            registry=self.registry,
        )
        self.batch_questions = Histogram(
            "groupwise_batch_questions",
            "Questions in a batch.",
            buckets=_SIZES,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "groupwise_requests_waiting", "Requests taken and not answered.", registry=self.registry
        )
        self.kept = Counter(
            "groupwise_answers_kept_total",
            "Answers by whether they were kept for feedback.",
            ["kept"],
            registry=self.registry,
        )
        self.feedback = Counter(
            "groupwise_feedback_total",
            "What people said, by whether it was new.",
            ["word"],
            registry=self.registry,
        )
        self.corrections = Counter(
            "groupwise_corrections_total",
            "Labels after which all who spoke say something else than the policy.",
            registry=self.registry,
        )
        self.unsure = Counter(
            "groupwise_answers_unsure_total",
            "Screens whose label the policy was not sure of.",
            registry=self.registry,
        )
        self.judged = Counter(
            "groupwise_judge_asked_total",
            "Screens that the judge was asked about, by whether it agreed with the policy.",
            ["outcome"],
            registry=self.registry,
        )
        self.versions = Gauge(
            "groupwise_served_version",
            "1 for the version served.",
            ["version"],
            registry=self.registry,
        )
        self.reloads = Counter(
            "groupwise_reloads_total",
            "Reloads by whether they brought a new version.",
            ["outcome"],
            registry=self.registry,
        )
        self.errors = Counter(
            "groupwise_predictor_errors_total",
            "Questions that the predictor broke on.",
            registry=self.registry,
        )

    def render(self) -> bytes:
        """Return the page that Prometheus reads."""
        return generate_latest(self.registry)
