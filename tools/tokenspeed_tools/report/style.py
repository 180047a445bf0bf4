"""The style sheet of the page: no font, picture or script from elsewhere.

Colours are those of the drawings; text keeps 4.5:1 to its paper in both themes (WCAG 2.2, 1.4.3). Narrow screens get
one column and the narrow drawings, paper the light theme.
"""

from __future__ import annotations

from tokenspeed_tools.report import palette

SHADE, SHADE_DARK = "#f3f5f7", "#1e232a"
LINK, LINK_DARK = "#0b5cad", "#7cc0ff"
GOOD, GOOD_DARK = "#0b6636", "#7ddba3"
BAD, BAD_DARK = "#a8280f", "#ff9d85"
WORDS = ("paper", "ink", "faint", "grid", "shade", "link", "good", "bad")
THEMES = {
    "light": (palette.PAPER, palette.INK, palette.FAINT, palette.GRID, SHADE, LINK, GOOD, BAD),
    "dark": (
        palette.PAPER_DARK,
        palette.INK_DARK,
        palette.FAINT_DARK,
        palette.GRID_DARK,
        SHADE_DARK,
        LINK_DARK,
        GOOD_DARK,
        BAD_DARK,
    ),
}

RULES = """
*{box-sizing:border-box}
html{color-scheme:light dark}
body{margin:0 auto;padding:1.5rem clamp(.8rem,3vw,2rem) 4rem;max-width:78rem;background:var(--paper);color:var(--ink);
 font:1rem/1.5 FONT}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .3rem;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.6rem 0 .6rem}
h3{font-size:1rem;margin:0 0 .2rem;overflow-wrap:anywhere}
p,ul,dl{margin:.4rem 0;max-width:60rem}
a{color:var(--link)}
small,.soft,figcaption,caption{color:var(--faint)}
small{font-size:.8rem}
code,pre{font:.85rem/1.45 ui-monospace,'Liberation Mono',monospace;overflow-wrap:anywhere;white-space:pre-wrap}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;padding:0;list-style:none}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.scroll{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.2rem 0;font-size:.9rem}
th,td{padding:.35rem .7rem;border-bottom:1px solid var(--grid);text-align:left;vertical-align:top}
thead td,thead th{vertical-align:bottom;background:var(--shade)}
tbody th{font-weight:500;background:var(--paper);position:sticky;left:0;z-index:1}
th small,td small{display:block;font-weight:400;white-space:nowrap}
table.numbers td,table.numbers thead th{text-align:right}
table.settings td,table.settings th{overflow-wrap:anywhere;min-width:8.5rem;max-width:26rem}
table.settings td:has(code){min-width:18rem}
thead th{max-width:16rem;overflow-wrap:anywhere}
table.numbers th{min-width:6.5rem}table.numbers tbody th{min-width:9rem}table.numbers td{white-space:nowrap}
td.best{background:var(--shade);font-weight:700}
.better{color:var(--good)}.worse,.warn{color:var(--bad)}
.key{width:1rem;height:1rem;vertical-align:-.15rem;margin-right:.35rem}
.plots{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1.6rem 1.6rem}
figure{margin:0;min-width:0}
figure.full{grid-column:1/-1}
figure .chart{display:block;width:100%;height:auto}
figure .chart.narrow{display:none}
figcaption{font-size:.85rem;overflow-wrap:anywhere}
dt{font-weight:600;margin-top:.6rem}dd{margin:0 0 0 1.2rem}
summary{cursor:pointer;padding:.3rem 0}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media screen and (max-width:62rem){.plots{grid-template-columns:minmax(0,1fr)}
 .chart.wide{max-width:62rem}figure:not(.full) .chart{max-width:46rem}}
@media screen and (max-width:48rem){
 figure .chart.wide{display:none}figure .chart.narrow{display:block;max-width:30rem}
 th,td{padding:.3rem .45rem}body{font-size:.95rem}tbody th{max-width:9rem;overflow-wrap:anywhere}
}
@media print{
 body{max-width:none;padding:0;font-size:10pt}nav{display:none}.scroll{overflow:visible}
 figure,tr{break-inside:avoid}h2{break-after:avoid}.plots{gap:1rem}
 td.best{background:none;text-decoration:underline}
}
"""


def variables(theme: str) -> str:
    """Return the declarations of one theme."""
    return ";".join(f"--{word}:{colour}" for word, colour in zip(WORDS, THEMES[theme], strict=True))


def page_style() -> str:
    """Return the whole style sheet, that of the drawings included."""
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{variables('dark')}}}}}"
    return f":root{{{variables('light')}}}{dark}{RULES.replace('FONT', palette.FONT)}{palette.stylesheet()}"
