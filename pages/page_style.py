"""The one style of all reports: light, dark and on paper, from a phone's width up."""

from __future__ import annotations

from typing import Final

_LIGHT: Final = """--paper: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d8dee4;
  --card: #f6f8fa; --bad: #b3261e; --good: #1a7037; --note: #8a5a00; --doubt: #5b4bb5;
  --info: #0a5fb4; --c0: #2f7fd1; --c1: #c4501b; --c2: #2b8a57; --c3: #7b56c2;
  --c4: #a8830c; --c5: #8c959f;"""
_DARK: Final = """--paper: #0f1318; --ink: #e6eaef; --soft: #9aa5b1; --line: #2d343c;
  --card: #171c22; --bad: #ff8a80; --good: #6fd08c; --note: #e8b339; --doubt: #b3a6ff;
  --info: #7db8ff; --c0: #6aaef5; --c1: #f08a5d; --c2: #63c992; --c3: #b49cf0;
  --c4: #dcbc4f; --c5: #6e7781;"""

STYLE: Final = (
    f":root {{ color-scheme: light dark; {_LIGHT} }}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}"
    """
svg.plot { --room: min(var(--left), 50%); display: block; overflow: visible;
  margin: 1rem 0 44px var(--room); width: calc(100% - var(--room) - 12px); }
.plot svg { overflow: visible; }
.plot path { vector-effect: non-scaling-stroke; }
.plot text { font-size: 12px; fill: var(--soft); }
.plot .said { fill: var(--ink); paint-order: stroke; stroke: var(--paper);
  stroke-width: 3px; }
.plot .grid { stroke: var(--line); stroke-width: 1; fill: none; }
.plot .mark { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 5 4; fill: none; }
.plot .line { stroke: var(--series); stroke-width: 1.8; fill: none;
  stroke-linejoin: round; }
.plot .area, .plot .band { fill: var(--series); fill-opacity: .3; }
.plot .dot { stroke: var(--series); stroke-width: 5; stroke-linecap: round; }
.fill { fill: var(--series); }
.plot .tip { fill: transparent; }
.c0 { --series: var(--c0); } .c1 { --series: var(--c1); } .c2 { --series: var(--c2); }
.c3 { --series: var(--c3); } .c4 { --series: var(--c4); } .c5 { --series: var(--c5); }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 4rem;
  background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3, h4 { font-size: 1rem; margin: 1.25rem 0 .5rem; }
p { margin: .35rem 0; }
.soft { color: var(--soft); font-size: .9rem; }
.good { --tone: var(--good); } .bad { --tone: var(--bad); } .note { --tone: var(--note); }
.doubt { --tone: var(--doubt); } .info { --tone: var(--info); }
.verdict { margin: 1rem 0 .5rem; padding: .6rem .9rem; background: var(--card);
  border-left: .3rem solid var(--tone); border-radius: .3rem; font-weight: 600; }
.card { border: 1px solid var(--line); border-left: .3rem solid var(--tone);
  border-radius: .3rem; padding: .6rem .9rem; }
.card strong { display: block; }
.badge { color: var(--tone); font-size: .75rem; font-weight: 700; letter-spacing: .04em;
  text-transform: uppercase; }
.id { color: var(--soft); font: .8rem ui-monospace, monospace; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  gap: .6rem; margin: 1rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--card); border-radius: .3rem; padding: .5rem .8rem; }
.tiles b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
figure { display: flow-root; margin: 1rem 0; }
figcaption { font-weight: 600; font-size: .9rem; }
.csv { color: var(--soft); font-size: .8rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; vertical-align: top; }
th { white-space: normal; overflow-wrap: normal; vertical-align: bottom; }
th.word, td.word { text-align: left; }
td.word { white-space: normal; overflow-wrap: normal; min-width: 5rem; }
td.word:first-child { min-width: 9rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .1rem 1rem;
  margin: .5rem 0; font-size: .85rem; }
dt { color: var(--soft); } dd { margin: 0; font-variant-numeric: tabular-nums; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .3rem; } }
details { margin-top: .75rem; } summary { cursor: pointer; }
.shares { margin: .9rem 0; } .shares p { margin: .1rem 0; }
.shares svg { display: block; width: 100%; height: 1.4rem; border-radius: .25rem; }
.key { display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: .85rem;
  color: var(--soft); padding: 0; margin: .2rem 0 0; list-style: none; }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem;
  margin-right: .35rem; vertical-align: -.1rem; background: var(--series); }
@media screen and (max-width: 40rem) {
  .plot .second { display: none; }
  thead { display: none; } tbody, tr, td { display: block; }
  tr { border-bottom: 2px solid var(--line); padding: .4rem 0; }
  table td, table td.word { display: flex; gap: 1rem; justify-content: space-between;
    white-space: normal; overflow-wrap: anywhere; min-width: 0; text-align: right;
    border: 0; padding: .1rem 0; }
  table td:empty { display: none; }
  table td::before { content: attr(data-head); color: var(--soft); text-align: left;
    flex: none; max-width: 45%; }
  table td:first-child { font-weight: 600; } }
@media print { body { max-width: none; padding: 0; font-size: 11pt; }
  .csv { display: none; }
  .scroll { overflow: visible; } td, th { white-space: normal; }
  details::details-content { content-visibility: visible; block-size: auto; }
  figure, tr, .card, .shares, .tiles { break-inside: avoid; }
  * { print-color-adjust: exact; } }
"""
)
