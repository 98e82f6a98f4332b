"""What anybody may take of a broker: connections, memory, descriptors, time, lengths of requests."""
