"""Files as storage needs them: the port, the disk behind it, and disks in memory."""
