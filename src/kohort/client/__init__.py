"""The clients: consumer, producer and admin, each a door for the application over a machine that decides.

Floors: admin, consumer and producer over core (the driver with its connections, where machines run), over the options
and the arguments of calls. This room imports nothing of the broker. Begin with `consumer/consumer`,
`core/driver`, `consumer/core/consumer_machine`.
"""
