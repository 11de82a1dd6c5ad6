// What somebody should look at first, in one line each, with the way to where it stands.

const LISTED = 4;

function attention(found) {
  const alike = new Map();
  for (const { subject, text, section, runbook, model, version } of found.findings) {
    const of = found.models.find((m) => m.model === model && ["", m.version].includes(version));
    const name = JSON.stringify([text, section, runbook, of ? ` since ${moment(of.since)},` : ""]);
    alike.set(name, [...(alike.get(name) || []), { subject, model }]);
  }
  const all = [...alike].map(([name, those]) => [...JSON.parse(name), listed([...new Set(those.map((one) => one.subject))]),
    // The runbook of one model is filled in with its name.
    those.length === 1 && those[0].model ? `?${new URLSearchParams({ model: those[0].model })}` : ""]);
  const place = document.getElementById("attention"), said = JSON.stringify([all, found.server.up]);
  // Whoever has a link in focus keeps it while nothing changes.
  if (place.dataset.said === said) return;
  place.dataset.said = said;
  place.className = all.length ? "wrong" : "";
  replace("attention", ...(all.length ? [
    make("h2", {}, all.length === 1 ? "One thing needs attention" : `${all.length} things need attention`),
    make("ul", {}, ...all.map(([text, section, runbook, since, subjects, query]) => make("li", {},
      make("a", { href: `#${anchor(section)}` }, `${subjects}: ${text}`), make("span", { class: "quiet" }, `${since} runbook `,
        make("a", { href: `runbooks/${runbook}${query}` }, runbook))))),
  ] : [make("p", {}, found.server.up == null ? "Starting: the server has not been read yet." : "No known problems.")]));
}

const STATE_LOOKS = { SERVING: "good", UNKNOWN: "quiet", SLOW: "warn", DRIFTED: "warn" };
const ROWS_SHOWN = 50;

// One headline for each model, the worst first; those beyond the fiftieth are counted.
function headlines(found, perSecond) {
  const hasIts = hasInterval(found);
  let doubted = false;
  const quantile = (m, name) => {
    // What our probes see says nothing of production's requests.
    const { source, entries } = quantilesOf(found, key(m)), entry = entries.find((e) => named(e.quantile) === name);
    if (source !== "production" || !entry) return UNKNOWN;
    const isDoubted = !hasIts(entry);
    doubted ||= isDoubted;
    return make("span", { class: isDoubted ? "quiet" : "" }, seconds(entry.value));
  };
  const why = (m) => [...found.findings.filter((f) => f.model === m.model && ["", m.version].includes(f.version))
    .map((f) => (f.subject === f.model ? f.text : `${f.subject}: ${f.text}`)),
    m.state === "DOWN" && saidTo(found, m)].filter(Boolean);
  const shown = found.models.slice(0, ROWS_SHOWN), more = found.models.length - shown.length;
  const rows = table("Models", shown, [
    ["model", (m) => make("a", { href: `?${new URLSearchParams({ model: m.model })}` }, m.model)], ["version", (m) => m.version],
    ["state", (m) => make("span", { class: STATE_LOOKS[m.state] || "bad" }, m.state)],
    ["since", (m) => moment(m.since), "when"],
    ["requests/s", (m) => (perSecond ? quantity(perSecond[m.model]) : UNKNOWN), "number"],
    ["p50", (m) => quantile(m, "p50"), "number"], ["p99", (m) => quantile(m, "p99"), "number"],
    ["why", (m) => why(m).join("; "), "detail"],
  ]);
  const notes = [more > 0 && `${more} more, none of them worse than these.`, doubted && "Grey: too few independent requests for a 95 % interval yet."];
  replace("headlines", rows, ...notes.filter(Boolean).map((note) => make("p", { class: "quiet" }, note)));
}

// What the server said to a probe that failed.
function saidTo(found, m) { return found.probes.find((p) => key(p) === key(m) && p.detail)?.detail; }

function listed(all) {
  return all.length > LISTED ? `${all.slice(0, LISTED).join(", ")} and ${all.length - LISTED} more` : all.join(", ");
}
