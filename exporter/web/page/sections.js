// Each section is one line until opened, and null where its feature is not configured.

const SECTIONS = {
  "Does it really serve?": truth, "Are the answers correct?": golden, "Service level objectives": slos,
  "Streamed answers": streamed, Drift: drift, Comparisons: comparisons, "Energy and cost": energy,
  "Load and chaos runs": runs, "Recent events": events, "What this sidecar does": collectors,
};
// A browser that blocks the data of sites has no storage.
const kept = (() => { try { return sessionStorage; } catch { return {}; } })();
let isUnfolded = kept.unfolded === "yes";

function anchor(title) { return title.toLowerCase().replace(/[^a-z]+/g, "-").replace(/-$/, ""); }

function note(text) { return make("p", { class: "quiet" }, text); }

function sections(found) {
  const wrong = new Set(found.findings.map((f) => f.section));
  // Models come with the worst first.
  const worst = (found.findings.find((f) => f.state && f.state === found.models[0]?.state) || found.findings[0])?.section;
  const links = ["Models", "Latency and traffic"].map((title) => make("a", { href: `#${anchor(title)}` }, title));
  for (const [title, content] of Object.entries(SECTIONS)) {
    const shown = content(found), isWrong = wrong.has(title);
    fold(title, shown, isWrong, title === worst);
    if (shown) links.push(make("a", { href: `#${anchor(title)}`, class: isWrong ? "bad" : "" }, title));
  }
  replace("contents", ...links.flatMap((link) => [link, " "]));
}

// The section of the worst finding opens when it is found; what a reader opened or closed stays so.
function fold(title, shown, isWrong, isWorst) {
  const id = anchor(title);
  let part = document.getElementById(id);
  if (!part) {
    part = make("details", { id, ...(isUnfolded || location.hash === `#${id}` ? { open: "" } : {}) },
      make("summary", {}, make("h2", {}, title), " ", make("span")), make("div", { id: `${id}-content` }));
    document.getElementById("sections").append(part);
  }
  part.hidden = !shown;
  if (!shown) return;
  const [brief, ...content] = shown;
  if (isWorst && part.dataset.worst !== "yes") part.open = true;
  part.dataset.worst = isWorst ? "yes" : "no";
  part.className = isWrong ? "wrong" : "";
  part.querySelector("summary span").textContent = brief;
  replace(`${id}-content`, ...content);
}

function unfold() {
  isUnfolded = !isUnfolded;
  kept.unfolded = isUnfolded ? "yes" : "no";
  showUnfolded();
}

function showUnfolded() {
  document.getElementById("unfold").textContent = isUnfolded ? "Fold all" : "Unfold all";
  for (const part of document.querySelectorAll("details")) part.open = isUnfolded;
}

// A link to a section opens it.
function openTarget({ target }) {
  const link = target.closest("a[href^='#']"), part = link && document.getElementById(link.hash.slice(1));
  if (part?.tagName === "DETAILS") part.open = true;
}

