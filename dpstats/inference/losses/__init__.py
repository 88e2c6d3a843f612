"""Mean losses at the points of a parameter grid, and where they can be smallest."""
