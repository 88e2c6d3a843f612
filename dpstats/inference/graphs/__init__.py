"""Graphical models: noisy precision matrices, their edges, and spanning trees."""
