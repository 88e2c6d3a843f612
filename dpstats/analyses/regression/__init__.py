"""Regression analyses."""
