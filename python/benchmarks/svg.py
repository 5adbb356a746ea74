"""Charts as SVG text: axes, lines, points, bars and a legend. No script, no font, nothing to fetch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, Protocol

__all__ = ["COLOURS", "Bar", "Bars", "Chart", "Drawing", "Series", "Span", "ticks"]

#: Okabe and Ito's palette: told apart by people who see colours differently.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")

WIDTH, HEIGHT = 620, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 48


@dataclass(frozen=True, slots=True)
class Series:
    """Points (x, y) with a name for the legend."""

    name: str
    points: Sequence[tuple[float, float]]
    mark: Literal["line", "dots", "both"] = "both"
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A horizontal bar from `begin` to `end` in row `row`, in the colour of number `colour`."""

    row: int
    begin: float
    end: float
    colour: int


class Drawing(Protocol):
    """Anything that can be put on a page."""

    def svg(self) -> str:
        """Return it as one <svg> element of WIDTH by HEIGHT."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. Both axes start at 0 unless they are logarithmic."""

    title: str
    x: str
    y: str
    series: Sequence[Series] = ()
    log_x: bool = False
    log_y: bool = False
    spans: Sequence[Span] = ()
    names: Sequence[str] = ()  # of the colours of spans

    def svg(self) -> str:
        """Draw it."""
        points = [point for series in self.series for point in series.points]
        xs = [p[0] for p in points] + [span.end for span in self.spans]
        ys = [p[1] for p in points] + [float(span.row + 1) for span in self.spans]
        across = _Axis(xs, self.log_x, LEFT, WIDTH - RIGHT)
        up = _Axis(ys, self.log_y, HEIGHT - BOTTOM, TOP)
        parts = [
            *_frame(self.title),
            *self._grid(across, up),
            *(part for span in self.spans for part in _bar(span, across, up)),
            *(part for number, series in enumerate(self.series) for part in _draw(series, number, across, up)),
            *self._legend(),
            "</svg>",
        ]
        return "\n".join(parts)

    def _grid(self, across: _Axis, up: _Axis) -> list[str]:
        parts = []
        for value in across.ticks:
            at = across.at(value)
            parts.append(_line(at, TOP, at, HEIGHT - BOTTOM, "#e5e5e5"))
            parts.append(_text(at, HEIGHT - BOTTOM + 16, _label(value), anchor="middle"))
        for value in up.ticks:
            at = up.at(value)
            parts.append(_line(LEFT, at, WIDTH - RIGHT, at, "#e5e5e5"))
            parts.append(_text(LEFT - 6, at + 4, _label(value), anchor="end"))
        parts.append(_line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#444"))
        parts.append(_line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#444"))
        parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, self.x, anchor="middle"))
        middle = (TOP + HEIGHT - BOTTOM) / 2
        parts.append(f'<g transform="rotate(-90 14 {middle:.0f})">{_text(14, middle, self.y, anchor="middle")}</g>')
        return parts

    def _legend(self) -> list[str]:
        parts = []
        left = float(LEFT)
        names = list(self.names) or [series.name for series in self.series]
        for number, name in enumerate(names if len(names) > 1 else ()):
            if not name:
                continue
            parts.append(f'<rect x="{left:.0f}" y="25" width="9" height="9" fill="{_colour(number)}"/>')
            parts.append(_text(left + 13, 33, name))
            left += 26 + 6.2 * len(name)
        return parts


@dataclass(frozen=True, slots=True)
class Bar:
    """One value with a name, and how far it may be off."""

    name: str
    value: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Bars:
    """Values side by side as horizontal bars; the first one is ours."""

    title: str
    bars: Sequence[Bar]

    def svg(self) -> str:
        """Draw it."""
        names = 130
        across = _Axis([bar.value + bar.error for bar in self.bars], False, names, WIDTH - 70)
        height = min((HEIGHT - TOP - 20) / max(len(self.bars), 1), 44)
        parts = [*_frame(self.title)]
        for row, bar in enumerate(self.bars):
            top = TOP + row * height
            right, middle = across.at(bar.value), top + height * 0.4
            parts.append(
                f'<rect x="{names}" y="{top:.1f}" width="{max(right - names, 0.5):.1f}" height="{height * 0.8:.1f}" '
                f'fill="{_colour(0 if row == 0 else 5)}"/>'
            )
            if bar.error:
                parts.append(
                    _line(across.at(bar.value - bar.error), middle, across.at(bar.value + bar.error), middle, "#222")
                )
            parts.append(_text(names - 8, middle + 4, bar.name, anchor="end"))
            parts.append(_text(across.at(bar.value + bar.error) + 6, middle + 4, _label(float(f"{bar.value:.3g}"))))
        return "\n".join([*parts, "</svg>"])


def _frame(title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="11" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 18, title, size=13, bold=True),
    ]


class _Axis:
    """Maps values to pixels."""

    def __init__(self, values: Sequence[float], log: bool, begin: float, end: float) -> None:
        self._log = log and any(v > 0 for v in values)
        self._begin, self._end = begin, end
        if self._log:
            positive = [v for v in values if v > 0]
            self._low = 10.0 ** math.floor(math.log10(min(positive)))
            self._high = max(max(positive), self._low * 10)
            decades = range(round(math.log10(self._low)), math.floor(math.log10(self._high)) + 1)
            steps = (1, 2, 5) if len(decades) <= 3 else (1,)
            self.ticks = [step * 10.0**d for d in decades for step in steps if step * 10.0**d <= self._high]
        else:
            self._low = 0.0
            self.ticks = ticks(max(values, default=1.0))
            self._high = self.ticks[-1]

    def at(self, value: float) -> float:
        low, high, value = self._low, self._high, max(value, self._low)
        if self._log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self._begin + (value - low) / (high - low) * (self._end - self._begin)


def ticks(most: float) -> list[float]:
    """Return four to eleven round numbers from 0 to the first at or beyond `most`."""
    if not most > 0:
        most = 1.0
    step = 10.0 ** math.floor(math.log10(most))
    step *= next(factor for factor in (0.1, 0.2, 0.5, 1.0) if most / (step * factor) <= 10)
    return [step * i for i in range(math.ceil(most / step - 1e-9) + 1)]


def _draw(series: Series, number: int, across: _Axis, up: _Axis) -> list[str]:
    places = [(across.at(x), up.at(y)) for x, y in series.points]
    colour = _colour(number)
    parts = []
    if series.mark != "dots" and len(places) > 1:
        dash = ' stroke-dasharray="5 4"' if series.dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
    if series.mark != "line" or len(places) == 1:
        size, opacity = (2.2, 0.5) if series.mark == "dots" else (3.0, 1.0)
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}" fill-opacity="{opacity}"/>'
                  for x, y in places]  # fmt: skip
    return parts


def _bar(span: Span, across: _Axis, up: _Axis) -> list[str]:
    top, bottom = up.at(span.row + 1), up.at(span.row)
    left, right = across.at(span.begin), across.at(span.end)
    return [
        f'<rect x="{left:.1f}" y="{top:.2f}" width="{max(right - left, 0.3):.1f}" '
        f'height="{max((bottom - top) * 0.85, 0.3):.2f}" fill="{_colour(span.colour)}"/>'
    ]


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _label(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight} fill="#222">'
        f"{escape(text)}</text>"
    )
