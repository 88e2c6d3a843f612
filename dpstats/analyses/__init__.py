"""The analyses: each one file, with what to measure and what to conclude."""
