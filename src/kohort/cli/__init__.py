"""The command line: `main` finds the verb, a module of `verbs` carries it out by the admin client.

Floors: main over verbs, demo and report, over bootstrap (addresses and logins), parser, arguments and output. Nothing
imports this room. Begin with `main`, `verbs/topic`, `output`.
"""