// One row for each model version whose streamed answers were traced.
function streamed(found) {
  const first = found.series.triton_request_first_response_latency_seconds || [];
  if (!first.length) return null;
  const models = first.filter((e, i) => first.findIndex((other) => key(other) === key(e)) === i);
  const cell = (what, quantile) => (model) => {
    const of = (suffix, labels) => labelled(found.series[`triton_request_${what}_latency_${suffix}`] || [],
      { model: model.model, version: model.version, quantile, ...labels })[0]?.value;
    const lower = of("ci_seconds", { bound: "lower" }), upper = of("ci_seconds", { bound: "upper" });
    return make("span", {}, seconds(of("seconds")),
      ...(lower == null || upper == null ? [] : [make("span", { class: "quiet" }, ` ${seconds(lower)} – ${seconds(upper)}`)]));
  };
  const responses = (model) => {
    const all = labelled(found.series.triton_request_responses || [], { model: model.model, version: model.version })[0];
    return all?.count ? quantity(all.sum / all.count) : UNKNOWN;
  };
  const one = (name, labels) => (model) => labelled(found.series[name] || [], { model: model.model, version: model.version, ...labels })[0]?.value;
  const joules = (m) => labelled(found.series.triton_token_energy_joules || [], { model: m.model, version: m.version, basis: "full" })
    .map((e) => quantity(1000 * e.value) + shareError(found, e)).find((text) => text.includes("±")) || NO_FIGURE;
  const cache = one("triton_backend_kv_cache_usage_ratio", {});
  const waiting = one("triton_backend_requests_waiting", {});
  return [`Traced models: ${listed(names(models, "model"))}`,
    note("Time to the first response, and from each response to the next; the 95 % interval is grey."),
    table("Streamed answers by model", models, [
      ["model", (m) => m.model], ["version", (m) => m.version],
      ["first response, p50", cell("first_response", "0.5"), "number"], ["p99", cell("first_response", "0.99"), "number"],
      ["gap, p50", cell("response_gap", "0.5"), "number"], ["p99", cell("response_gap", "0.99"), "number"],
      ["responses per request", responses, "number"],
      ["waiting", (m) => waiting(m) == null ? UNKNOWN : quantity(waiting(m)), "number"],
      ["KV cache", (m) => cache(m) == null ? UNKNOWN : percent(cache(m)), "number"],
      ["J per 1,000 tokens", joules, "number"],
    ])];
}

// Windows of burn rates in seconds. A younger sidecar has data of a shorter window only.
const BURN_WINDOWS = { "5m": 300, "1h": 3600, "6h": 21600 };

function slos(found) {
  const budgets = found.series.triton_slo_error_budget_remaining_ratio || [];
  const objectives = found.series.triton_slo_objective_ratio || [];
  if (!objectives.length) return null;
  const age = Date.now() / 1000 - found.tritonwatch.started_timestamp_seconds;
  const burn = (slo, window) => (age < BURN_WINDOWS[window] ? "too early"
    : quantity(labelled(found.series.triton_slo_burn_rate || [], { slo, window })[0]?.value));
  const left = (slo) => labelled(budgets, { slo })[0]?.value;
  const least = [...budgets].sort((a, b) => a.value - b.value)[0];
  return [least ? `Lowest budget left: ${least.slo}, ${budgetLeft(least.value)}` : `${objectives.length} objectives, no events yet`,
    note("Budgets count the events of their window since this sidecar started. At a burn rate of 1 the budget lasts exactly its window. A rate appears once its whole window has data."),
    table("Objectives", objectives, [
      ["objective", (o) => o.slo],
      ["target", (o) => percent(o.value), "number"],
      ["budget left", (o) => {
        const value = left(o.slo);
        const state = value == null ? "quiet" : value <= 0 ? "bad" : value < 0.25 ? "warn" : "good";
        return make("span", { class: state }, budgetLeft(value));
      }, "number"],
      ...Object.keys(BURN_WINDOWS).map((w) => [`burn ${w}`, (o) => burn(o.slo, w), "number"]),
    ])];
}

const DRIFT_ROWS = 30;

function drift(found) {
  const watched = found.drift || [], evidence = found.series.triton_feature_drift_evidence || [];
  if (!evidence.length && !watched.length) return null;
  const alarms = new Set((found.series.triton_feature_drift_alarm || []).filter((a) => a.value).map((a) => `${a.model} ${a.feature}`));
  const threshold = (e) => Math.max(1, ...labelled(found.series.triton_model_drift_evidence_threshold || [], { model: e.model }).map((t) => t.value));
  // Evidence and threshold are logarithms; evidence below 0 speaks against a change.
  const strongest = [...evidence].sort((a, b) => b.value - a.value).slice(0, DRIFT_ROWS);
  const drifted = (found.series.triton_model_drift_alarm || []).filter((m) => m.value).map((m) => m.model);
  const said = (w) => [...w.problems, ...w.caveats, ...w.blind_spots].join("; ");
  const unwatched = watched.filter((w) => w.state !== "watching").map((w) => `${w.model} (${w.state})`);
  return [(drifted.length ? `The data of ${listed(drifted)} drifted` : evidence.length ? "No data drifted" : "Not enough data yet")
    + (unwatched.length ? `; not watched: ${listed(unwatched)}` : ""),
    ...(watched.length ? [table("Watched data", watched, [
      ["model", (w) => w.model], ["side", (w) => w.side], ["state", (w) => w.state.replaceAll("_", " ")],
      ["rows of the reference", (w) => w.reference_rows ?? "", "number"], ["limits", said, "detail"],
    ])] : []),
    ...(strongest.length ? [captioned("Evidence of drift by feature", strongest, [
      ["feature", (e) => e.feature], ["model", (e) => e.model],
      ["state", (e) => (alarms.has(`${e.model} ${e.feature}`) ? make("span", { class: "bad" }, "alarm") : "no alarm")],
      ["evidence, share of the alarm threshold", (e) => (e.value > 0 ? percent(e.value / threshold(e)) : "none"), "number"],
    ])] : [])];
}

