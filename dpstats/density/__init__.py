"""From noisy answers and candidate points to weights and synthetic rows."""
