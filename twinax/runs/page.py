"""The frame of a report: one HTML file with its style inside, light or dark as the reader's system is."""

from __future__ import annotations

from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6575; --line: #e3e7ee; --page: #f6f7f9; --card: #ffffff;
  --good: #0a7f4f; --bad: #c62828; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #2b3240; --page: #12161d; --card: #1a202a;
    --good: #4ade80; --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 20px 64px; }
header h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
header p { margin: 0 0 20px; color: var(--soft); max-width: 90ch; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 20px 20px;
  margin: 0 0 20px; }
h2 { font-size: 18px; margin: 0 0 12px; }
h3 { font-size: 15px; margin: 20px 0 8px; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0 0 20px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.tile span { display: block; color: var(--soft); font-size: 13px; }
.tile b { font-size: 22px; font-variant-numeric: tabular-nums; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr)); gap: 16px 24px; }
.grid.large { grid-template-columns: repeat(auto-fill, minmax(min(100%, 460px), 1fr)); }
.columns { display: flex; flex-wrap: wrap; gap: 0 56px; }
.columns table { margin: 0 0 20px; min-width: 300px; }
figure { margin: 0; min-width: 0; }
figure.wide { margin: 0 0 16px; max-width: 900px; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: inherit !important; }
img.film { display: block; width: 100%; image-rendering: pixelated; border-radius: 4px; }
figcaption { color: var(--soft); font-size: 13px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 12px; }
.chip { display: inline-block; width: 12px; height: 12px; border-radius: 3px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; min-width: 40%; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
td.text { white-space: normal; max-width: 44ch; overflow-wrap: anywhere; }
tbody th, thead th:first-child { text-align: left; font-weight: 400; color: var(--soft); }
thead th, thead th:first-child { font-weight: 600; vertical-align: bottom; color: var(--ink); }
table.facts td { text-align: left; }
.verdict-yes { color: var(--good); font-weight: 600; }
.verdict-no { color: var(--bad); font-weight: 600; }
pre { background: var(--page); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; margin: 8px 0;
  overflow-x: auto; font-size: 13px; }
summary { cursor: pointer; color: var(--soft); }
@media print { body { background: none; } section { break-inside: avoid; } }
"""


def page(title: str, body: str) -> str:
    """A whole HTML document; it loads nothing from elsewhere."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def section(heading: str, body: str) -> str:
    """A card with a heading; nothing when there is nothing to show."""
    return f"<section><h2>{escape(heading)}</h2>{body}</section>\n" if body else ""
