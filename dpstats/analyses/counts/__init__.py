"""Analyses of counts: proportions, marginals, differences, quantiles."""
