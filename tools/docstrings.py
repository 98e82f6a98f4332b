"""The page of the API as the source has it: an extension of griffe, which reads the source for the site."""

from __future__ import annotations

import re
from typing import Any

from griffe import AliasResolutionError, Extension, Function, NameResolutionError

#: A paragraph that begins with a prompt of Python.
_EXAMPLE = re.compile(r"(?m)^>>> .*(?:\n(?!\s*$).*)*")
#: A call that a door names in one line, `list_topics = blocking(TopicCalls.list_topics)`.
_CALL = re.compile(r"\w+\(([A-Z]\w*)\.(\w+)\)")


class Doors(Extension):
    """Calls of the doors with their signatures and docstrings, and examples as blocks of code."""

    def on_object(self, *, obj: Any, loader: Any, **_: Any) -> None:
        """Fence each example of a docstring, and take what a door's line stands for."""
        if obj.docstring and "```" not in obj.docstring.value:
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
        if obj.is_class:
            for name, member in list(obj.members.items()):
                if not member.is_alias and member.is_attribute and (call := _CALL.fullmatch(str(member.value or ""))):
                    obj.set_member(name, self._call(obj, member, loader, *call.groups()))

    def _call(self, door: Any, line: Any, loader: Any, kind: str, name: str) -> Any:
        """Make a method of the line that names a call."""
        try:
            call = loader.modules_collection[door.resolve(kind)][name]
        except (KeyError, AliasResolutionError, NameResolutionError):
            return line
        if not call.is_function:
            return line
        method = Function(
            line.name, lineno=line.lineno, endlineno=line.endlineno, parameters=call.parameters, returns=call.returns
        )
        method.docstring = call.docstring
        return method
