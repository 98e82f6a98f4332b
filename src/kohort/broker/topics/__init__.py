"""The topics as clients see them, their configs, who leads them, and their changes."""
