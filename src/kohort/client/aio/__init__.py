"""The asyncio doors: the same machines, options and names as the blocking doors, without a thread."""
