"""Tables of results for other software: cross tabulations and LaTeX."""
