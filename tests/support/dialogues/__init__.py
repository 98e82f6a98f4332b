"""A machine of ours in conversation with a test, told things and giving answers: no process, virtual time."""
