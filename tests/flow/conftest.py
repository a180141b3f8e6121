"""One tiny run for all that is done with finished ones."""

from finished_run import finished

__all__ = ["finished"]
