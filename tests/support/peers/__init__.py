"""Other processes and implementations that take part: brokers, members, drivers, tools, started as users start them."""
