"""Questions that nobody planned for: certified intervals, what is known, and from what."""
