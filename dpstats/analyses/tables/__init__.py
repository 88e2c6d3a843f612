"""Chi-square tests of tables."""
