"""Reports of a release as single HTML pages: for analysts, and for those who decide on it."""
