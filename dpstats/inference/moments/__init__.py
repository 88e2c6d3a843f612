"""Intervals and tests from noisy moments."""
