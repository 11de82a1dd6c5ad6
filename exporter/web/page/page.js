// Asks /api/v1/status every two seconds while somebody looks, and draws what it says.
// With ?model=NAME in its address, the page is about that model alone.

const EVERY_MS = 2000, PATIENCE_MS = 5000, MODELS_DRAWN = 8, SETS_DRAWN = 2;
const PHASES = ["network_in", "queue", "compute_input", "compute_infer", "compute_output", "network_out"];

const rates = new History();
const latencies = new Map();
const rateChart = new Chart("rate", (v) => quantity(v, "/s"));
const latencyChart = new Chart("latency", (v) => seconds(v).replace(/\.0+ |(\.\d*[1-9])0+ /, "$1 "));
const scoreChart = new Chart("scores", quantity, (low, high) => [(low ?? 0) - 0.02, (high ?? 1) + 0.02]);
const ONE = new URLSearchParams(location.search).get("model");
const PAST_SECONDS = 15;
// The documents of the last seconds, oldest first.
let past = [];
// One document of each read of the server's counters, the first at least PAST_SECONDS before the last.
let reads = [];
let last = null;

function key(entry) { return `${entry.model} ${entry.version}`; }

// The part of a status document that is about the one model, and about the server.
function about(found) {
  if (ONE === null) return found;
  const objectives = new Set(found.objectives.filter((o) => o.models.includes(ONE)).map((o) => o.slo));
  // Neither power nor control charts are known by model.
  const isOf = (e) => ("model" in e ? e.model === ONE : "slo" in e ? objectives.has(e.slo) : "run" in e);
  const isItsEvent = (e) => (e.model ? e.model === ONE : /server/.test(e.event) || e.detail.split(/[ ,:]+/).includes(ONE));
  const named = (name) => name.split(":")[0] === ONE;
  const comparisons = (found.comparisons || []).filter((c) => named(c.champion) || named(c.challenger));
  const subjects = new Set([found.server.product || "The server", ...objectives, ...names(comparisons, "comparison"), ...names(found.collectors, "collector")]);
  const isItsFinding = (f) => f.model === ONE || (f.subject !== f.model && subjects.has(f.subject));
  return {
    ...found,
    findings: found.findings.filter(isItsFinding),
    models: found.models.filter(isOf),
    probes: found.probes.filter(isOf),
    drift: (found.drift || []).filter(isOf),
    events: found.events.filter(isItsEvent),
    comparisons,
    series: Object.fromEntries(Object.entries(found.series).map(([name, entries]) => [name, entries.filter(isOf)])),
  };
}

// Orders names of models: those that do not serve first.
function byWrong(found, name) {
  const wrong = new Set(found.models.filter((m) => !["SERVING", "UNKNOWN"].includes(m.state)).map(name));
  return (a, b) => wrong.has(b) - wrong.has(a);
}

function noteRead(found) {
  const at = found.collectors.find((c) => c.collector === "statistics")?.last_success_timestamp_seconds;
  if (at == null || at === reads.at(-1)?.at) return;
  // The clock was set back: rates over a jump are none.
  if (at < reads.at(-1)?.at) reads.length = 0;
  reads.push({ found, at });
  while (reads.length > 2 && reads[1].at <= at - PAST_SECONDS) reads.shift();
}

// Counters move when the sidecar reads them, not when this page asks: rates are over the time between two reads.
// Until this page has seen two, they are those that the sidecar recorded last.
function throughput(found, time) {
  noteRead(found);
  const elapsed = reads.length > 1 ? reads.at(-1).at - reads[0].at : 0;
  const risen = elapsed ? rise(found, reads[0].found, "triton_requests_total").filter((e) => e.rise !== null) : [];
  const by = elapsed ? {} : rates.latest(time);
  for (const e of risen) by[e.model] = (by[e.model] || 0) + e.rise / elapsed;
  if (elapsed) {
    rates.add(time, by);
    rates.forget((model) => model in by);
  }
  const wrongFirst = byWrong(found, (m) => m.model);
  const busiest = [...rates.lines.keys()].sort((a, b) => wrongFirst(a, b) || (by[b] || 0) - (by[a] || 0))
    .slice(0, MODELS_DRAWN).sort().sort(wrongFirst);
  rateChart.draw(rates, busiest, [], `Requests a second: ${busiest.map((m) => `${m} ${quantity(by[m])}`).join(", ") || "none"}`);
  const bad = sum(risen.filter((e) => e.outcome !== "success"), "rise");
  const all = sum(risen, "rise");
  const perSecond = Object.values(by);
  return perSecond.length ? { perSecond: perSecond.reduce((a, b) => a + b, 0), failing: all ? bad / all : null, by } : null;
}

