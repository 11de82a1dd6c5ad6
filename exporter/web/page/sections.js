// Sections that are there only where what they show is configured.

function optional(found, time) {
  return [streamed(found), slos(found), drift(found, time), energy(found), golden(found), comparisons(found), runs(found)]
    .filter(Boolean);
}

function anchor(title) { return title.toLowerCase().replace(/[^a-z]+/g, "-").replace(/-$/, ""); }

function section(title, note, ...content) {
  return make("section", { "aria-label": title, id: anchor(title) }, make("h2", {}, title),
    ...(note ? [make("p", {}, note)] : []), ...content);
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
  const joules = one("triton_token_energy_joules", { basis: "full" }), cache = one("triton_backend_kv_cache_usage_ratio", {});
  const waiting = one("triton_backend_requests_waiting", {});
  return section("Streamed answers", "Time to the first response, and from each response to the next; the 95 % interval is grey.",
    table("Streamed answers by model", models, [
      ["model", (m) => m.model], ["version", (m) => m.version],
      ["first response, p50", cell("first_response", "0.5"), "number"], ["p99", cell("first_response", "0.99"), "number"],
      ["gap, p50", cell("response_gap", "0.5"), "number"], ["p99", cell("response_gap", "0.99"), "number"],
      ["responses per request", responses, "number"],
      ["waiting", (m) => waiting(m) == null ? UNKNOWN : quantity(waiting(m)), "number"],
      ["KV cache", (m) => cache(m) == null ? UNKNOWN : percent(cache(m)), "number"],
      ["J per 1,000 tokens", (m) => joules(m) == null ? UNKNOWN : quantity(1000 * joules(m)), "number"],
    ]));
}

function slos(found) {
  const budgets = found.series.triton_slo_error_budget_remaining_ratio || [];
  const objectives = found.series.triton_slo_objective_ratio || [];
  if (!objectives.length) return null;
  const burn = (slo, window) => labelled(found.series.triton_slo_burn_rate || [], { slo, window })[0]?.value;
  const left = (slo) => labelled(budgets, { slo })[0]?.value;
  return section("Service level objectives", "At a burn rate of 1 the budget lasts exactly its window.",
    table("Objectives", objectives, [
      ["objective", (o) => o.slo],
      ["target", (o) => percent(o.value), "number"],
      ["budget left", (o) => {
        const value = left(o.slo);
        const state = value == null ? "quiet" : value <= 0 ? "bad" : value < 0.25 ? "warn" : "good";
        return make("span", { class: state }, budgetLeft(value));
      }, "number"],
      ...["5m", "1h", "6h"].map((w) => [`burn ${w}`, (o) => quantity(burn(o.slo, w)), "number"]),
    ]));
}

const driftHistory = new Map();
const DRIFT_COLUMNS = 40, DRIFT_ROWS = 30, DRIFT_STEP_SECONDS = 10;

function drift(found, time) {
  const evidence = found.series.triton_feature_drift_evidence || [];
  const alarms = found.series.triton_feature_drift_alarm || [];
  if (!evidence.length && !(found.drift || []).length) return null;
  const step = Math.floor(time / DRIFT_STEP_SECONDS);
  for (const entry of evidence) {
    const name = `${entry.model} / ${entry.feature}`;
    if (!driftHistory.has(name)) driftHistory.set(name, new Map());
    const steps = driftHistory.get(name);
    steps.set(step, entry.value);
    for (const at of steps.keys()) if (at <= step - DRIFT_COLUMNS) steps.delete(at);
  }
  for (const [name, steps] of driftHistory) if (Math.max(...steps.keys()) <= step - DRIFT_COLUMNS) driftHistory.delete(name);
  const worst = [...evidence].sort((a, b) => b.value - a.value).slice(0, DRIFT_ROWS);
  const alarmed = new Set(alarms.filter((a) => a.value).map((a) => `${a.model} / ${a.feature}`));
  const thresholds = found.series.triton_model_drift_evidence_threshold || [];
  const top = (model) => Math.max(1, ...labelled(thresholds, { model }).map((t) => t.value));
  const cells = [];
  for (const entry of worst) {
    const name = `${entry.model} / ${entry.feature}`;
    const marked = alarmed.has(name);
    cells.push(make("span", { class: marked ? "bad" : "", title: name }, marked ? `${name} · alarm` : name));
    for (let at = step - DRIFT_COLUMNS + 1; at <= step; at += 1) {
      const value = driftHistory.get(name)?.get(at);
      const share = value == null ? 0 : Math.max(0, Math.min(1, value / top(entry.model)));
      cells.push(make("i", { style: { "--share": share.toFixed(3) } }));
    }
  }
  const summary = worst.slice(0, 3).map((e) => `${e.feature} ${quantity(e.value)}`).join(", ");
  const grid = make("div", {
    class: "heat", role: "img",
    "aria-label": `Evidence of drift by feature over the last minutes; strongest: ${summary || "none"}`,
    style: { "grid-template-columns": `minmax(8rem, 14rem) repeat(${DRIFT_COLUMNS}, 1fr)` },
  }, ...cells);
  const models = found.series.triton_model_drift_alarm || [];
  const alarming = models.filter((m) => m.value).map((m) => m.model);
  const verdict = alarming.length
    ? make("p", { class: "bad" }, `The data of ${alarming.join(", ")} drifted.`)
    : make("p", {}, models.length ? "No model's data drifted." : "Not enough data yet.");
  return section("Drift", `Evidence by feature over the last ${Math.round(DRIFT_COLUMNS * DRIFT_STEP_SECONDS / 60)} minutes, strongest first, the newest on the right; the full colour is the threshold of an alarm.`, verdict,
    ...(worst.length ? [grid] : []));
}

