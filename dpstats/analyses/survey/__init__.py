"""Weighted estimates of surveys, with sampling variances from contrasts between units."""
