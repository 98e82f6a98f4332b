"""`kohort group why`: rows of one group in, an explanation out."""