function energy(found) {
  const power = [...(found.series.triton_gpu_power_watts || []), ...(found.series.triton_host_power_watts || [])];
  const joules = found.series.triton_inference_energy_joules || [];
  if (!power.length && !joules.length) return null;
  const watts = power.map((p) => `${p.name || p.domain || p.gpu || ""} ${quantity(p.value, "W")} (${p.source})`);
  const each = joules.filter((e) => e.basis === "full");
  const of = (metric, e, basis) => (found.series[metric] || []).find((other) => Object.entries({ ...e, basis })
    .every(([label, value]) => label === "value" || !(label in other) || other[label] === value));
  return section("Energy and cost", `Now: ${watts.join(", ") || UNKNOWN}. The source shows how reliable the values are.`,
    table("Energy by model", each, [
      ["model", (e) => e.model], ["version", (e) => e.version],
      ["boundary", (e) => e.boundary], ["source", (e) => e.source],
      ["joules per inference", (e) => quantity(of("triton_inference_energy_joules", e, "active")?.value), "number"],
      ["relative error", (e) => atMostAll(of("triton_model_energy_share_error_ratio", e)?.value), "number"],
      ["with its idle share", (e) => quantity(e.value), "number"],
      ["inferences/s per watt", (e) => quantity(of("triton_model_inferences_per_second_per_watt", e, "full")?.value), "number"],
      ["cost of 1,000", (e) => {
        const cost = of("triton_model_cost_per_thousand_inferences", e, "full");
        return cost ? quantity(cost.value, cost.currency) : UNKNOWN;
      }, "number"],
    ]));
}

// Beyond 100 % the share is not known, by whichever factor.
function atMostAll(ratio) { return ratio > 1 ? "over 100 %" : percent(ratio); }

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
    const failing = known.filter((f) => f.value).map((f) => f.check);
    return failing.length ? make("span", { class: "bad" }, `${failing.join(", ")} fail`) : known.length ? "pass" : UNKNOWN;
  };
  const columns = [
    ["model", (s) => s.model], ["version", (s) => s.version], ["data set", (s) => s.dataset],
    ["metric", (s) => s.metric], ["score", (s) => quantity(s.value), "number"],
    ["95 % interval", (s) => interval(found.series.triton_golden_score_ci_ratio, s, ["model", "version", "dataset", "metric"]), "number"],
    ["baseline", (s) => (baseline(s) == null ? "" : quantity(baseline(s))), "number"],
  ];
  const parts = [];
  if (scores.length) {
    parts.push(table("Golden scores", headlineScores(scores), [...columns,
      ["checks", checks]]));
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
  return section("Are the answers correct?", "Answers to golden samples with known answers, and control charts.", ...parts);
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
  return section("Comparisons", "The challenger against the champion: latency, energy and memory as relative differences (0.05 is 5 % more). Intervals are valid at every evaluation.",
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
    ])] : []));
}

function runs(found) {
  const going = found.series.triton_run_info || [];
  if (!going.length) return null;
  return section("Load and chaos runs", "", table("Runs", going, [
    ["run", (r) => r.run], ["kind", (r) => r.kind], ["profile", (r) => r.profile], ["phase", (r) => r.phase],
  ]));
}
