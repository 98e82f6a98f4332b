"""The broker: asyncio around the coordinator and the log.

Floors: server and embedded (a broker's life) over listener, connection and dispatch (bytes to requests), over apis (a
file an API), over groups, fetch and topics, over connections, access, limits and options. Only cli, testing and
simulation import this room. Begin with `connection`, `dispatch`, `apis/offset_commit`.
"""
