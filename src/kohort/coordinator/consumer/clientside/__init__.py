"""Assignors that members run themselves: who has which, who is asked, what comes of it, and who is told."""
