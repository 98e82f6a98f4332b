"""Fetches: the requested rows, the sessions, the wait for data, the answer."""
