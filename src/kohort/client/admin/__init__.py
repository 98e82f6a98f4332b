"""The admin client: `admin` and `aio_admin` (the doors) hold `calls`, a class a family, written once as coroutines.

A call asks by `questions`; `admin_machine` sends what is asked to the right broker; `results` is what calls return.
Begin with `admin`, `calls/offsets`, `admin_machine`.
"""
