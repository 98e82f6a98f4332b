"""What happened to every group and why: rows, the ring that keeps the latest of them, and `why`, which explains."""