const NO_FIGURE = "not identifiable yet";

// On a page about models, `model` alone would be misread.
const powerSource = (source) => (source === "model" ? "estimated from use" : source);

// The error of a model's share of the energy; without one, or beyond 100 %, no figure of it holds.
function shareError(found, { model, version, boundary, source }) {
  const error = labelled(found.series.triton_model_energy_share_error_ratio || [], { model, version, boundary, source })[0]?.value;
  return error <= 1 ? ` ± ${percent(error)}` : "";
}

function energy(found) {
  const power = [...(found.series.triton_gpu_power_watts || []), ...(found.series.triton_host_power_watts || [])];
  const joules = found.series.triton_inference_energy_joules || [];
  if (!power.length && !joules.length) return null;
  const watts = power.map((p) => `${p.name || p.domain || p.gpu || ""} ${quantity(p.value, "W")} (${powerSource(p.source)})`);
  const each = joules.filter((e) => e.basis === "full");
  const of = (metric, e, basis) => (found.series[metric] || []).find((other) => Object.entries({ ...e, basis })
    .every(([label, value]) => label === "value" || !(label in other) || other[label] === value));
  const figure = (e, metric, basis) => (shareError(found, e) ? quantity(of(metric, e, basis)?.value, of(metric, e, basis)?.currency) : "");
  const joule = "triton_inference_energy_joules";
  const ofOne = (e) => figure(e, joule, "active") + shareError(found, e) || NO_FIGURE;
  return [watts.join(", ") || each.map((e) => `${e.model}: ${ofOne(e)}`).join(", "),
    note("The source shows how reliable the values are. A model's share of the power is known once its load has varied."),
    table("Energy by model", each, [
      ["model", (e) => e.model], ["version", (e) => e.version],
      ["boundary", (e) => e.boundary], ["source", (e) => e.source],
      ["joules per inference", ofOne, "number"],
      ["with its idle share", (e) => figure(e, joule, "full"), "number"],
      ["inferences/s per watt", (e) => figure(e, "triton_model_inferences_per_second_per_watt", "full"), "number"],
      ["cost of 1,000", (e) => figure(e, "triton_model_cost_per_thousand_inferences", "full"), "number"],
    ])];
}

// As _WRONG in exporter/status/status_findings.py.
const FAILED_CHECKS = { expected: "outputs differ", labels: "accuracy fell" };
const HEADLINE_SCORES = ["accuracy", "match", "r2"];

// The one score of a data set that people know it by; all others are folded.
function headlineScores(scores) {
  const sets = new Map();
  for (const score of scores) {
    const set = `${key(score)} ${score.dataset}`;
    sets.set(set, [...(sets.get(set) || []), score]);
  }
  return [...sets.values()].map((all) =>
    HEADLINE_SCORES.map((name) => all.find((s) => s.metric === name)).find(Boolean) || all[0]);
}

// By the condition of the estimate that does not hold.
const DOUBTS = {
  calibrated: "fewer than 50 golden samples", enough_outputs: "fewer than 50 answers",
  within_calibration: "confidences below all golden ones", drift_watched: "drift of its inputs is not watched",
  drift_guaranteed: "its drift reference guarantees nothing", no_drift: "its inputs drifted",
  golden_agrees: "golden data contradict it",
};
const ESTIMATED = "Accuracy estimated without labels (not measured; does not detect concept drift)";

