"""The topics as clients see them, their configs, their leaders, and their changes."""
