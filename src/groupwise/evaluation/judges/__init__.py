"""Calibration of judges."""
