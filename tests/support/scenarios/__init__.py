"""Scenarios that several tests play, at any broker or with any client, and the long runs."""
