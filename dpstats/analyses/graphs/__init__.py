"""Analyses whose results are graphs of the columns."""
