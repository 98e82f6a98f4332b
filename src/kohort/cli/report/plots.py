"""Plots as SVG that stands in a page: text as text, in the page's own colour.

Laws: nothing is fetched, and equal lines give an equal picture.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Lines = list[dict[str, Any]]
#: Stands in for the page's colour of text.
_INK: Final = "#010203"
_BARS: Final = 15


def draw_rebalances(points: Lines) -> str:
    """Draw the begin and length of rebalances by their triggers; those without an end are left out."""

    def draw(axes: Axes) -> None:
        ended = [point for point in points if point["seconds"] is not None]
        for why in sorted({point["why"] or "" for point in ended}):
            own = [point for point in ended if (point["why"] or "") == why]
            axes.scatter(_times(own, "began"), [point["seconds"] for point in own], s=18, alpha=0.8, label=why)
        axes.set_ylabel("seconds")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, labelcolor=_INK)

    return _draw(draw, name="rebalances") if any(point["seconds"] is not None for point in points) else ""


def draw_unread(lines: Lines) -> str:
    """Draw for how long each partition had no reader, the longest on top."""

    def draw(axes: Axes) -> None:
        shown = [line for line in lines[:_BARS] if line["seconds"]][::-1]
        axes.barh(
            [f"{line['topic']}-{line['partition']} ({line['group_id']})" for line in shown],
            [line["seconds"] for line in shown],
        )
        axes.set_xlabel("seconds")

    return _draw(draw, name="unread") if any(line["seconds"] for line in lines) else ""


def draw_lag(points: Lines) -> str:
    """Draw lag over time, a curve a group."""

    def draw(axes: Axes) -> None:
        for group in dict.fromkeys(point["group_id"] for point in points):
            own = [point for point in points if point["group_id"] == group and point["lag"] is not None]
            axes.step(_times(own, "time"), [point["lag"] for point in own], where="post", label=group)
        axes.set_ylabel("records")
        # Groups that are never behind have a line at 0 and no thousandths of records.
        axes.set_ylim(bottom=0, top=max(1, axes.get_ylim()[1]))
        axes.locator_params(axis="y", integer=True)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, labelcolor=_INK)

    return _draw(draw, name="lag") if points else ""


def draw_moved(lines: Lines) -> str:
    """Draw the moves made and those that assignors would have made, of all groups together."""
    names = [name for name in (lines[0] if lines else {}) if name not in ("group_id", "rebalances")]

    def draw(axes: Axes) -> None:
        sums = [sum(line[name] or 0 for line in lines) for name in names]
        bars = axes.barh([name.replace("_", " ") for name in names][::-1], sums[::-1], color="tab:blue")
        bars[-1].set_color("tab:orange")
        axes.set_xlabel("partitions moved")

    return _draw(draw, name="moved") if lines else ""


def _times(lines: Lines, name: str) -> Any:
    return [datetime.fromisoformat(line[name]) for line in lines]


def _draw(draw: Callable[[Axes], None], *, name: str) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    ink: Any = {
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "axes.axisbelow": True, **ink}):
        figure = Figure(figsize=(9, 3.2), constrained_layout=True)
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2, color=_INK)
        draw(axes)
        if isinstance(axes.xaxis.get_major_locator(), AutoDateLocator):
            formatter: Any = ConciseDateFormatter
            axes.xaxis.set_major_formatter(formatter(axes.xaxis.get_major_locator()))
        text = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(text, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    # Pictures of one page share its names.
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
