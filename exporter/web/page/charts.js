// Lines over the last minutes, drawn by uPlot from what this page has seen itself.

const KEPT_SECONDS = 1800;
const COLORS = ["#3b82f6", "#e0723c", "#1a9e77", "#b5489a", "#a88a00", "#6d6ac7", "#5b7a99", "#c2410c"];

class History {
  constructor() { this.times = []; this.lines = new Map(); }

  add(time, values) {
    this.times.push(time);
    for (const name of Object.keys(values)) {
      if (!this.lines.has(name)) this.lines.set(name, Array(this.times.length - 1).fill(null));
    }
    for (const [name, line] of this.lines) line.push(values[name] ?? null);
    let old = 0;
    while (this.times[old] < time - KEPT_SECONDS) old += 1;
    if (old) {
      this.times.splice(0, old);
      for (const line of this.lines.values()) line.splice(0, old);
    }
  }

  // Lines that are no longer there and have left the picture.
  forget(stays) {
    for (const [name, line] of this.lines) {
      if (!stays(name) && line.every((value) => value == null)) this.lines.delete(name);
    }
  }

  data(wanted) { return [this.times, ...wanted.map((name) => this.lines.get(name) || this.times.map(() => null))]; }
}

class Chart {
  // show: value => text; bands: [upper, lower] pairs of line names, filled between.
  constructor(id, show) { this.id = id; this.show = show; this.plot = null; this.drawn = ""; }

  draw(history, lines, bands = [], label = "") {
    const place = document.getElementById(this.id);
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", label);
    const shape = JSON.stringify([lines, bands, matchMedia("(prefers-color-scheme: dark)").matches]);
    if (shape !== this.drawn) {
      this.plot?.destroy();
      this.plot = new uPlot(this.options(place, lines, bands), history.data(lines), place);
      this.drawn = shape;
    } else {
      this.plot.setData(history.data(lines));
    }
    const width = place.clientWidth;
    if (width && width !== this.plot.width) this.plot.setSize({ width, height: 220 });
  }

  options(place, lines, bands) {
    const css = getComputedStyle(document.documentElement);
    const text = css.getPropertyValue("--quiet"), grid = css.getPropertyValue("--line");
    const edges = new Set(bands.flat());
    const middle = lines.filter((name) => !edges.has(name));
    const color = (name) => COLORS[Math.max(0, edges.has(name)
      ? middle.indexOf(name.replace(/ (lower|upper)$/, "")) : middle.indexOf(name)) % COLORS.length];
    return {
      width: place.clientWidth || 400, height: 220,
      legend: { live: false },
      // An interval is an area; its two edges need no names.
      hooks: { init: [(plot) => plot.root.querySelectorAll(".u-series").forEach((row, i) => {
        if (edges.has(lines[i])) row.style.display = "none";
      })] },
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [0, (high || 1e-6) * 1.1] } },
      axes: [
        { stroke: text, grid: { stroke: grid, width: 1 }, space: 80, values: (_, ticks) => ticks.map(clock) },
        { stroke: text, grid: { stroke: grid, width: 1 }, size: 70, values: (_, ticks) => ticks.map(this.show) },
      ],
      series: [{}, ...lines.map((name) => ({
        label: name, stroke: color(name), width: edges.has(name) ? 0 : 2, spanGaps: false,
        points: { show: false }, value: (_, v) => (v == null ? "–" : this.show(v)),
      }))],
      bands: bands.map(([upper, lower]) => ({
        series: [lines.indexOf(upper) + 1, lines.indexOf(lower) + 1],
        fill: `${color(upper)}33`,
      })),
    };
  }
}
