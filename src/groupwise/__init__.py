"""Groupwise: post-train a small (vision-)language model on a task of your own.

The layers are imported by name, for example ``from groupwise.rewards import LabelMatch``;
this module only knows the version.
"""

import logging as _logging

__version__ = "0.1.0"

__all__ = ["__version__"]

# Whatever imports it, bitsandbytes says that it lacks a kernel which nothing here calls.
_logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(_logging.ERROR)
