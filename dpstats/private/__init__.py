"""Private rows to exact integer sums, and their measurement; only this package reads rows."""
