"""Reconciliation of members: from the current assignment to the target, partition by partition."""
