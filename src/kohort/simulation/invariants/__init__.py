"""The laws of the coordinator's world, a module a subject; `kohort.simulation.checkers` has the table of them all."""
