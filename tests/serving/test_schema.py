"""Whatever fits the published schema, or nearly does, is answered, and as the schema says."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from groupwise.serving.bench import Screens

ASKED = ("/v1/predict", "/v1/screens")
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_breaks_the_server(start, predictor, mode):
    client = start(behind=Screens(), max_pictures=4, max_body_mib=1)
    schema = schemathesis.openapi.from_url(str(client.base_url.join("/openapi.json")))
    operations = [found.ok() for found in schema.get_all_operations()]
    assert {operation.path for operation in operations} >= {
        "/v1/predict",
        "/v1/reload",
        "/v1/screens",
        "/metrics",
        "/readyz",
    }
    statuses = {}
    for operation in operations:
        for case in draw_cases(operation, mode):
            response = case.call()
            statuses.setdefault(operation.path, set()).add(response.status_code)
            case.validate_response(response, checks=CHECKS)
    assert statuses["/v1/predict"] & {400, 415, 422}
    assert statuses["/v1/screens"] & {400, 415, 422}
    assert client.get("/readyz").status_code == 200


def draw_cases(operation, mode):
    """Return cases of one route; none where there is nothing to get wrong."""
    cases = []

    @settings(
        max_examples=60 if operation.path in ASKED else 5,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def collect(case):
        cases.append(case)

    if mode is GenerationMode.POSITIVE or operation.body:
        collect()
    return cases