// Bounds of a 95 % interval; `same` are the labels that find them.
function interval(bounds, score, same) {
  const bound = (which) => (bounds || []).find((b) => b.bound === which && same.every((label) => b[label] === score[label]));
  const [lower, upper] = [bound("lower"), bound("upper")];
  return lower && upper ? `${quantity(lower.value)} to ${quantity(upper.value)}` : UNKNOWN;
}

function estimates(found) {
  const known = (e) => (found.series.triton_estimated_accuracy_valid || []).filter((v) => key(v) === key(e));
  const doubts = (e) => {
    const failing = known(e).filter((v) => !v.value).map((v) => v.condition);
    return failing.length ? make("span", { class: "bad" }, `do not rely on it: ${failing.map((name) => DOUBTS[name] || name).join(", ")}`)
      : "none found; only labels can show it";
  };
  return captioned(ESTIMATED, found.series.triton_estimated_accuracy_ratio || [], [
    ["model", (e) => e.model], ["version", (e) => e.version], ["estimate", (e) => quantity(e.value), "number"],
    ["95 % interval", (e) => interval(found.series.triton_estimated_accuracy_ci_ratio, e, ["model", "version"]), "number"],
    ["doubts", doubts],
  ]);
}

function golden(found) {
  const scores = found.series.triton_golden_score_ratio || [];
  const charts = found.series.triton_spc_alarm || [];
  const estimated = found.series.triton_estimated_accuracy_ratio || [];
  if (!scores.length && !charts.length && !estimated.length) return null;
  const baseline = (s) => (found.series.triton_golden_baseline_ratio || [])
    .find((b) => key(b) === key(s) && b.dataset === s.dataset && b.metric === s.metric)?.value;
  const checks = (s) => {
    const known = (found.series.triton_golden_failing || []).filter((f) => key(f) === key(s) && f.dataset === s.dataset);
    const failing = known.filter((f) => f.value).map((f) => FAILED_CHECKS[f.check] || f.check);
    return failing.length ? make("span", { class: "bad" }, failing.sort().reverse().join(", ")) : known.length ? "pass" : UNKNOWN;
  };
  const columns = [
    ["model", (s) => s.model], ["version", (s) => s.version], ["data set", (s) => s.dataset],
    ["metric", (s) => s.metric], ["score", (s) => quantity(s.value), "number"],
    ["95 % interval", (s) => interval(found.series.triton_golden_score_ci_ratio, s, ["model", "version", "dataset", "metric"]), "number"],
    ["baseline", (s) => (baseline(s) == null ? "" : quantity(baseline(s))), "number"],
  ];
  const parts = [], sets = headlineScores(scores);
  if (scores.length) {
    parts.push(table("Golden scores", sets, [...columns,
      ["checks", checks], ["detail", (s) => saidTo(found, s), "detail"]]));
    // The section is drawn anew each time; what was open stays open.
    const isOpen = document.getElementById("all-scores")?.open;
    parts.push(make("details", { id: "all-scores", ...(isOpen ? { open: "" } : {}) },
      make("summary", {}, `All ${scores.length} scores`), table("All golden scores", scores, columns)));
  }
  if (estimated.length) parts.push(estimates(found));
  if (charts.length) {
    parts.push(captioned("Process control", charts, [
      ["signal", (c) => c.signal], ["chart", (c) => c.chart],
      ["state", (c) => word(!c.value, "in control", "out of control")],
    ]));
  }
  const wrong = names((found.series.triton_golden_failing || []).filter((f) => f.value), "model");
  const drifting = names(charts.filter((c) => c.value), "signal"), unjudged = sets.filter((s) => checks(s) === UNKNOWN).length;
  const doubts = [wrong.length && `Golden checks fail: ${listed(wrong)}`, drifting.length && `Out of control: ${listed(drifting)}`,
    unjudged && `Not judged: ${unjudged} of ${sets.length} golden sets`].filter(Boolean);
  return [doubts.join("; ") || (sets.length ? "All golden checks pass" : "No golden data"),
    note("Answers to golden samples with known answers, and control charts."), ...parts];
}

