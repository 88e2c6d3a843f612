"""Private rows to exact integer sums, and the step that measures them; the only room with rows."""
