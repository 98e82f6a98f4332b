"""`kohort.aio.Admin` with calls that return when they are done: it plays what the blocking one plays."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Self

import kohort.aio


class AwaitedAdmin:
    """Runs each call on a loop of its own, which stands still between two of them."""

    def __init__(self, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._admin = kohort.aio.Admin(**options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._admin.close())
        finally:
            self._runner.close()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._admin, name)
        assert inspect.iscoroutinefunction(call), name
        return lambda *given, **named: self._runner.run(call(*given, **named))
