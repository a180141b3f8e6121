"""Drawn photos of equipment cabinets, in groups with a verdict and a true line about each photo."""

from groupwise.data.cabinets.descriptions import (
    IRRELEVANT,
    SeenObject,
    read_objects,
    write_objects,
)

__all__ = ["IRRELEVANT", "SeenObject", "read_objects", "write_objects"]
