"""Private rows to exact integer sums; the only code that sees rows."""
