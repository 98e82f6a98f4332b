"""The verbs of the command line, a module each; `kohort.cli.main` loads those that are asked for."""
