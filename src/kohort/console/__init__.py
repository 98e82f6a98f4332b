"""The web console: groups, their members and rebalances, topics and brokers of any cluster, in a browser.

Floors, from the door down: `serving` (uvicorn on a socket), `app` (paths, JSON twins, events), `pages` (the values of
each page), `swimlanes` (owners as SVG), `access` (Host, Origin, logins), `reader` (the cluster, read once for all).
Begin with `reader`, then `pages`, then `app`. Starlette, uvicorn and Jinja are the extra `console`. `kohort top` shows
values of `pages` by `reader`, without the extra.
"""

from importlib.util import find_spec
from typing import Final

#: How to get what the console needs.
INSTALL: Final = "pip install 'kohort[console]'"
#: Orders of groups; the first is the default.
SORTS: Final = ("seconds", "lag", "name", "state", "members", "flapping")


def has_extra() -> bool:
    """Whether the packages of the console are installed; none of them is loaded."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn", "jinja2"))
