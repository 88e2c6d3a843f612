"""Public data: requests for sets of statsmodels, and the terms of the senators of Canada.

senators.csv is the list of senators of lifelines 0.30 (`load_canadian_senators`, MIT licence, after
the Parliament of Canada): years in office to two decimals, how the term ended, whether it began
before 2 June 1965 (for life), and the region; without names, and without three appointments that
were declined.
"""
