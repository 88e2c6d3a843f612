"""Results of graphical models."""
