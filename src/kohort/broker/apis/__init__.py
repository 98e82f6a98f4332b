"""The APIs of the broker: a module each, with a function `handle`, imported by `dispatch` on the first request.

A module translates between the versions of the wire and the commands of the coordinator or the calls of the log. All
quirks of versions stay here. Begin with `heartbeat` (short), `offset_commit` (a group's), `produce` (the log's).
"""
