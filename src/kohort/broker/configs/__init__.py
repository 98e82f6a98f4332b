"""Configs that are changed while the broker runs."""
