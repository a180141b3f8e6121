"""One tiny run that rows of the catalogue damage."""

from finished_run import finished

__all__ = ["finished"]
