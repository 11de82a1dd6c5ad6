// Draws a dashboard with Grafana's own components, from its JSON and answers of Prometheus:
// window.drawDashboard({dashboard, answers, from, to, theme}), where `answers` has by panel id
// and ref id what /api/v1/query or query_range returned. Heatmaps and bar charts are plugins
// inside Grafana's server, which npm does not have: of those the frame, the data and the
// units are Grafana's, the cells and bars are ours.
import { Component } from "react";
import { flushSync } from "react-dom";
import { createRoot } from "react-dom/client";
import {
  applyFieldOverrides, cacheFieldDisplayNames, createTheme, dateTime, FieldType, formattedValueToString,
  getFieldDisplayValues, Registry, standardTransformers,
  standardTransformersRegistry, ThemeContext, toDataFrame, transformDataFrame,
} from "@grafana/data";
import { BigValue, GlobalStyles, PanelChrome, TimeSeries, VizRepeater } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { lastValueFrom } from "rxjs";
import "@grafana/react-data-grid/lib/styles.css";
import "uplot/dist/uPlot.min.css";

const ROW = 38, GAP = 8, NARROW = 769;
const HEATMAP_ROWS = 30;
const UNCHANGED = (text) => text;
// What Grafana's plugins start from, before a panel's JSON.
const CUSTOM = {
  timeseries: {
    drawStyle: "line", lineInterpolation: "linear", lineWidth: 1, fillOpacity: 0,
    gradientMode: "none", spanNulls: false, showPoints: "auto", pointSize: 5,
    axisPlacement: "auto", axisColorMode: "text", axisLabel: "", axisCenteredZero: false,
    scaleDistribution: { type: "linear" }, stacking: { mode: "none", group: "A" },
    hideFrom: { legend: false, tooltip: false, viz: false },
    thresholdsStyle: { mode: "off" }, lineStyle: { fill: "solid" },
  },
  table: { align: "auto", cellOptions: { type: "auto" }, inspect: false },
};
const STANDARD = [
  "unit", "min", "max", "decimals", "displayName", "color", "noValue", "links", "mappings",
  "thresholds",
];

const parsed = (text) => Number(text.replace("Inf", "Infinity"));
// As Grafana's panel of time series leaves out what it cannot draw.
const drawable = (value) => (Number.isFinite(value) ? value : null);
const legend = (format, labels) =>
  format
    ? format.replace(/{{\s*(\w+)\s*}}/g, (_, name) => labels[name] ?? "")
    : labels.__name__ ?? (JSON.stringify(labels) === "{}" ? "Value" : JSON.stringify(labels));

function overTime(target, answer) {
  return answer.result.map(({ metric, values }) =>
    toDataFrame({
      refId: target.refId,
      fields: [
        { name: "Time", type: FieldType.time, values: values.map(([t]) => t * 1000), config: {} },
        {
          name: "Value", type: FieldType.number, labels: metric,
          values: values.map(([, v]) => drawable(parsed(v))),
          config: { displayNameFromDS: legend(target.legendFormat, metric) },
        },
      ],
    }),
  );
}

function asTable(target, answer, several) {
  const labels = [...new Set(answer.result.flatMap(({ metric }) => Object.keys(metric)))].sort();
  if (!answer.result.length) return [];
  const column = (name, type, values) => ({ name, type, values, config: {} });
  return [
    toDataFrame({
      refId: target.refId,
      fields: [
        column("Time", FieldType.time, answer.result.map(({ value }) => value[0] * 1000)),
        ...labels.map((name) =>
          column(name, FieldType.string, answer.result.map(({ metric }) => metric[name] ?? ""))),
        column(several ? `Value #${target.refId}` : "Value", FieldType.number,
          answer.result.map(({ value }) => parsed(value[1]))),
      ],
    }),
  ];
}

function fieldConfig(panel) {
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  const custom = { ...CUSTOM[panel.type], ...defaults.custom };
  const thresholds = defaults.thresholds && {
    ...defaults.thresholds,
    steps: defaults.thresholds.steps.map((s) => ({ ...s, value: s.value ?? -Infinity })),
  };
  const color = defaults.color ??
    { mode: panel.type === "timeseries" ? "palette-classic" : "thresholds" };
  return { defaults: { ...defaults, thresholds, color, custom }, overrides };
}

