"""The command line: `main` finds the verb, and a module of `verbs` carries it out by the admin client.

Layers, the highest first: main; verbs, demo and report; bootstrap (addresses and logins), parser, arguments and output.
No other package imports this one. Read `main`, `verbs/topic` and `output` first.
"""
