"""Intervals and tests from noisy counts."""
