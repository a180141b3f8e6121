"""The jobs that tests stop half-way."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

JOBS = Path(__file__).parents[1] / "fixtures" / "training_job.py"


@pytest.fixture(scope="session")
def jobs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("training_job", JOBS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
