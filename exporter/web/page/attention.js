// What somebody should look at first, in one line each, with the way to where it stands.

const LISTED = 4;

function attention(found) {
  const all = [...wrongServer(found), ...wrongAnswers(found), ...movedData(found), ...spentBudgets(found)];
  const place = document.getElementById("attention"), said = JSON.stringify(all);
  // Whoever has a link in focus keeps it while nothing changes.
  if (place.dataset.said === said) return;
  place.dataset.said = said;
  place.className = all.length ? "wrong" : "";
  replace("attention", ...(all.length ? [
    make("h2", {}, all.length === 1 ? "One thing needs attention" : `${all.length} things need attention`),
    make("ul", {}, ...all.map(([text, title]) => make("li", {}, make("a", { href: `#${anchor(title)}` }, text)))),
  ] : [make("p", {}, "Nothing of what is known needs attention.")]));
}

function wrongServer(found) {
  const at = "Does it really serve?";
  if (found.server.up === false) return [["Triton is down.", at]];
  const lying = found.models.filter((m) => m.ready && m.serving === false).map((m) => m.model);
  const away = found.models.filter((m) => m.ready === false).map((m) => m.model);
  return [
    ...(found.server.ready === false ? [["Triton is up, but not ready.", at]] : []),
    ...(lying.length ? [[`${listed(lying)}: ready by its own word, but no tensor comes back right.`, at]] : []),
    ...(away.length ? [[`${listed(away)}: not ready.`, at]] : []),
  ];
}

function wrongAnswers(found) {
  const at = "Is it still right?";
  const failing = names((found.series.triton_golden_failing || []).filter((g) => g.value), "model");
  const charts = (found.series.triton_spc_alarm || []).filter((c) => c.value);
  const worse = (found.series.triton_comparison_verdict || []).filter((v) => v.value && v.verdict === "worse");
  return [
    ...(failing.length ? [[`${listed(failing)}: answers to golden questions are wrong.`, at]] : []),
    ...(charts.length ? [[`The control chart of ${listed(names(charts, "signal"))} is out of control.`, at]] : []),
    ...(worse.length ? [[`Comparison ${listed(names(worse, "comparison"))}: the challenger is worse in ${listed(names(worse, "metric"))}.`, "Comparisons"]] : []),
  ];
}

function movedData(found) {
  const moved = names((found.series.triton_model_drift_alarm || []).filter((m) => m.value), "model");
  const features = (found.series.triton_feature_drift_alarm || []).filter((f) => f.value);
  return moved.length ? [[`The data of ${listed(moved)} have moved${features.length ? `: ${listed(names(features, "feature"))}` : ""}.`, "Drift"]] : [];
}

function spentBudgets(found) {
  const spent = (found.series.triton_slo_error_budget_remaining_ratio || []).filter((b) => b.value <= 0);
  return spent.length ? [[`The error budget of ${listed(names(spent, "slo"))} is spent.`, "Service level objectives"]] : [];
}

function listed(all) {
  return all.length > LISTED ? `${all.slice(0, LISTED).join(", ")} and ${all.length - LISTED} more` : all.join(", ");
}
