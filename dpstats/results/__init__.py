"""Results that analysts read: estimates, tests, tables of text and HTML."""
