// The table of runs, and who has right what another has wrong.

const ROUTES = ["direct", "passages", "decomposed"];
const routeClass = (route) => "route-" + (ROUTES.includes(route) ? route : "other");

function score(found) {
  if (!found || !found.n) return "–";
  return [percent(found.value), el("span", { class: "interval" }, `${percent(found.low)} to ${percent(found.high)}`)];
}

function routeBar(routes) {
  const told = Object.entries(routes).map(([name, route]) => `${name} ${percent(route.share)}%`).join(", ");
  const parts = [...ROUTES, ...Object.keys(routes).filter((name) => !ROUTES.includes(name))].filter((name) => routes[name]);
  return el("div", { class: "bar", role: "img", "aria-label": told, title: told }, parts.map((name) => {
    const part = el("i", { class: routeClass(name) });
    part.style.width = `${100 * routes[name].share}%`;
    return part;
  }));
}

function runRow(run) {
  const open = link({ a: run.label, view: "questions" }, {});
  return el("tr", {},
    el("th", { scope: "row" }, el("a", { href: open, dir: "auto" }, run.label)),
    el("td", {}, run.em.n), el("td", {}, score(run.em)), el("td", {}, score(run.f1)), el("td", {}, score(run.recall)),
    el("td", {}, routeBar(run.routes)),
    el("td", {}, number(run.cost.lm_calls)), el("td", {}, number(run.cost.seconds, 2)),
    el("td", { class: run.unreadable ? "warn" : null }, run.unreadable ? `${run.unreadable} of ${run.outputs}` : "0"),
    el("td", { class: run.errors ? "bad" : null }, run.errors));
}

function runsTable(runs) {
  const names = ["run", "questions", "exact match, %", "F1, %", "recall, %", "routes", "LM calls", "seconds", "unreadable", "errors"];
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Runs" },
    el("table", { class: "runs" },
      el("caption", { class: "sr" }, "Runs with their scores"),
      el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, runs.map(runRow))));
}

function legend() {
  return el("p", { class: "legend" }, [...ROUTES, "other"].map((name) =>
    el("span", {}, el("i", { class: routeClass(name) }), name === "other" ? "no answer, error or other" : name)));
}

function flips(runs) {
  const places = runs.map((run) => runOf(run.label));
  const count = (a, b) => data.answers[a].reduce((sum, ours, i) => {
    const theirs = data.answers[b][i];
    return sum + (ours && theirs && ours.em === 1 && theirs.em !== 1 ? 1 : 0);
  }, 0);
  const cell = (a, b) => a === b ? el("td", { class: "cell muted" }, "·") : el("td", { class: "cell" },
    el("a", { href: link({ view: "questions", a: data.runs[a].label, b: data.runs[b].label, show: "won" }, {}),
      "aria-label": `${count(a, b)} that ${visible(data.runs[a].label)} has right and ${visible(data.runs[b].label)} wrong` }, count(a, b)));
  return [
    el("h2", {}, "Flips"),
    el("p", { class: "muted" }, "Questions that the row's run answers right and the column's does not."),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Flips" }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "right \\ wrong"), runs.map((run) => el("th", { scope: "col", dir: "auto" }, run.label)))),
      el("tbody", {}, places.map((a) => el("tr", {}, el("th", { scope: "row", dir: "auto" }, data.runs[a].label), places.map((b) => cell(a, b))))))),
  ];
}

function facts(of) {
  const told = (value) => (value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));
  return el("dl", { class: "facts" }, Object.entries(of).map(([name, value]) => [el("dt", {}, name), el("dd", { dir: "auto" }, told(value))]));
}

/** The first page. */
function runsView(now) {
  const groups = [...new Set(data.runs.flatMap((run) => run.groups))];
  const runs = now.group ? data.runs.filter((run) => run.groups.includes(now.group)) : data.runs;
  return [
    el("h1", { tabindex: "-1" }, data.title),
    el("p", { class: "muted" }, `${data.runs.length} ${data.runs.length === 1 ? "run" : "runs"}, ${data.questions.length.toLocaleString("en")} questions. A run's name opens its questions.`),
    groups.length > 1 && el("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, choice("experiment", "group", now, groups.map((name) => [name, name]), "all")),
    runsTable(runs), legend(),
    runs.length > 1 && flips(runs),
    el("h2", {}, "Provenance"),
    Object.keys(data.facts).length > 0 && facts(data.facts),
    runs.map((run) => el("details", {}, el("summary", { dir: "auto" }, run.label),
      facts({ file: run.file, answered: run.answered, experiments: run.groups.join(", ") || "–", ...run.program }))),
  ];
}
