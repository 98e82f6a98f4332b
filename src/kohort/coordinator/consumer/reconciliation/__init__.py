"""How members go from what they hold to their target: what each gives up and takes, when each move begins."""