// Grafana's server registers each plugin's properties; here are those that occur.
function registry(config) {
  const property = (path, isCustom) => ({
    id: isCustom ? `custom.${path}` : path, path, name: path, isCustom,
    process: (value) => value, shouldApply: () => true,
  });
  const custom = new Set([
    ...Object.keys(config.defaults.custom),
    ...config.overrides.flatMap((o) => o.properties)
      .filter((p) => p.id.startsWith("custom.")).map((p) => p.id.slice(7)),
  ]);
  return new Registry(() => [
    ...STANDARD.map((name) => property(name, false)),
    ...[...custom].map((name) => property(name, true)),
  ]);
}

async function framesOf(panel, answers, theme) {
  const several = panel.targets.length > 1;
  const raw = panel.targets.flatMap((target) => {
    const answer = answers[target.refId];
    return answer.resultType === "vector"
      ? asTable(target, answer, several)
      : overTime(target, answer);
  });
  const transformed = await lastValueFrom(
    transformDataFrame(panel.transformations ?? [], raw, { interpolate: UNCHANGED }));
  const config = fieldConfig(panel);
  const data = applyFieldOverrides({
    data: transformed, fieldConfig: config, replaceVariables: UNCHANGED, theme,
    timeZone: "utc", fieldConfigRegistry: registry(config),
  });
  cacheFieldDisplayNames(data);
  const values = raw.flatMap(numeric).flatMap((field) => field.values);
  return {
    data: data.filter((frame) => frame.length > 0), config,
    values: values.filter((value) => drawable(value) !== null).length,
  };
}

function Stat({ data, config, panel, width, height, theme }) {
  const values = () => getFieldDisplayValues({
    fieldConfig: config, reduceOptions: panel.options.reduceOptions, data, theme,
    replaceVariables: UNCHANGED, sparkline: panel.options.graphMode !== "none", timeZone: "utc",
  });
  return (
    <VizRepeater
      getValues={values} source={data} renderCounter={0} width={width} height={height}
      orientation={panel.options.orientation} autoGrid
      renderValue={({ value, width: w, height: h, count }) => (
        <BigValue
          value={value.display} count={count} sparkline={value.sparkline} width={w} height={h}
          theme={theme} wideLayout={panel.options.wideLayout}
          colorMode={panel.options.colorMode} graphMode={panel.options.graphMode}
          justifyMode={panel.options.justifyMode} textMode={panel.options.textMode}
        />)}
    />);
}

const numeric = (frame) => frame.fields.filter((f) => f.type === FieldType.number);
const shown = (field, value) => formattedValueToString(field.display(value));

function Heatmap({ data, panel, width, height }) {
  const rows = data.map((frame) => {
    const value = numeric(frame)[0];
    const bound = value.labels?.le;
    return {
      name: value.config.displayNameFromDS, bound: bound === undefined ? null : parsed(bound),
      field: value, cells: new Map(frame.fields[0].values.map((t, i) => [t, value.values[i]])),
    };
  });
  if (panel.targets[0].format === "heatmap") {
    rows.sort((a, b) => a.bound - b.bound);
    // Buckets contain those below them.
    for (let i = rows.length - 1; i > 0; i--)
      for (const [t, v] of rows[i].cells)
        rows[i].cells.set(t, v - (rows[i - 1].cells.get(t) ?? 0));
  }
  const filled = rows.filter((row) => [...row.cells.values()].some((v) => v > 1e-9));
  const times = [...new Set(filled.flatMap((row) => [...row.cells.keys()]))].sort((a, b) => a - b);
  const most = Math.max(...filled.flatMap((row) => [...row.cells.values()]));
  const side = (height - 4) / Math.min(filled.length, HEATMAP_ROWS);
  return (
    <div className="heatmap" style={{ width, height, overflow: "hidden", fontSize: 11 }}>
      {filled.slice(-HEATMAP_ROWS).reverse().map((row) => (
        <div key={row.name} style={{ display: "flex", height: side }}>
          <span style={{ width: 140, lineHeight: `${side}px`, overflow: "hidden", whiteSpace: "nowrap" }}>
            {row.bound === null ? row.name : shown(row.field, row.bound)}
          </span>
          {times.map((t) => (
            <i key={t} style={{
              flex: 1, margin: "1px 0", background: "#ff9830",
              opacity: Math.sqrt(Math.max(row.cells.get(t) ?? 0, 0) / most),
            }} />))}
        </div>))}
    </div>);
}

