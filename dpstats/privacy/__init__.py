"""Budgets, the one place where privacy noise is drawn, its law, and the ledger."""
