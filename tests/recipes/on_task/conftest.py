"""Screens and pictures for the tests here."""

from screens import draw_picture, make_screen

__all__ = ["draw_picture", "make_screen"]
