"""Survival analysis: curves, cumulative incidence, log-rank tests, and hazard ratios."""
