"""The broker's periodic work beside the loop."""
