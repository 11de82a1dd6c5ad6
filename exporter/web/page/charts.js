// Lines over the last hours, drawn by uPlot: what the sidecar recorded, then what this page saw.

const KEPT_SECONDS = 1800, RECORDED_SECONDS = 6 * 3600, LEAST_SECONDS = 60;
const MARK_COLORS = { good: "--good", bad: "--bad", neutral: "--quiet" };
let marks = [];
const COLORS = ["#3b82f6", "#e0723c", "#1a9e77", "#b5489a", "#a88a00", "#6d6ac7", "#5b7a99", "#c2410c"];

class History {
  constructor() { this.times = []; this.lines = new Map(); this.kept = KEPT_SECONDS; }

  add(time, values) {
    this.times.push(time);
    for (const name of Object.keys(values)) {
      if (values[name] != null && !this.lines.has(name)) this.lines.set(name, Array(this.times.length - 1).fill(null));
    }
    for (const [name, line] of this.lines) line.push(values[name] ?? null);
    let old = 0;
    while (this.times[old] < time - this.kept) old += 1;
    if (old) {
      this.times.splice(0, old);
      for (const line of this.lines.values()) line.splice(0, old);
    }
  }

  // What was recorded before the first point of this page.
  begin(recorded) {
    this.kept = RECORDED_SECONDS;
    const count = recorded.times.filter((time) => !this.times.length || time < this.times[0]).length;
    const past = Array(count).fill(null);
    const lines = new Set([...this.lines.keys(), ...Object.keys(recorded.lines)]);
    for (const name of lines) {
      const now = this.lines.get(name) || Array(this.times.length).fill(null);
      this.lines.set(name, [...(recorded.lines[name] || past).slice(0, count), ...now]);
    }
    this.times = [...recorded.times.slice(0, count), ...this.times];
  }

  // The values of the last minute's last point.
  latest(time) {
    if (!(this.times.at(-1) > time - LEAST_SECONDS)) return {};
    return Object.fromEntries([...this.lines].map(([name, line]) => [name, line.at(-1)]).filter(([, value]) => value != null));
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
  // show: value => text; range: lowest and highest value => ends of the axis.
  constructor(id, show, range = (_, high) => [0, (high || 1e-6) * 1.1]) {
    this.id = id; this.show = show; this.range = range; this.plot = null; this.drawn = ""; this.isZoomed = false;
    // A chart beside it that comes or goes leaves it another width.
    new ResizeObserver(([{ target: { clientWidth: width } }]) => width && this.plot?.setSize({ width, height: 220 }))
      .observe(document.getElementById(id));
  }

  // bands: [upper, lower] pairs of line names, filled between.
  draw(history, lines, bands = [], label = "") {
    const place = document.getElementById(this.id);
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", label);
    const shape = JSON.stringify([lines, bands, matchMedia("(prefers-color-scheme: dark)").matches]);
    if (shape !== this.drawn) {
      this.plot?.destroy();
      this.plot = new uPlot(this.options(place, lines, bands), history.data(lines), place);
      this.drawn = shape;
      this.isZoomed = false;
      // As uPlot, which then shows everything.
      this.plot.over.addEventListener("dblclick", () => { this.isZoomed = false; });
    } else {
      this.plot.setData(history.data(lines));
    }
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
      hooks: { draw: [drawMarks], setSelect: [({ select }) => { this.isZoomed = select.width > 0; }], init: [(plot) => plot.root.querySelectorAll(".u-series").forEach((row, i) => {
        if (edges.has(lines[i])) row.style.display = "none";
      })] },
      scales: { x: { auto: () => !this.isZoomed, range: (_, from, to) => [Math.min(from ?? Infinity, to - LEAST_SECONDS), to] }, y: { range: (_, low, high) => this.range(low, high) } },
      axes: [
        { stroke: text, grid: { stroke: grid, width: 1 }, space: 80, values: (_, ticks) => ticks.map(clock) },
        { stroke: text, grid: { stroke: grid, width: 1 }, size: 70, values: (_, ticks) => ticks.map((tick) => this.show(tick)) },
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

// A dashed line where a model's state changed, a run began or ended, or the configuration was read.
function drawMarks(plot) {
  const { ctx, bbox } = plot, css = getComputedStyle(document.documentElement);
  ctx.save();
  ctx.setLineDash([4, 4]);
  for (const { at, kind } of marks) {
    const x = Math.round(plot.valToPos(at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = css.getPropertyValue(MARK_COLORS[kind]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