function quantilesOf(found, model) {
  const production = (found.series.triton_request_latency_seconds || []).filter((e) => key(e) === model);
  if (production.length) return { source: "production", entries: production };
  const probes = (found.series.triton_probe_latency_seconds || []).filter((e) => key(e) === model);
  const grpc = probes.filter((e) => e.protocol === "grpc");
  return grpc.length ? { source: "our probes over gRPC", entries: grpc } : { source: "our probes over HTTP", entries: probes };
}

function latency(found, time) {
  // Those with production's latency before those that only probes have asked.
  const [used, probed] = ["request", "probe"].map((of) => (found.series[`triton_${of}_latency_seconds`] || []).map(key).sort());
  const models = [...new Set([...used, ...probed])].sort(byWrong(found, key));
  const select = document.getElementById("model");
  if (JSON.stringify(models) !== select.dataset.models) {
    const chosen = select.value;
    select.replaceChildren(...models.map((m) => make("option", { value: m }, m)));
    if (models.includes(chosen)) select.value = chosen;
    select.dataset.models = JSON.stringify(models);
  }
  for (const model of models) {
    if (!latencies.has(model)) latencies.set(model, new History());
    latencies.get(model).add(time, { ...pointsOf(found, model), ...scoresOf(found, model) });
  }
  for (const gone of latencies.keys()) if (!models.includes(gone)) latencies.delete(gone);
  drawLatency(found);
}

function boundsOf(found, model, quantile) {
  const ci = (found.series.triton_request_latency_ci_seconds || []).filter((e) => key(e) === model && e.quantile === quantile);
  return { lower: labelled(ci, { bound: "lower" })[0]?.value, upper: labelled(ci, { bound: "upper" })[0]?.value };
}

// As minimum_count() in exporter/histograms/quantiles.py, from the median up.
function noInterval(found, { model, version, quantile, value }) {
  const worth = labelled(found.series.triton_request_latency_effective_samples || [], { model, version, quantile })[0]?.value;
  const needed = Math.ceil(Math.log(0.025) / Math.log(quantile));
  if (value == null) return `unknown: fewer than ${needed} requests`;
  return worth ? `unknown: ${Math.floor(worth)} of ${needed} independent requests` : UNKNOWN;
}

// Whether a quantile of production has its 95 % interval.
function hasInterval(found) {
  const known = new Set((found.series.triton_request_latency_ci_seconds || []).map((e) => `${key(e)} ${e.quantile}`));
  return (e) => known.has(`${key(e)} ${e.quantile}`);
}

function pointsOf(found, model) {
  const points = {};
  const { source, entries } = quantilesOf(found, model);
  for (const e of entries) {
    const { lower, upper } = source === "production" ? boundsOf(found, model, e.quantile) : {};
    Object.assign(points, { [named(e.quantile)]: e.value, [`${named(e.quantile)} lower`]: lower, [`${named(e.quantile)} upper`]: upper });
  }
  return points;
}

// The one score of each golden data set, with its interval and baseline; the recorded history has the same names.
function scoresOf(found, model) {
  const points = {};
  for (const score of headlineScores((found.series.triton_golden_score_ratio || []).filter((e) => key(e) === model)).slice(0, SETS_DRAWN)) {
    const of = (metric, labels = {}) => labelled(found.series[metric] || [],
      { model: score.model, version: score.version, dataset: score.dataset, metric: score.metric, ...labels })[0]?.value;
    const name = `${score.dataset} ${score.metric}`;
    points[name] = score.value;
    points[`${name} baseline`] = of("triton_golden_baseline_ratio");
    for (const bound of ["lower", "upper"]) points[`${name} ${bound}`] = of("triton_golden_score_ci_ratio", { bound });
  }
  return points;
}

