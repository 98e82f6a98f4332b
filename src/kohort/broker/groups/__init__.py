"""The shell around the groups' coordinator: its runtime, logs, deadlines, held heartbeats, journal."""
