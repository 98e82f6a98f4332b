"""Fetches: what is asked, the sessions, the wait for data, the answer."""
