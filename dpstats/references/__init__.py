"""Reference densities that candidate points are drawn from."""
