"""Public data: requests for sets of statsmodels, terms of senators of Canada, persons of a survey.

senators.csv is the list of senators of lifelines 0.30 (`load_canadian_senators`, MIT licence, after
the Parliament of Canada): years in office to two decimals, how the term ended, whether it began
before 2 June 1965 (for life), and the region; without names, and without three appointments that
were declined.

acs2019.csv is of the American Community Survey 2019, work of the US government: the 7,634 persons
of five public use microdata areas of Massachusetts in the excerpts that the National Institute of
Standards and Technology made for its Collaborative Research Cycle. Columns are the area, sex, age,
whether the person has any of four difficulties (remembering, walking, seeing, hearing), whether the
home is owned or rented (other: group quarters), the person's weight, and the number of the row.
"""