function drawScores(found, model, history) {
  const scores = Object.keys(scoresOf(found, model)).filter((name) => history?.lines.has(name));
  document.getElementById("scores").parentElement.hidden = !scores.length;
  if (!scores.length) return;
  const middle = scores.filter((name) => !/ (baseline|lower|upper)$/.test(name));
  const now = middle.map((name) => `${name} ${quantity(history.lines.get(name)?.at(-1))}`);
  const bands = middle.map((n) => [`${n} upper`, `${n} lower`]).filter(([upper]) => scores.includes(upper));
  document.getElementById("scores-caption").textContent = `Golden scores of the same model${bands.length ? ", with 95 % intervals" : ""}`;
  scoreChart.draw(history, scores, bands, `Golden scores of ${model} now: ${now.join(", ")}`);
}

function drawLatency(found) {
  const model = document.getElementById("model").value;
  const history = latencies.get(model);
  if (history && !history.isRecalled) {
    history.isRecalled = true;
    const chosen = found.models.find((m) => key(m) === model);
    if (chosen) recall(history, chosen).then(() => last && drawLatency(last));
  }
  const caption = document.getElementById("latency-caption");
  if (!history) { caption.textContent = "No latency is known yet."; return; }
  const { source, entries } = quantilesOf(found, model);
  const middle = ["p50", "p99"].filter((name) => history.lines.has(name));
  const bands = middle.filter((n) => history.lines.has(`${n} upper`)).map((n) => [`${n} upper`, `${n} lower`]);
  caption.textContent = `${middle.join(" and ")} of ${source}${bands.length ? ", with 95 % intervals" : ""}`;
  latencyChart.draw(history, [...middle, ...bands.flat()], bands,
    `Latency of ${model} now: ${entries.map((e) => `${named(e.quantile)} ${seconds(e.value)}`).join(", ")}`);
  const rows = [...entries].sort((a, b) => a.quantile - b.quantile);
  // The one that people look for is there with what it waits for.
  if (source === "production" && Number(rows.at(-1).quantile) < 0.99) rows.push({ ...rows[0], quantile: "0.99", value: null });
  replace("quantiles", table(`Quantiles of ${model}`, rows, [
    ["quantile", (e) => named(e.quantile)],
    [`latency of ${source}`, (e) => seconds(e.value), "number"],
    ["95 % interval", (e) => {
      const { lower, upper } = boundsOf(found, model, e.quantile);
      return lower == null ? noInterval(found, e) : `${seconds(lower)} – ${seconds(upper)}`;
    }, "number"],
  ]));
  phases(found, model);
  drawScores(found, model, history);
}

function phases(found, model) {
  if (!past.length) return;
  const metric = "triton_request_phase_duration_seconds";
  const sums = rise(found, past[0].found, metric, "sum").filter((e) => key(e) === model);
  const counts = rise(found, past[0].found, metric, "count").filter((e) => key(e) === model);
  const means = PHASES.map((phase, i) => {
    const spent = labelled(sums, { phase })[0]?.rise, number = labelled(counts, { phase })[0]?.rise;
    return { phase, mean: number ? spent / number : null, color: COLORS[i] };
  }).filter((p) => p.mean !== null);
  if (!means.length) { if (!sums.length) replace("phases"); return; }
  const total = sum(means, "mean") || 1;
  const bar = make("div", { class: "bar", role: "img", "aria-label": `Where the time goes: ${means.map((p) => `${p.phase} ${seconds(p.mean)}`).join(", ")}` },
    ...means.map((p) => make("i", { title: `${p.phase} ${seconds(p.mean)}`, style: { width: `${(100 * p.mean) / total}%`, background: p.color } })));
  replace("phases", make("p", { class: "quiet" }, "Mean time of a request by phase over the last seconds: ",
    ...means.flatMap((p) => [make("span", { style: { color: p.color }, "aria-hidden": "true" }, "■"), ` ${p.phase} ${seconds(p.mean)} `])), bar);
}

// Begins a history with what the sidecar has recorded; without it, the page has no past.
async function recall(history, model) {
  const query = model ? `?${new URLSearchParams({ model: model.model, version: model.version })}` : "";
  try {
    const answer = await fetch(`api/v1/history${query}`, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!answer.ok) return;
    const recorded = await answer.json();
    if (recorded.marks) {
      marks = recorded.marks.filter((mark) => ONE === null || mark.kind === "neutral" || mark.text.startsWith(`${ONE} `));
      if (ONE !== null) recorded.lines = ONE in recorded.lines ? { [ONE]: recorded.lines[ONE] } : {};
    }
    history.begin(recorded);
  } catch (problem) {
    console.info(`no recorded history: ${problem.message}`);
  }
}

