"""Reconciliation of members: the way from their current assignment to their target, move by move."""
