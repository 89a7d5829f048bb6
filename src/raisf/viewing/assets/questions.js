// The table of questions: filters, pages of rows.

const PAGE = 100;

/** A labelled select that changes the state; `options` are pairs of value and text. */
function choice(label, name, now, options, none) {
  const select = el("select", { name, onchange: () => { location.hash = link({ [name]: select.value, page: "", id: "" }); } },
    none !== undefined && el("option", { value: "" }, none),
    options.map(([value, text]) => el("option", { value, selected: value === (now[name] || "") }, text)));
  return el("label", {}, label, select);
}

const right = (answer) => Boolean(answer) && answer.em === 1;
const same = (one, two) => (one?.prediction ?? "").trim().toLowerCase() === (two?.prediction ?? "").trim().toLowerCase();

// What the table can be narrowed to, by two runs' answers.
const SHOWS = {
  all: ["all", () => true],
  right: ["A right", (a) => right(a)],
  wrong: ["A wrong", (a) => !right(a)],
  won: ["A right, B wrong", (a, b) => right(a) && !right(b)],
  lost: ["A wrong, B right", (a, b) => !right(a) && right(b)],
  both: ["both right", (a, b) => right(a) && right(b)],
  neither: ["both wrong", (a, b) => !right(a) && !right(b)],
  differ: ["answers differ", (a, b) => !same(a, b)],
};
const ALONE = ["all", "right", "wrong"];

const FLAGS = {
  know: ["know judge wrong", (a) => a?.judges.know],
  relevance: ["relevance judge wrong", (a) => a?.judges.relevance],
  decomposition: ["decomposition unlike gold", (a) => a?.judges.decomposition],
  anyjudge: ["any judge wrong", (a) => a && Object.keys(a.judges).length],
  unreadable: ["unreadable output", (a) => a?.unreadable],
  error: ["ended in an error", (a) => a?.error],
};

/** The runs that the state names; the first where it names none. */
function sides(now) {
  const a = Math.max(0, runOf(now.a));
  const b = now.b ? runOf(now.b) : -1;
  return { a, b: b === a ? -1 : b };
}

const SORTS = {
  question: (place) => place,
  calls: (place, a) => -(data.answers[a][place].calls ?? -1),
  seconds: (place, a) => -(data.answers[a][place].seconds ?? -1),
};

/** The places of the questions that pass the filters, in order. */
function filtered(now, without = "") {
  const { a, b } = sides(now);
  const [, shows] = SHOWS[now.show] || SHOWS.all;
  const flag = FLAGS[now.flag];
  const words = (now.q || "").toLowerCase();
  const places = [];
  data.questions.forEach((question, place) => {
    const ours = data.answers[a][place], theirs = b < 0 ? null : data.answers[b][place];
    if (!ours || (b >= 0 && !theirs)) return;
    if (without !== "show" && !shows(ours, theirs)) return;
    if (now.kind && (question.kind || "–") !== now.kind) return;
    if (without !== "route" && now.route && (ours.route || "–") !== now.route) return;
    if (flag && !flag[1](ours)) return;
    if (words && ![question.question, ours.prediction, theirs?.prediction, question.id, ...question.answers].some(
      (text) => String(text ?? "").toLowerCase().includes(words))) return;
    places.push(place);
  });
  const key = SORTS[now.sort];
  return key ? places.map((place) => [key(place, a), place]).sort((x, y) => x[0] - y[0] || x[1] - y[1]).map((one) => one[1]) : places;
}

function verdict(answer) {
  if (!answer) return "–";
  if (answer.error) return el("span", { class: "bad" }, "! error");
  const good = right(answer);
  return el("span", { class: good ? "good" : "bad" }, good ? "✓" : "✗", el("span", { class: "sr" }, good ? " right: " : " wrong: "));
}

function answerCell(answer, name) {
  return el("td", { "data-name": name }, answer ? [el("span", { class: "clip", dir: "auto" }, verdict(answer), " ", answer.error ? "" : String(answer.prediction ?? "").slice(0, CLIPPED))] : "–");
}

function questionRow(place, now) {
  const { a, b } = sides(now);
  const question = data.questions[place], ours = data.answers[a][place];
  return el("tr", {},
    el("td", { class: "number" }, place + 1),
    el("td", {}, el("a", { class: "clip", dir: "auto", href: link({ view: "question", id: question.name }) }, question.question.slice(0, CLIPPED) || "(empty)")),
    el("td", { "data-name": "gold" }, clip(question.answers.join(" / "))),
    answerCell(ours, b < 0 ? "answer" : "A"),
    b >= 0 && answerCell(data.answers[b][place], "B"),
    el("td", { class: "meta", "data-name": "kind" }, clip(question.kind || "–")),
    el("td", { class: "meta", "data-name": "route" }, clip(ours.route || "–")),
    el("td", { class: "meta", "data-name": "LM calls" }, ours.calls ?? "–"),
    el("td", { class: "meta", "data-name": "seconds" }, number(ours.seconds, 2)));
}

