"""The laws of the coordinator's world, a module per subject; `kohort.simulation.checkers` lists all of them."""
