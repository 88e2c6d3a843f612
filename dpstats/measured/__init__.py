"""Measurements: the noisy sums, what follows from them, and the certificate."""