function sortable(text, key, now, width) {
  const on = (now.sort || "question") === key;
  const head = el("th", { scope: "col", "aria-sort": on ? (key === "calls" || key === "seconds" ? "descending" : "ascending") : null },
    el("button", { type: "button", onclick: () => { location.hash = link({ sort: key === "question" ? "" : key, page: "" }); } }, text, on && key !== "question" ? " ▾" : ""));
  head.style.width = width;
  return head;
}

function head(text, width = "") {
  const made = el("th", { scope: "col" }, text);
  made.style.width = width;
  return made;
}

/** The rows of a page, and what goes to its neighbours. */
function questionsTable(now) {
  const places = filtered(now), { b } = sides(now);
  const last = Math.max(0, Math.ceil(places.length / PAGE) - 1);
  const page = Math.min(last, Math.max(0, Math.floor(Number(now.page)) || 0));
  const shown = places.slice(page * PAGE, (page + 1) * PAGE);
  const step = (to, text) => el("button", { type: "button", disabled: to < 0 || to > last, onclick: () => { location.hash = link({ page: to || "" }); } }, text);
  const pages = () => last > 0 && el("div", { class: "pages" }, step(page - 1, "← previous"), step(page + 1, "next →"),
    el("span", { class: "muted" }, `${(page * PAGE + 1).toLocaleString("en")} to ${(page * PAGE + shown.length).toLocaleString("en")} of ${places.length.toLocaleString("en")}`));
  return el("div", { id: "table" },
    el("p", { class: "muted", role: "status" }, places.length ? `${places.length.toLocaleString("en")} of ${data.questions.length.toLocaleString("en")} questions` : "No question passes the filters."),
    shown.length > 0 && el("table", { class: "questions" },
      el("caption", { class: "sr" }, "Questions"),
      el("thead", {}, el("tr", {}, sortable("#", "question", now, "3.5rem"), head("question"), head("gold", "13%"),
        head(b < 0 ? "answer" : "A", "15%"), b >= 0 && head("B", "15%"), head("kind", "7.5rem"), head("route", "8rem"),
        sortable("LM calls", "calls", now, "5.5rem"), sortable("seconds", "seconds", now, "5.5rem"))),
      el("tbody", {}, shown.map((place) => questionRow(place, now)))),
    pages());
}

/** Links to each outcome, with how many questions it holds under the other filters. */
function outcomes(now) {
  const { a, b } = sides(now);
  const places = filtered(now, "show");
  const names = b < 0 ? ALONE : Object.keys(SHOWS).filter((name) => name !== "right" && name !== "wrong");
  return el("ul", { class: "quick", "aria-label": "Outcome" }, names.map((name) => {
    const count = places.filter((place) => SHOWS[name][1](data.answers[a][place], b < 0 ? null : data.answers[b][place])).length;
    return el("li", {}, el("a", { href: link({ show: name === "all" ? "" : name, page: "" }), "aria-current": (now.show || "all") === name ? "true" : null },
      `${b < 0 ? SHOWS[name][0].replace("A ", "") : SHOWS[name][0]} ${count.toLocaleString("en")}`));
  }));
}

/** The second page: one run's questions, or two runs' beside each other. */
function questionsView(now) {
  const { a, b } = sides(now);
  const runs = data.runs.map((run) => [run.label, run.label]);
  const counted = (of) => {
    const counts = new Map();
    of.forEach((one) => { if (one !== undefined) counts.set(one || "–", (counts.get(one || "–") || 0) + 1); });
    return [...counts].sort().map(([name, count]) => [name, `${name} (${count})`]);
  };
  const routes = counted(data.answers[a].map((one) => (one ? one.route : undefined)));
  const kinds = counted(data.questions.map((question, place) => (data.answers[a][place] ? question.kind : undefined)));
  const flags = Object.entries(FLAGS).map(([name, [text, test]]) => [name, `${text} (${data.answers[a].filter((one) => one && test(one)).length})`]);
  const search = el("input", { type: "search", name: "q", value: now.q || "", placeholder: "question or answer", oninput: () => {
    history.replaceState(null, "", link({ q: search.value, page: "" }));
    document.getElementById("table").replaceWith(questionsTable(state()));
    document.querySelector(".quick").replaceWith(outcomes(state()));
  } });
  return [
    el("h1", { tabindex: "-1" }, b < 0 ? ["Questions of ", el("bdi", {}, data.runs[a].label)] : [el("bdi", {}, data.runs[a].label), " and ", el("bdi", {}, data.runs[b].label)]),
    el("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      choice("A", "a", { a: data.runs[a].label }, runs),
      data.runs.length > 1 && choice("B, beside it", "b", { b: b < 0 ? "" : data.runs[b].label }, runs.filter(([label]) => label !== data.runs[a].label), "none"),
      kinds.length > 1 && choice("kind", "kind", now, kinds, "all"),
      routes.length > 1 && choice("route of A", "route", now, routes, "all"),
      choice("A's trace has", "flag", now, flags, "anything"),
      el("label", {}, "search", search)),
    outcomes(now),
    questionsTable(now),
  ];
}
