"""Clients' connections: frames in, requests, answers out in their order."""
