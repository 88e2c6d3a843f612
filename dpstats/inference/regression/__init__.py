"""Least squares from noisy moments."""
