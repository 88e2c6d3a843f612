"""Analyses of first and second moments: means, correlations, components."""
