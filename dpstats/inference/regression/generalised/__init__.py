"""Estimates, errors, intervals and tests of generalised linear models."""
