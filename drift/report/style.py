"""The page's style, for light and dark."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #59636e;
  --line: #d8dee4; --card: #f6f8fa; --hot: #b3261e; --ok: #1a7037; --doubt: #8a5a00;
  --old: #9fb8d3; --new: #c2410c; --null: #dfe5eb; --bar: #2f7fd1; }
@media (prefers-color-scheme: dark) { :root { --paper: #0f1318; --ink: #e6eaef;
  --soft: #9aa5b1; --line: #2d343c; --card: #171c22; --hot: #ff8a80; --ok: #6fd08c;
  --doubt: #e8b339; --old: #3d5a7a; --new: #ff9e64; --null: #2a323b; --bar: #4c97e6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1rem 4rem;
  background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; display: inline; font-weight: 600; }
p { margin: .35rem 0; } a { color: inherit; }
.soft { color: var(--soft); font-size: .9rem; }
.verdict { margin: 1rem 0; padding: .6rem .9rem; background: var(--card);
  border-left: .3rem solid var(--tone); border-radius: .3rem; font-weight: 600; }
.drift { --tone: var(--hot); } .no_drift { --tone: var(--ok); }
.not_enough_data { --tone: var(--doubt); }
.caveat { color: var(--doubt); }
.badge, .hot { color: var(--hot); font-weight: 600; } .badge { font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td:first-child { white-space: normal; min-width: 7rem; }
.bins { width: auto; margin-top: .5rem; }
.feature { border: 1px solid var(--line); border-left: .3rem solid var(--tone);
  border-radius: .3rem; margin: .75rem 0; padding: .6rem .9rem; }
.changed { --tone: var(--hot); } .calm { --tone: var(--line); }
summary { cursor: pointer; display: flex; flex-wrap: wrap; gap: .2rem .75rem;
  align-items: baseline; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary::after { content: "+"; color: var(--soft); margin-left: auto; }
details[open] > summary::after { content: "\\2212"; }
.two { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 1.25rem;
  margin-top: .6rem; font-size: .9rem; }
@media (max-width: 46rem) { .two { grid-template-columns: 1fr; } }
svg { display: block; width: 100%; height: auto; }
.grid { stroke: var(--line); stroke-width: 1; }
.tick { fill: var(--soft); font: 10px system-ui, sans-serif; }
.old { fill: var(--old); }
.new { fill: none; stroke: var(--new); stroke-width: 1.8; }
.line { fill: none; stroke: var(--new); stroke-width: 1.8; stroke-linejoin: round; }
.hit { fill: transparent; }
.null { fill: var(--null); } .within { fill: var(--bar); } .beyond { fill: var(--hot); }
.mean { stroke: var(--soft); stroke-width: 1.5; }
.bound { stroke: var(--ink); stroke-width: 1.5; }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; font-size: .85rem;
  color: var(--soft); padding: 0; margin: 0; list-style: none; }
.key i { display: inline-block; width: .9rem; height: .8rem; border-radius: .1rem;
  margin-right: .35rem; vertical-align: -.1rem; }
.k-old { background: var(--old); } .k-null { background: var(--null); }
.k-new { border: 2px solid var(--new); }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr;
  gap: .15rem 1rem; margin: .25rem 0; font-size: .85rem; }
dt { color: var(--soft); } dd { margin: 0; font-variant-numeric: tabular-nums; }
.scores { align-items: center; }
.scores dd { display: grid; grid-template-columns: 1fr 3.6rem; gap: .6rem;
  align-items: center; text-align: right; }
"""
