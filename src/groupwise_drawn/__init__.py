"""Worlds that are only drawn: material for demos and tests, no part of the library."""
