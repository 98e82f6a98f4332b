"""Fetching.

fetch_sender (the machine's half: requests and answers) over fetch_targets, fetch_session, partition_state;
fetch_handler (the application's half) over completed_fetch.
"""