const PAIR_LIMITS = {
  requests: "its share of production's requests", busy: "its share of production's busy time",
  idle: "idle_pairs_per_second", rate: "max_pairs_per_second",
  statistics: "production's rate, not known yet", inputs: "an input",
};

function comparisons(found) {
  const all = found.comparisons || [];
  if (!all.length) return null;
  const state = { better: "good", worse: "bad", equivalent: "good", undecided: "quiet" };
  // Without an interval the ends are those of all possible values.
  const bound = (v, value) => (v.withheld ? UNKNOWN : quantity(value));
  const rows = all.flatMap((c) => c.metrics.map((m) => ({ ...m, comparison: c.comparison })));
  const waits = all.filter((c) => c.next_pair).map((c) => ({ comparison: c.comparison, ...c.next_pair }));
  const problems = all.filter((c) => c.problem || c.failure);
  const worse = rows.filter((v) => v.verdict === "worse").map((v) => `${v.comparison}: worse in ${v.metric}`);
  return [[...worse, ...all.filter((c) => c.problem).map((c) => `${c.comparison}: ${c.problem}`)].join("; ") || `${listed(names(all, "comparison"))}: nothing is worse so far`,
    note("The challenger against the champion: latency, energy and memory as relative differences (0.05 is 5 % more). Intervals are valid at every evaluation."),
    ...problems.map((c) => make("p", { class: "bad" }, `${c.comparison}: ${c.problem || c.failure}`)),
    table("Verdicts", rows, [
      ["comparison", (v) => v.comparison], ["metric", (v) => v.metric],
      ["verdict", (v) => make("span", { class: state[v.verdict] || "" }, v.verdict)],
      ["effect", (v) => quantity(v.estimate), "number"],
      ["from", (v) => bound(v, v.low), "number"],
      ["to", (v) => bound(v, v.high), "number"],
      ["pairs", (v) => v.pairs, "number"],
      ["effective pairs", (v) => bound(v, v.effective_pairs), "number"],
      ["why no interval yet", (v) => v.withheld || "", "detail"],
    ]),
    ...(waits.length ? [captioned("Next pair", waits, [
      ["comparison", (w) => w.comparison], ["waits for", (w) => PAIR_LIMITS[w.limit] || w.limit],
      ["seconds", (w) => quantity(w.seconds), "number"],
    ])] : [])];
}

function runs(found) {
  const going = found.series.triton_run_info || [];
  if (!going.length) return null;
  return [listed(going.map((r) => `${r.run}: ${r.phase}`)), table("Runs", going, [
    ["run", (r) => r.run], ["kind", (r) => r.kind], ["profile", (r) => r.profile], ["phase", (r) => r.phase],
  ])];
}

function events(found) {
  const text = (e) => { const what = e.event.replaceAll("_", " ").replace(/\bspc\b/, "control chart").replace(/\b(gpu|http|nvml|otlp|rapl|tls)\b/g, (w) => w.toUpperCase()); return what[0].toUpperCase() + what.slice(1) + (e.detail ? `: ${e.detail}.` : "."); };
  const [latest] = found.events;
  return latest ? [`${moment(latest.at)} ${text(latest)}`, table("Recent events", found.events, [
    ["when", (e) => moment(e.at), "when"],
    ["what", (e) => make("span", { class: e.level === "info" ? "" : e.level === "warning" ? "warn" : "bad" }, text(e))],
  ])] : null;
}

function collectors(found) {
  const failed = found.collectors.filter((c) => c.success === false);
  const waiting = found.collectors.filter((c) => c.success == null).length;
  return [failed.length ? `${listed(names(failed, "collector"))} failed`
    : `${found.collectors.length} collectors and probes, none failing${waiting ? `, ${waiting} not run yet` : ""}`,
  table("Collectors and probes", found.collectors, [
    ["collector", (c) => c.collector], ["last run", (c) => word(c.success, "ok", "failed")],
    ["took", (c) => seconds(c.duration_seconds), "number"], ["failure", (c) => c.failure || ""],
  ])];
}
