"""Limits on clients: connections, memory, file descriptors, quotas, and the sizes of requests."""
