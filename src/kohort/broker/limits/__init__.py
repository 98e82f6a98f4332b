"""The limits on clients: connections, memory, descriptors, time, lengths of requests."""
