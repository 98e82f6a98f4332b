"""What happened to every group and why: rows, and the ring buffer that keeps the latest of them."""
