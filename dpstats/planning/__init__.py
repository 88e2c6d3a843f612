"""From analyses to a plan: the budget split, and what it would give; no data are read."""
