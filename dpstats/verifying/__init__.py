"""A second opinion on a release or a plan: it imports the standard library and nothing else.

Everything is computed again from the file alone, from the documented format; not a line is shared
with the rest of dpstats. To run it without the rest, or without NumPy: ``python dpstats/verifying
release.zip``.
"""
