"""Simulated releases from public numbers, and what they say to expect of a plan."""
