"""Records on their way to the disk, the replies that wait for that, and the handling of full disks."""