function Bars({ data, panel, width, height }) {
  const x = data[0].fields.find((f) => f.name === panel.options.xField);
  const bars = numeric(data[0]);
  const most = Math.max(...bars.flatMap((f) => f.values.filter(Number.isFinite)));
  return (
    <div className="bars" style={{ width, height, display: "flex", alignItems: "end", gap: 6, fontSize: 10 }}>
      {x.values.map((name, row) => (
        <div key={row} style={{ flex: 1, minWidth: 0, overflow: "hidden" }}>
          <div style={{ display: "flex", alignItems: "end", height: height - 36 }}>
            {bars.map((f, i) => (
              <i key={f.name} title={f.name} style={{
                flex: 1, background: ["#73bf69", "#f2cc0c", "#5794f2"][i % 3],
                height: `${(100 * (f.values[row] ?? 0)) / most}%`,
              }} />))}
          </div>
          {name}
        </div>))}
    </div>);
}

function Drawn(props) {
  const { data, config, panel, width, height, range, theme } = props;
  if (!data.length && panel.type !== "stat")
    return <div className="no-value">{config.defaults.noValue ?? "No data"}</div>;
  if (panel.type === "stat") return <Stat {...props} />;
  if (panel.type === "heatmap") return <Heatmap {...props} />;
  if (panel.type === "barchart") return <Bars {...props} />;
  if (panel.type === "table")
    return (
      <TableNG
        data={data[0]} width={width} height={height} structureRev={1} fieldConfig={config}
        cellHeight={panel.options.cellHeight} noValue={config.defaults.noValue}
        enableVirtualization={false} contentAwareWidthsEnabled
      />);
  return (
    <TimeSeries
      frames={data} width={width} height={height} timeRange={range} timeZone="utc"
      legend={panel.options.legend} options={panel.options} theme={theme} structureRev={1}
    />);
}

class Guard extends Component {
  state = {};
  static getDerivedStateFromError(error) { return { error }; }
  render() {
    return this.state.error
      ? <div className="failed">{String(this.state.error.stack)}</div>
      : this.props.children;
  }
}

function Panel({ panel, drawn, width, ...rest }) {
  const height = panel.gridPos.h * ROW - GAP;
  return (
    <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
      {(w, h) => (
        <Guard><Drawn panel={panel} {...drawn} width={w} height={h} {...rest} /></Guard>)}
    </PanelChrome>);
}

function Board({ dashboard, drawn, range, theme }) {
  const all = document.documentElement.clientWidth - 2 * GAP;
  const narrow = all < NARROW;
  const unit = (all + GAP) / 24;
  let below = 0;
  const places = dashboard.panels.map((panel) => {
    const { x, y, w, h } = panel.gridPos;
    if (!narrow) return { left: x * unit, top: y * ROW, width: w * unit - GAP };
    below += h * ROW;
    return { left: 0, top: below - h * ROW, width: all };
  });
  const bottom = Math.max(...dashboard.panels.map((p, i) => places[i].top + p.gridPos.h * ROW));
  return (
    <div style={{ padding: GAP }}>
      <h3>{dashboard.title}</h3>
      <div style={{ position: "relative", height: bottom }}>
        {dashboard.panels.map((panel, i) => (
          <section key={panel.id} data-panel={panel.id} data-values={drawn[panel.id]?.values}
            style={{ position: "absolute", ...places[i] }}>
            {panel.type === "row"
              ? <h5 style={{ lineHeight: `${ROW}px` }}>⌄ {panel.title}</h5>
              : <Panel panel={panel} drawn={drawn[panel.id]} width={places[i].width}
                  range={range} theme={theme} />}
          </section>))}
      </div>
    </div>);
}

window.drawDashboard = async ({ dashboard, answers, from, to, theme: mode }) => {
  const theme = createTheme({ colors: { mode } });
  const range = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: "", to: "" } };
  const drawn = {};
  for (const panel of dashboard.panels)
    if (panel.type !== "row")
      drawn[panel.id] = await framesOf(panel, answers[panel.id], theme);
  const place = document.createElement("div");
  document.body.replaceChildren(place);
  flushSync(() =>
    createRoot(place).render(
      <ThemeContext.Provider value={theme}>
        <GlobalStyles />
        <Board dashboard={dashboard} drawn={drawn} range={range} theme={theme} />
      </ThemeContext.Provider>));
};
standardTransformersRegistry.setInit(() =>
  Object.values(standardTransformers)
    .filter((t, i, all) => all.findIndex((other) => other.id === t.id) === i)
    .map((t) => ({ id: t.id, name: t.name, transformation: async () => t })));
