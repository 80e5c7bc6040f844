"""A small line chart as SVG: a few lines, two axes, a legend. No library, because nothing else here draws charts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 760, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 50, 50
_TICKS_COUNT_MAX = 6

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points, x ascending."""

    name: str
    points: Points
    colour: str
    is_dashed: bool = False


def plot(*, title: str, x: str, y: str, lines: Sequence[Line]) -> str:
    """The chart; both axes begin at 0."""
    across = _ticks(max(at for line in lines for at, _ in line.points))
    up = _ticks(max(value for line in lines for _, value in line.points))
    scale = _Scale(across[-1], up[-1])
    parts = [
        _text(_WIDTH / 2, 24, title, size=15),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, x),
        f'<text transform="translate(18 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle" fill="#333333">{escape(y)}</text>',
        *(_tick_x(scale, value) for value in across),
        *(_tick_y(scale, value) for value in up),
        *(_path(scale, line) for line in lines),
        *(_legend(place, line) for place, line in enumerate(lines)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    x_max: float
    y_max: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + width * x / self.x_max, _HEIGHT - _BOTTOM - height * y / self.y_max


def _ticks(largest: float) -> list[float]:
    """From 0 on, in steps of 1, 2, 2.5 or 5 times a power of ten, as few as hold the largest."""
    rough = max(largest, 1e-9) / _TICKS_COUNT_MAX
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= rough)
    return [number * step for number in range(math.ceil(largest / step) + 1)]


def _tick_x(scale: _Scale, value: float) -> str:
    x, y = scale.at(value, 0)
    return f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#eeeeee"/>' + _text(
        x, y + 18, f"{value:g}"
    )


def _tick_y(scale: _Scale, value: float) -> str:
    x, y = scale.at(0, value)
    line = f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#eeeeee"/>'
    return line + _text(x - 8, y + 4, f"{value:g}", anchor="end")


def _path(scale: _Scale, line: Line) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (scale.at(*point) for point in line.points))
    dashes = ' stroke-dasharray="6 4"' if line.is_dashed else ""
    return f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"{dashes}/>'


def _legend(place: int, line: Line) -> str:
    x, y = _WIDTH - 230, _TOP + 14 + 18 * place
    dashes = ' stroke-dasharray="6 4"' if line.is_dashed else ""
    mark = f'<line x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}" stroke="{line.colour}" stroke-width="2"{dashes}/>'
    return mark + _text(x + 30, y, line.name, anchor="start")


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#333333">{escape(text)}</text>'
