#!/usr/bin/env python3
"""Draws the README's plot from docs/figures/silesia7.csv, for light pages and dark ones.

Usage: scripts/plot.py > docs/silesia7.svg
"""

import csv
import math
from collections.abc import Iterable
from pathlib import Path

PANEL, TOP, BOTTOM, LEFT, GAP = (390, 380), 62, 56, 40, 40
WIDTH, HEIGHT = LEFT + 2 * PANEL[0] + GAP + 16, TOP + PANEL[1] + BOTTOM
# Distinct for colour-blind people too (after Okabe and Ito). The first is for light pages, the second for dark ones.
COLOURS = {
    "pz": ("#c24e00", "#ff9a4d"),
    "zstd": ("#0060a8", "#6cb6ff"),
    "lz4": ("#00795a", "#4fd1a5"),
    "bzip2": ("#5c5c5c", "#b0b0b0"),
    "bzip3": ("#8a3a8f", "#e29be6"),
}
# The points beside which the name of their program stands.
NAMED = ("pz -8", "pz -9", "pz -p fse", "zstd -16", "lz4 -9", "bzip2 -9", "bzip3 -b 16")
STYLE = """
  .ground { fill: #ffffff } .ink { fill: #1f2328 } .quiet { fill: #59636e } .grid { stroke: #e3e6ea }
  text { font: 13px system-ui, sans-serif } .title { font-size: 15px; font-weight: 600 } .name { font-weight: 700 }
  .line { fill: none; stroke-width: 2 }
"""
DARK_STYLE = ".ground { fill: #0d1117 } .ink { fill: #e6edf3 } .quiet { fill: #9aa4af } .grid { stroke: #2a3038 }"


def coloured(shade: int) -> str:
    colours = ((name, pair[shade]) for name, pair in COLOURS.items())
    return " ".join(f".f-{name} {{ fill: {colour} }} .s-{name} {{ stroke: {colour} }}" for name, colour in colours)


def points(rows: list[dict[str, str]], speed: str) -> dict[str, list[tuple[float, float, str]]]:
    """Returns for each program the speed, the ratio and the option of each row."""
    series: dict[str, list[tuple[float, float, str]]] = {}
    for row in rows:
        program, option = row["program"].split(" ", 1)
        series.setdefault(program, []).append((float(row[speed]), float(row["ratio"]), option))
    return series


def ticks(low: float, high: float) -> list[float]:
    values = (digit * 10.0**power for power in range(-1, 5) for digit in (1, 2, 5))
    return [value for value in values if low <= value <= high]


def labels(places: Iterable[tuple[str, float, float, str]]) -> list[str]:
    """Puts options beside their points. If two overlap, keeps the first. Names come first, and may change sides."""
    out, taken = [], []
    for name, x, y, option in sorted(places, key=lambda place: f"{place[0]} {place[3]}" not in NAMED):
        is_named = f"{name} {option}" in NAMED
        option = option.removeprefix("-p ")
        width = 8 * len(f"{name} {option}" if is_named else option)
        # The lines of pz and zstd run close together: their labels stand on different sides.
        side = -1 if name == "zstd" else 1
        for side in (side, -side) if is_named else (side,):
            left, bottom = x + 8 * side - (width if side < 0 else 0), y + (14 if side < 0 else -4)
            if any(left < end and start < left + width and abs(bottom - other) < 12 for start, end, other in taken):
                continue
            taken.append((left, left + width, bottom))
            text = f'<tspan class="name">{name}</tspan> {option}' if is_named else option
            place = f'x="{x + 8 * side:.1f}" y="{bottom:.1f}" text-anchor="{"end" if side < 0 else "start"}"'
            out.append(f'<text class="f-{name}" {place}>{text}</text>')
            break
    return out


def panel(rows: list[dict[str, str]], speed: str, heading: str, left: float, span: tuple[float, float]) -> list[str]:
    series = points(rows, speed)
    speeds = [point[0] for of in series.values() for point in of]
    low, high = min(speeds) / 1.7, max(speeds) * 2
    bottom = TOP + PANEL[1]

    def x(value: float) -> float:
        return left + PANEL[0] * math.log(value / low) / math.log(high / low)

    def y(ratio: float) -> float:
        return bottom - PANEL[1] * (ratio - span[0]) / (span[1] - span[0])

    out = [f'<text class="ink" x="{left}" y="{TOP - 12}">{heading}</text>']
    for value in ticks(low, high):
        out.append(f'<path class="grid" d="M{x(value):.1f} {TOP}V{bottom}"/>')
        out.append(f'<text class="quiet" x="{x(value):.1f}" y="{bottom + 18}" text-anchor="middle">{value:g}</text>')
    for ratio in range(math.ceil(span[0]), math.floor(span[1]) + 1):
        out.append(f'<path class="grid" d="M{left} {y(ratio):.1f}H{left + PANEL[0]}"/>')
        out.append(f'<text class="quiet" x="{left - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end">{ratio}</text>')
    for name, of in series.items():
        # A line joins levels of one kind. Pipelines, and levels of another kind, are separate points.
        levels = [point for point in of if not point[2].startswith("-p") and (name, point[2]) != ("pz", "-9")]
        line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b, _ in levels)
        out.append(f'<polyline class="line s-{name}" points="{line}"/>')
        for value, ratio, _ in of:
            out.append(f'<circle class="f-{name}" cx="{x(value):.1f}" cy="{y(ratio):.1f}" r="4"/>')
    out += labels((name, x(value), y(ratio), option) for name, of in series.items() for value, ratio, option in of)
    return out


def main() -> None:
    with open(Path(__file__).parent.parent / "docs/figures/silesia7.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["threads"] == "1"]
    ratios = [float(row["ratio"]) for row in rows]
    span = (min(ratios) - 0.35, max(ratios) + 0.4)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<style>{STYLE}  {coloured(0)}",
        f"  @media (prefers-color-scheme: dark) {{ {DARK_STYLE} {coloured(1)} }}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        f'<text class="ink title" x="{LEFT}" y="26">Silesia\'s files, 82 MB, one thread on one core</text>',
    ]
    out += panel(rows, "compress_mb_s", "Ratio against MB/s to compress", LEFT, span)
    out += panel(rows, "decompress_mb_s", "Ratio against MB/s to decompress", LEFT + PANEL[0] + GAP, span)
    note = "MB/s: millions of bytes of the source a second, on a logarithmic axis. Beside the points stand the options."
    out.append(f'<text class="quiet" x="{LEFT}" y="{HEIGHT - 12}">{note}</text>')
    print("\n".join(out), "</svg>", sep="\n")


if __name__ == "__main__":
    main()
