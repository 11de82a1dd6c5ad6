"use strict";
// Numbers as people read them, and elements made of text alone: nothing that a server
// names itself is ever taken for markup.

const UNKNOWN = "unknown";

function seconds(value) {
  if (value == null || Number.isNaN(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3) return `${(value * 1e6).toPrecision(3)} µs`;
  if (size < 1) return `${(value * 1e3).toPrecision(3)} ms`;
  return `${value.toPrecision(3)} s`;
}

function quantity(value, unit = "") {
  if (value == null || Number.isNaN(value)) return UNKNOWN;
  const digits = Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
  const text = Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-6)
    ? value.toExponential(2) : Number(digits).toLocaleString("en", { maximumSignificantDigits: 6, useGrouping: false });
  return unit ? `${text} ${unit}` : text;
}

function percent(value) {
  if (value == null || Number.isNaN(value)) return UNKNOWN;
  // As percent() in pages/units.py: 99.953 % is not 100 %.
  const rest = 100 * (Math.min(Math.abs(value), Math.abs(1 - value)) || 1);
  if (rest < 1e-4) return value > 0.5 ? "> 99.9999 %" : "< 0.0001 %";
  const decimals = Math.min(Math.max(2 - Math.floor(Math.log10(rest)), 0), 4);
  return `${Number((value * 100).toFixed(decimals))} %`;
}

// Of day, in seconds since 1970.
function clock(time) { return new Date(time * 1000).toLocaleTimeString([], { hourCycle: "h23" }); }

// The time of day, with the date where it was another day.
function moment(time) {
  if (time == null) return UNKNOWN;
  const at = new Date(time * 1000), isToday = at.toDateString() === new Date().toDateString();
  return isToday ? clock(time) : `${at.toLocaleDateString()} ${clock(time)}`;
}

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name === "style") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else element.setAttribute(name, value);
  }
  element.append(...children.map((c) => (c instanceof Node ? c : document.createTextNode(String(c)))));
  return element;
}

function word(value, yes, no) {
  if (value == null) return make("span", { class: "quiet" }, UNKNOWN);
  return make("span", { class: value ? "good" : "bad" }, value ? yes : no);
}

function overBudget(left) { return `${quantity(1 - left)} times over budget`; }

// What is left of an error budget: 0 % of one that was overspent, and by how much.
function budgetLeft(value) { return value < 0 ? `0 %, ${overBudget(value)}` : percent(value); }

// wanted: columns, as [title, row => cell, "number"?]; details only where there are any. The roles stay where a phone shows each row as a block.
function table(caption, rows, wanted) {
  const columns = wanted.filter(([, cell, kind]) => kind !== "detail" || rows.some(cell));
  const head = columns.map(([title, , kind]) => make("th", { scope: "col", role: "columnheader", class: kind || "" }, title));
  const body = rows.map((row) => make("tr", { role: "row" }, ...columns.map(([title, cell, kind]) =>
    make("td", { role: "cell", class: kind || "", "data-head": title }, cell(row) ?? ""))));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", { role: "table" }, make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...head)),
      make("tbody", { role: "rowgroup" }, ...body)), ...(rows.length ? [csv(caption)] : []));
}

// Downloads the table that it is beside, with the cells as they are shown.
function csv(caption) {
  const link = make("a", { class: "csv", href: "#", download: `${caption}.csv`, "aria-label": `${caption} as CSV` }, "CSV");
  // A spreadsheet would run a name that begins like a formula.
  const cell = (e) => `"${e.innerText.replace(/"/g, '""').replace(/^[=@+-](?!\d[\d.]*$)/, "'$&")}"`;
  link.addEventListener("click", () => {
    const lines = [...link.parentElement.querySelectorAll("tr")].map((row) => [...row.children].map(cell).join(","));
    link.href = `data:text/csv;charset=utf-8,${encodeURIComponent(`${lines.join("\r\n")}\r\n`)}`;
    // By its address the keyboard finds it again when the section is redrawn.
    setTimeout(() => { link.href = "#"; });
  });
  return link;
}

// A table with its caption above it.
function captioned(caption, rows, columns) {
  return make("div", {}, make("h3", {}, caption), table(caption, rows, columns));
}

function replace(id, ...children) {
  const place = document.getElementById(id);
  keeping(place, () => place.replaceChildren(...children));
}

// Redraws a place; keyboard focus and sideways scrolling stay with what has the same name afterwards.
function keeping(place, redraw) {
  const name = (e) => [e.tagName, e.closest("[id]")?.id, e.getAttribute("aria-label"), e.getAttribute("href")].join(" ");
  const before = document.activeElement, isInside = before !== place && place.contains(before);
  const wanted = isInside ? name(before) : "";
  const scrolled = new Map([...place.querySelectorAll(".scroll")].map((e) => [name(e), e.scrollLeft]));
  redraw();
  for (const e of place.querySelectorAll(".scroll")) e.scrollLeft = scrolled.get(name(e)) || 0;
  if (!isInside || document.activeElement === before) return;
  [...place.querySelectorAll("a, summary, [tabindex]")].find((e) => name(e) === wanted)?.focus({ preventScroll: true });
}

function sum(entries, key = "value") {
  return entries.reduce((total, entry) => total + entry[key], 0);
}

function labelled(entries, labels) {
  return entries.filter((e) => Object.entries(labels).every(([k, v]) => e[k] === v));
}

function names(entries, label) {
  return [...new Set(entries.map((e) => e[label]))].sort();
}

// The rise of a counter between two documents, by the labels that identify it; null
// where it was not there before or went backwards (the server was restarted).
function rise(now, before, metric, key = "value") {
  const identity = ({ value, sum: _s, count, ...labels }) => JSON.stringify(labels);
  const old = new Map((before.series[metric] || []).map((e) => [identity(e), e]));
  return (now.series[metric] || []).map((entry) => {
    const from = old.get(identity(entry));
    const change = from === undefined ? null : entry[key] - from[key];
    return { ...entry, rise: change === null || change < 0 ? null : change };
  });
}
