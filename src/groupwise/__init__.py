"""Groupwise: post-train a small (vision-)language model on a task of your own.

The layers are imported by name, for example ``from groupwise.rewards import LabelMatch``;
this module only knows the version.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