function named(quantile) { return `p${Number((Number(quantile) * 100).toPrecision(4))}`; }

// The highest quantile up to p99 with an interval, or else that is known, of the model where
// it is worst, and how many models have none.
function slowest(found) {
  const hasIts = hasInterval(found);
  for (const [metric, source] of [["triton_request_latency_seconds", ""], ["triton_probe_latency_seconds", " (probes)"]]) {
    const all = (found.series[metric] || []).filter((e) => Number(e.quantile) <= 0.99);
    const known = all.some(hasIts) ? all.filter(hasIts) : all;
    const highest = Math.max(...known.map((e) => Number(e.quantile)));
    const worst = known.filter((e) => Number(e.quantile) === highest).sort((a, b) => b.value - a.value)[0];
    const silent = Math.max(0, found.models.length - new Set(known.filter((e) => Number(e.quantile) === highest).map(key)).size);
    const slowestOf = found.models.length > 1 ? `, the slowest${silent ? " known" : ""}` : "";
    if (worst) return { label: `${named(worst.quantile)} of ${worst.model}${slowestOf}${source}${silent ? `; ${silent} unknown` : ""}`, worst, doubted: !source && !hasIts(worst) };
  }
  const traced = found.collectors.some((c) => c.collector === "traces") || found.target.kind === "openai";
  return { label: traced ? "latency: too few requests" : "latency: needs the collector traces", worst: null };
}

// Green only where at least one model was judged and every one is well.
function servingTile(found, tile) {
  const judged = found.models.filter((m) => m.state !== "UNKNOWN");
  const well = judged.filter((m) => m.state === "SERVING").length;
  const unwell = names(judged.filter((m) => m.state !== "SERVING"), "state")
    .map((state) => `${judged.filter((m) => m.state === state).length} ${state}`);
  const unproven = found.models.length - judged.length;
  const notes = [...unwell, ...(unproven ? [`${unproven} unproven`] : [])];
  const state = well < judged.length ? "bad" : judged.length && !unproven ? "good" : "";
  return tile([judged.length ? `of ${judged.length} models SERVING` : "models SERVING", ...notes].join("; "), judged.length ? well : UNKNOWN, state);
}

function tiles(found, traffic) {
  const { label, worst, doubted } = slowest(found);
  const least = [...(found.series.triton_slo_error_budget_remaining_ratio || [])].sort((a, b) => a.value - b.value)[0];
  const watts = [...(found.series.triton_gpu_power_watts || []), ...(found.series.triton_host_power_watts || [])];
  const tile = (label, text, state = "") => make("div", { class: "tile" }, make("b", { class: state }, text), make("span", {}, label));
  // An OpenAI-compatible server counts no requests by their outcome.
  const waiting = found.series.triton_backend_requests_waiting || [], cache = found.series.triton_backend_kv_cache_usage_ratio || [];
  const load = found.target.kind === "openai" ? [
    tile("requests wait in the backend", waiting.length ? quantity(sum(waiting)) : UNKNOWN),
    tile("of the KV cache in use", cache.length ? percent(Math.max(...cache.map((e) => e.value))) : UNKNOWN),
  ] : [
    tile("production requests per second", traffic ? quantity(traffic.perSecond) : UNKNOWN),
    tile("of them fail", traffic?.failing == null ? UNKNOWN : percent(traffic.failing), traffic?.failing > 0.01 ? "bad" : ""),
  ];
  const shown = [
    servingTile(found, tile),
    ...load,
    tile(label, worst ? seconds(worst.value) : UNKNOWN, doubted ? "quiet" : ""),
  ];
  if (least) {
    shown.push(tile(`error budget left of ${least.slo}, the lowest${least.value < 0 ? `; ${overBudget(least.value)}` : ""}`, percent(Math.max(0, least.value)),
      least.value <= 0 ? "bad" : least.value < 0.25 ? "warn" : "good"));
  }
  if (watts.length) shown.push(tile(`power (${names(watts, "source").map(powerSource).join(", ")})`, quantity(sum(watts), "W")));
  replace("tiles", ...shown);
}

