"""Families of test functions: what is measured, and how far one row can move it."""
