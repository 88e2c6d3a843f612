"""From analyses to a plan: the budget split and its expected results; reads no data."""
