"""Chi-square tests of noisy tables."""
