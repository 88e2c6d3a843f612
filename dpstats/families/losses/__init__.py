"""Losses at the points of a parameter grid, for M-estimation."""
