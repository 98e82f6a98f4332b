"""Records on their way to the disk, who waits for that, and what a disk that takes nothing means."""
