"""Requests for public data sets; the data themselves come with statsmodels."""
