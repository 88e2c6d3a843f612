"""Squares and products of person totals."""