function truth(found) {
  const probes = new Map();
  for (const p of found.probes) {
    const name = key(p);
    if (!probes.has(name)) probes.set(name, []);
    probes.get(name).push(p);
  }
  const cell = (m, protocol) => {
    const all = (probes.get(key(m)) || []).filter((p) => p.protocol === protocol);
    if (!all.length) return make("span", { class: "quiet" }, "–");
    return make("span", {}, ...all.flatMap((p, i) => [
      ...(i ? [make("br")] : []),
      make("span", { class: p.outcome === "ok" ? fine(m) : "bad", title: p.detail || "" }, `${all.length > 1 ? `${p.probe} ` : ""}${p.outcome}`),
      make("span", { class: "quiet" }, p.duration_seconds == null ? "" : ` ${seconds(p.duration_seconds)}`)]));
  };
  // Nothing of a model that is not well is green.
  const fine = (m) => (m.state === "SERVING" ? "good" : "");
  const answer = (m, value) => (value ? make("span", { class: fine(m) }, "yes") : word(value, "", "no"));
  const serving = found.models.filter((m) => m.serving).length;
  return [found.models.length ? `${serving} of ${found.models.length} models answered their latest probes` : "no models are known",
    note("Ready is reported by the server. Serving is measured: the model answered an inference request correctly."),
    table("Readiness and probes by model", found.models, [
      ["model", (m) => m.model], ["version", (m) => m.version],
      ["ready", (m) => answer(m, m.ready)], ["serving", (m) => answer(m, m.serving)],
      ["gRPC", (m) => cell(m, "grpc")], ["HTTP", (m) => cell(m, "http")], ["detail", (m) => saidTo(found, m) || m.reason, "detail"],
    ])];
}

function draw(found) {
  const time = Date.now() / 1000;
  document.getElementById("version").textContent = found.tritonwatch.version;
  if (ONE !== null) {
    replace("subject", make("a", { href: "." }, "all models"), ` › ${ONE}${found.models.length || !found.server.up ? "" : ": Triton holds no such model"}`);
  }
  const state = found.server.up == null ? (found.findings.length ? "not known" : "starting") : found.server.up ? (found.server.ready ? "up and ready" : "up, not ready") : "down";
  document.getElementById("server").replaceChildren(
    `${found.server.product || "The server"} ${found.server.version || "(version unknown)"} at ${found.target.url || found.target.grpc}: `,
    found.server.up == null ? make("span", { class: "quiet" }, state) : word(found.server.up && found.server.ready, state, state),
    found.truncated.length ? ` Some series are not shown of ${found.truncated.join(", ")}.` : "");
  const traffic = throughput(found, time);
  document.getElementById("rate").parentElement.hidden = found.target.kind === "openai";
  attention(found);
  tiles(found, traffic);
  headlines(found, traffic?.by);
  latency(found, time);
  sections(found);
  noteMarks(found, time);
  last = found;
  past = [...past.filter((one) => one.time > time - PAST_SECONDS), { found, time }];
}

// A change of state since the last document is a mark, too.
function noteMarks(found, time) {
  const before = new Map((last?.models || []).map((m) => [key(m), m.state]));
  for (const m of found.models) {
    const was = before.get(key(m));
    if (was && was !== m.state) marks.push({ at: time, kind: m.state === "SERVING" ? "good" : "bad", text: `${key(m)}: ${was} to ${m.state}` });
  }
  const latest = marks.filter((mark) => mark.at > time - RECORDED_SECONDS).slice(-LISTED).reverse();
  document.getElementById("marks").textContent = latest.length
    ? `Dashed: ${latest.map((mark) => `${moment(mark.at)} ${mark.text}`).join("; ")}` : "";
}

async function look() {
  const stale = document.getElementById("stale");
  try {
    const answer = await fetch("api/v1/status", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    draw(about(await answer.json()));
    stale.hidden = true;
  } catch (problem) {
    const since = past.length ? clock(past.at(-1).time) : "the beginning";
    stale.textContent = `The sidecar cannot be reached (${problem.message}); what is shown is from ${since}.`;
    stale.hidden = false;
  }
}

async function watch() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((resume) => setTimeout(resume, EVERY_MS));
  }
}

recall(rates);
document.getElementById("unfold").addEventListener("click", unfold);
document.addEventListener("click", openTarget);
showUnfolded();
document.getElementById("model").addEventListener("change", () => last && drawLatency(last));
watch();
