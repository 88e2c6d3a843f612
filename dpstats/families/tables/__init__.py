"""Counts of cells, and what is measured in the place of them or beside them."""
