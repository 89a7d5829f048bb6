// The page: asks, draws the tree from the events as they come, and keeps past questions in this browser.
// What comes from the server, a passage or a model is text: it only ever reaches the page as textContent.

const $ = (id) => document.getElementById(id);
const CONFIDENCE = "The probability that the judges gave to the way the answer came; 0 where it stands in none of the passages read";
const UNGROUNDED = "The answer stands in none of the passages read.";
const KEY = "raisf.key", ASCII = /^[ -~]*$/;
const PAST = "raisf.past", MOST_PAST = 50, LARGEST = 300_000, LONG = 400;
const shown = (text) => visible(text ?? "");

function make(tag, options = {}, ...children) {
  const { text, on, ...rest } = options;
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(rest)) if (value != null) element.setAttribute(name, value);
  if (text != null) element.textContent = shown(text);
  if (on) element.addEventListener("click", on);
  element.append(...children.filter((child) => child != null));
  return element;
}
const data = (text, name = "") => make("bdi", { class: name, text, dir: "auto" });
const share = (p) => (p == null ? null : make("span", { class: "p", text: `p ${p.toFixed(2)}` }));
const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

// Draws anew what may hold the focus, which goes on to what has the same key by then: who reads by keyboard stays there.
function redraw(holder, draw) {
  const had = holder.contains(document.activeElement) ? document.activeElement : null;
  const key = had?.closest("[data-key]")?.dataset.key;
  draw();
  if (!key || had.isConnected) return;
  const same = [...holder.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
  same?.querySelector(had.tagName)?.focus({ preventScroll: true });
}

// ---- talking to the server

async function call(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...options.headers };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) {
    if (sessionStorage.getItem(KEY) === key) await askForKey(key ? "The server does not take this key." : "");
    return call(path, options);
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  const wait = response.headers.get("retry-after");
  throw new Error((told?.error?.message ?? `the server answers ${response.status}`) + (wait && !told ? ` (in ${wait} s)` : ""));
}

class NoKey extends Error {}
const reasonOf = (problem) => (problem instanceof TypeError ? "The server cannot be reached. Is it still running?" : problem.message);

let keyAsked = null; // two programs that are asked at once ask for it once
const askForKey = (told) => (keyAsked ??= keyGiven(told).finally(() => (keyAsked = null)));

function keyGiven(told) {
  sessionStorage.removeItem(KEY);
  $("key").returnValue = "";
  $("key").showModal();
  tellOfKey(told);
  return new Promise((resolve, reject) => $("key").addEventListener("close", () => {
    const key = $("key-value").value.trim();
    $("key-value").value = "";
    if ($("key").returnValue !== "given") return reject(new NoKey("This service asks for a key, and none was given."));
    sessionStorage.setItem(KEY, key);
    resolve();
  }, { once: true }));
}

function tellOfKey(told) {
  $("key-told").replaceChildren(...(told ? [make("p", { class: "error", role: "alert", text: told })] : []));
}

async function* eventsOf(response) {
  let text = "";
  for (const reader = response.body.pipeThrough(new TextDecoderStream()).getReader(); ;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const line = text.slice(0, end).split("\n").find((one) => one.startsWith("data: "));
      if (line) yield JSON.parse(line.slice(6));
    }
  }
}

// ---- a node of the tree

class NodeView {
  constructor(run, place, number) {
    this.run = run;
    this.place = place;
    this.passages = [];
    this.text = data("", "text");
    this.result = make("span", { class: "result", hidden: "" });
    this.why = make("span", { class: "why" });
    this.know = make("p", { hidden: "" });
    this.found = make("div");
    this.enough = make("p", { hidden: "" });
    this.steps = make("div");
    this.quote = make("p", { class: "evidence", hidden: "" });
    this.ungrounded = make("p", { class: "unread", text: UNGROUNDED, hidden: "" });
    this.children = make("ol", { class: "children", hidden: "" });
    this.line = make("div", { class: "line" }, number && make("span", { class: "number", text: `${number}.` }),
      make("p", {}, this.text, " ", this.result, " ", this.why));
    this.facts = make("div", { class: "facts" }, this.know, this.found, this.enough, this.steps, this.quote, this.ungrounded);
    this.element = make("li", { class: "node", "data-state": "waits" }, this.line, this.facts, this.children);
  }
  question(event) {
    this.text.textContent = shown(event.question);
    this.element.classList.toggle("long", event.question.length > LONG);
    // The question that was asked stands above the tree already, unless it was rewritten.
    this.line.hidden = event.node === "0" && event.question === this.run.asked.trim().replace(/\s+/g, " ");
    this.element.dataset.state = event.begun ? "works" : "waits";
    const names = event.waits_for.map((n) => `#${n}`).join(" and ");
    this.why.textContent = event.begun ? "working" : names ? `waits for ${names}` : "waits";
  }
  knows(judgement) { this.verdict(this.know, "Known by heart?", judgement, "know"); }
  suffice(judgement) { this.verdict(this.enough, "Do these suffice?", judgement, "sufficient"); }
  verdict(line, asked, { verdict, probability, readable }, yes) {
    const kind = !readable ? ["unread", "unreadable"] : verdict === yes ? ["yes", "yes"] : ["no", "no"];
    line.replaceChildren(`${asked} `, make("span", { class: `verdict ${kind[0]}`, text: kind[1] }), " ", share(probability) ?? "");
    line.hidden = false;
  }
  bring(passages) {
    this.passages = passages;
    this.drawn = passages.map((passage) => this.run.passage(passage, this.place));
    this.found.replaceChildren(...this.drawn);
  }
  judge(number, judgement) {
    this.passages[number - 1].judgement = judgement;
    const fresh = this.run.passage(this.passages[number - 1], this.place);
    fresh.open = this.drawn[number - 1].open;
    redraw(this.found, () => this.drawn[number - 1].replaceWith(fresh));
    this.drawn[number - 1] = fresh;
  }
  step(number, { generation, query, passages }) {
    const step = make("div", { class: "step" });
    if (generation && generation !== query) step.append(make("p", {}, data(generation, "quote")));
    if (query) step.append(make("p", {}, "searched ", data(query, "query")));
    step.append(...passages.map((passage) => this.run.passage(passage, `${this.place} ${number}`)));
    const old = this.steps.children[number - 1];
    old ? old.replaceWith(step) : this.steps.append(step);
    if (passages.length) this.found.hidden = true; // they stand below the searches that brought them
  }
  end({ answer, reason, evidence, readable, grounded, cited, found_afterwards, from_passage }) {
    this.element.dataset.state = "done";
    this.result.replaceChildren(data(readable ? answer : "unreadable"));
    this.result.classList.toggle("unknown", answer === "unknown");
    this.result.hidden = false;
    this.why.textContent = shown(reason);
    this.ungrounded.hidden = grounded !== false;
    if (evidence) {
      this.quote.replaceChildren(data(evidence, "quote"), " ", make("span", { class: "why" }, cited ? data(cited) : "",
        found_afterwards ? `${cited ? ", " : ""}found afterwards: the reader quoted nothing` : ""));
      this.quote.hidden = false;
      const own = [...(this.found.hidden ? this.steps : this.facts).querySelectorAll(".passage")];
      const relevant = own.filter((one, at) => from_passage ? at + 1 === from_passage : one.dataset.verdict === "relevant");
      highlight(evidence, relevant.length ? relevant : own);
    }
  }
}

// Marks the sentence that the evidence quotes: its very words, or else the one that shares most of its rare words. A
// passage's title counts with each of its sentences, since evidence says a name where the passage says "it".
function highlight(evidence, passages) {
  const words = (text) => new Set(text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []);
  const sentences = [];
  for (const passage of passages) {
    const place = passage.querySelector(".words"), text = place.textContent;
    const exact = text.indexOf(shown(evidence));
    if (exact >= 0) return mark(place, text, exact, exact + shown(evidence).length);
    for (const found of text.matchAll(/\S[^]*?(?:[.!?](?=\s|$)|$)/g)) {
      const here = words(`${passage.querySelector(".title").textContent} ${found[0]}`);
      sentences.push({ place, text, here, start: found.index, end: found.index + found[0].length });
    }
  }
  const weigh = (word) => Math.log(1 + sentences.length / (sentences.filter(({ here }) => here.has(word)).length || 0.5));
  const wanted = new Map([...words(evidence)].map((word) => [word, weigh(word)]));
  const sum = (list) => list.reduce((total, word) => total + wanted.get(word), 0);
  const all = sum([...wanted.keys()]);
  let best = null, most = 0.65;
  for (const one of sentences) {
    const score = sum([...wanted.keys()].filter((word) => one.here.has(word))) / all;
    if (score > most) [best, most] = [one, score];
  }
  if (best) mark(best.place, best.text, best.start, best.end);
}

function mark(place, text, start, end) {
  const lead = start + (text.slice(start, end).length - text.slice(start, end).trimStart().length);
  place.replaceChildren(text.slice(0, lead), make("mark", { text: text.slice(lead, end) }), text.slice(end));
  place.closest("details").open = true;
}

// The passages that the answer was made from, as `cited_passages` of raisf.serving.sources finds them.
function citedIn(root) {
  const found = new Map(), seen = new Set();
  const every = (node) => [node, ...node.sub_questions.flatMap(every)];
  const plain = (text) => (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).join(" ");
  const alike = (one, other) => one.answer === other.answer && plain(one.question) === plain(other.question);
  const visit = (given) => {
    const node = given.route === "duplicate" ? every(root).find((one) => alike(one, given)) : given;
    if (node.answer === "unknown" || seen.has(node)) return;
    seen.add(node);
    const composed = node.route === "decomposed", taken = node.from_passage;
    const relevant = node.passages.filter((one, at) => taken ? at + 1 === taken : one.judgement?.verdict === "relevant");
    const read = composed || relevant.length ? relevant : node.passages;
    if (composed || ["passages", "acted"].includes(node.route)) for (const one of read) if (!found.has(one.pid)) found.set(one.pid, one);
    if (composed) node.sub_questions.forEach(visit);
  };
  visit(root);
  return [...found.values()];
}

// ---- one program's answer to one question

class RunView {
  constructor(question, program) {
    Object.assign(this, { asked: question, program, nodes: {}, cost: null, started: performance.now() });
    this.answer = make("p", { class: "answer working", text: "Working" });
    this.figures = make("p", { class: "cost" });
    this.cited = make("div", { class: "cited" });
    this.tree = make("ol", { class: "tree", "aria-label": `How ${program} answered` });
    this.foot = make("div");
    const head = make("header", {}, make("h2", { class: "asked", text: question, dir: "auto" }), this.answer, this.cited, this.figures);
    this.element = make("article", { class: "run", "aria-label": `${program}: ${question.slice(0, 100)}` }, head, this.tree, this.foot);
    this.drawCost();
  }
  passage(passage, place) {
    const { judgement, probability = judgement?.probability } = passage;
    const relevant = judgement?.verdict === "relevant";
    const [kind, said] = !judgement ? ["p", "·"] : !judgement.readable ? ["unread", "?"] : relevant ? ["yes", "✓"] : ["no", "✗"];
    const spoken = !judgement ? "not judged" : !judgement.readable ? "unreadable" : relevant ? "relevant" : "not relevant";
    const title = passage.title || passage.citation || passage.pid;
    const head = make("summary", {},
      make("span", { class: `verdict ${kind}` }, make("span", { "aria-hidden": "true", text: said }), make("span", { class: "unseen", text: spoken })),
      share(probability), data(title, "title"), make("span", { class: "start", text: passage.text.slice(0, 120), "aria-hidden": "true" }));
    const open = make("button", { type: "button", text: passage.citation ? `Source: ${passage.citation}` : "Source", on: () => openSource(this.program, passage) });
    const whole = make("div", { class: "whole" }, make("p", { class: "words", dir: "auto", text: passage.text }), open);
    return make("details", { class: "passage", "data-verdict": judgement?.verdict, "data-key": `${place} ${passage.pid}` }, head, whole);
  }
  node(place) {
    if (!this.nodes[place]) {
      const parent = place.includes(".") ? this.node(place.slice(0, place.lastIndexOf("."))) : null;
      this.nodes[place] = new NodeView(this, place, parent && place.slice(place.lastIndexOf(".") + 1));
      (parent?.children ?? this.tree).append(this.nodes[place].element);
      if (parent) parent.children.hidden = false;
    }
    return this.nodes[place];
  }
  take(event) {
    const node = event.node && this.node(event.node);
    if (event.type === "question") node.question(event);
    else if (event.type === "know") node.knows(event.judgement);
    else if (event.type === "passages") node.bring(event.passages);
    else if (event.type === "judgement") node.judge(event.passage, event.judgement);
    else if (event.type === "sufficiency") node.suffice(event.judgement);
    else if (event.type === "step") node.step(event.number, event.step);
    else if (event.type === "answer") node.end(event);
    else if (event.type === "cost") { this.cost = event.cost; this.drawCost(); }
    else if (event.type === "done") this.done(event.answer, event.trace, event.confidence);
    else if (event.type === "error") throw new Error(event.message);
  }
  done(answer, trace, confidence = null) {
    Object.assign(this, { state: "answered", said: answer, trace, confidence, cost: trace?.cost ?? this.cost });
    this.answer.classList.remove("working");
    this.answer.replaceChildren(data(answer || "unknown"));
    this.answer.classList.toggle("unknown", answer === "unknown");
    if (trace) redraw(this.tree, () => this.draw(trace));
    this.drawCost();
  }
  draw(trace) { // the whole tree anew, in which repeated work is shown once
    const open = new Set([...this.tree.querySelectorAll("details[open]")].map((one) => one.dataset.key));
    this.nodes = {};
    this.tree.replaceChildren();
    const visit = (node, place) => {
      this.take({ type: "question", node: place, question: node.question, waits_for: node.waits_for, begun: true });
      if (node.know) this.take({ type: "know", node: place, judgement: node.know });
      if (node.passages.length) this.take({ type: "passages", node: place, passages: node.passages });
      if (node.sufficient) this.take({ type: "sufficiency", node: place, judgement: node.sufficient });
      node.steps.forEach((step, at) => this.take({ type: "step", node: place, number: at + 1, step }));
      node.sub_questions.forEach((child, at) => visit(child, `${place}.${at + 1}`));
      this.take({ ...node, type: "answer", node: place });
    };
    visit(trace.root, "0");
    for (const one of this.tree.querySelectorAll("details")) one.open ||= open.has(one.dataset.key);
    this.reason = trace.root.reason;
    this.cited.replaceChildren(...citedIn(trace.root).slice(0, 8).map((one) =>
      make("button", { type: "button", text: one.title || one.citation || one.pid, title: one.citation || "Source", on: () => openSource(this.program, one) })));
  }
  drawCost() {
    const told = [make("span", { class: "program", text: this.program })];
    if (this.reason) told.push(data(this.reason));
    if (this.confidence != null) {
      const text = `confidence ${this.confidence.toFixed(2)}`;
      told.push(make("span", { class: this.confidence < 0.5 ? "unread" : null, text, title: CONFIDENCE }));
    }
    this.figures.replaceChildren(...told, ...this.spent().map((text) => make("span", { text })));
  }
  spent() {
    if (!this.cost && this.reopened) return [];
    const cost = this.cost ?? { lm_calls: 0, prompt_tokens: 0, completion_tokens: 0, retrievals: 0 };
    const uncounted = cost.unmetered_calls ? ` (${plural(cost.unmetered_calls, "call")} cached or uncounted)` : "";
    const told = [plural(cost.lm_calls, "LM call"), plural(cost.prompt_tokens + cost.completion_tokens, "token") + uncounted];
    const untold = this.state === "answered" && !this.trace && !cost.retrievals; // a module of one's own, whose searches nobody counts
    if (!untold) told.push(plural(cost.retrievals, "search", "searches"));
    const seconds = this.state && this.cost ? cost.seconds : this.elapsed();
    return [...told, `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`];
  }
  elapsed() { return (performance.now() - this.started) / 1000; }
  fail(message, state = "failed", again = "Ask again") {
    Object.assign(this, { state, said: message });
    if (this.cost && !this.reopened) this.cost = { ...this.cost, seconds: this.elapsed() }; // its own are of the last change
    const failed = state === "failed";
    this.answer.classList.remove("working");
    this.answer.textContent = failed ? "No answer" : "Stopped";
    this.foot.replaceChildren(make("p", { class: failed ? "error" : "error muted", role: failed ? "alert" : "status", text: message }),
      make("button", { type: "button", class: "again", text: again, on: () => askAll(this.asked, [this.program]) }));
    for (const node of Object.values(this.nodes)) if (node.element.dataset.state !== "done") node.why.textContent = "not finished";
  }
}

// ---- asking

const STOPPED = "You stopped this question.", LEFT = "You left this question before the answer came, which stopped it.";
let asking = null;
let current = null; // the id of the question that is shown

async function answer(view, signal) {
  const ticking = setInterval(() => view.drawCost(), 100);
  try {
    const body = JSON.stringify({ question: view.asked, program: view.program });
    const response = await call("/ask", { method: "POST", body, signal, headers: { "Content-Type": "application/json" } });
    for await (const event of eventsOf(response)) view.take(event);
    if (!view.state) throw new Error("the connection ended before the answer came");
  } catch (problem) {
    if (signal.aborted) view.fail(signal.reason, "stopped");
    else view.fail(reasonOf(problem), "failed", problem instanceof NoKey ? "Enter key" : "Ask again");
  } finally {
    clearInterval(ticking);
    view.drawCost();
  }
}

async function askAll(question, programs) {
  asking?.abort(LEFT);
  const mine = (asking = new AbortController());
  const views = programs.map((program) => new RunView(question, program));
  const entry = { id: Date.now().toString(36), question, runs: programs.map((program) => ({ program })) };
  remember(entry);
  show(views, entry.id);
  busy(true, "Working");
  await Promise.all(views.map((view) => answer(view, mine.signal)));
  entry.runs = views.map(({ program, state, said, confidence, cost, trace }) => ({ program, state, answer: said, confidence, cost, trace: trace ?? null }));
  if (past().some((one) => one.id === entry.id)) remember(entry); // else it was to be forgotten
  if (asking === mine) {
    asking = null;
    busy(false, views.map((view) => `${view.program}: ${view.said}`).join(". "));
  }
}

function show(views, id) {
  keepFocus($("runs"));
  $("empty").hidden = true;
  $("runs").replaceChildren(...views.map((view) => view.element));
  current = id;
  if (location.hash !== `#q=${id}`) history.pushState(null, "", `#q=${id}`);
  drawPast();
}

function showNothing() {
  asking?.abort(LEFT);
  keepFocus($("runs"));
  $("runs").replaceChildren();
  $("empty").hidden = false;
  $("question").value = "";
  current = null;
  drawPast();
}

// Before something goes that may hold the focus: who types would be nowhere then.
function keepFocus(element) {
  if (element.contains(document.activeElement)) $("question").focus();
}

function hide(element, hidden) {
  if (hidden) keepFocus(element);
  element.hidden = hidden;
}

function busy(now, told) {
  hide($("stop"), !now);
  $("status").textContent = shown(told.slice(0, 300));
}

// ---- past questions

function past() {
  try { return JSON.parse(localStorage.getItem(PAST)) ?? []; } catch { return []; }
}

function remember(entry) {
  const small = JSON.stringify(entry).length > LARGEST ? { ...entry, runs: entry.runs.map((run) => ({ ...run, trace: null, cut: !!run.trace })) } : entry;
  let kept = [small, ...past().filter((one) => one.id !== entry.id)].slice(0, MOST_PAST);
  while (kept.length) {
    try { localStorage.setItem(PAST, JSON.stringify(kept)); break; } catch { kept = kept.slice(0, -1); }
  }
  drawPast();
}

function drawPast() {
  const entries = past();
  redraw($("past"), () => $("past").replaceChildren(...entries.map((entry) => make("li", { "data-key": entry.id }, make("button", {
    type: "button", "aria-current": entry.id === current ? "true" : null, on: () => reopen(entry),
  }, make("span", { class: "q", text: entry.question.slice(0, 200), dir: "auto" }),
    make("span", { class: "a", text: entry.runs.map((run) => run.answer ?? "not finished").join(" · ").slice(0, 200), dir: "auto" }))))));
  $("none").hidden = entries.length > 0;
  hide($("forget"), !entries.length);
}

function reopen(entry) {
  if (asking && entry.id === current) return; // it is under way, and shown
  asking?.abort(LEFT);
  const views = entry.runs.map((run) => {
    const view = Object.assign(new RunView(entry.question, run.program), { reopened: true, cost: run.cost ?? null });
    if (run.trace || run.state === "answered") view.done(run.answer, run.trace, run.confidence);
    else view.fail(run.answer ?? "The page was left before the answer came.", run.state ?? "stopped");
    if (run.cut) view.foot.append(make("p", { class: "error muted", text: "Its tree was too large to be kept in this browser." }));
    view.drawCost();
    return view;
  });
  $("question").value = entry.question;
  show(views, entry.id);
}

// ---- sources

let opening = 0; // counts: what comes late for one that was opened before is not shown

// The checksum that tells the server which text was read: an index that has changed may have another under the same id.
function crc32(text) {
  let sum = -1;
  for (const byte of new TextEncoder().encode(text)) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (~sum >>> 0).toString(16).padStart(8, "0");
}

// Opens a passage of an answer, or the one that a link names, which has the checksum alone.
async function openSource(program, { pid, text = null, sum = text === null ? null : crc32(text) }) {
  const mine = ++opening;
  const body = $("source-body"), file = $("source-file");
  $("source-title").textContent = "Source";
  body.replaceChildren(make("p", { class: "muted", text: "Loading" }));
  file.replaceChildren();
  if (!$("source").open) $("source").showModal();
  try {
    const where = new URLSearchParams({ program, pid, ...(sum && { sum }) });
    const { passage, context } = await (await call(`/source?${where}`)).json();
    if (mine !== opening) return;
    $("source-title").textContent = shown([...new Set([passage.title, passage.metadata.section])].filter(Boolean).join(", ") || passage.citation);
    body.replaceChildren(make("p", { class: "muted", text: passage.citation }),
      ...context.map((one) => make("p", { class: one.pid === passage.pid ? "here" : "near", text: one.text, dir: "auto" })));
    if (documents && passage.source) file.replaceChildren(make("button", { type: "button", text: `Open ${passage.source}`, on: () => openFile(program, passage) }));
  } catch (problem) {
    if (mine !== opening) return;
    body.replaceChildren(make("p", { class: "error", role: "alert", text: reasonOf(problem) }));
    if (text !== null) body.append(make("p", { class: "muted", text: "The answer was read from:" }), make("p", { class: "here", text, dir: "auto" }));
  }
}

// The program and the passage that the link of a citation names; null where the address has none.
function linked(hash) {
  const [source, sum] = ["source=", "sum="].map((name) => hash.slice(1).split("&").find((one) => one.startsWith(name))?.slice(name.length));
  if (source === undefined) return null;
  const [first, ...rest] = source.split("/"); // before it is decoded: a name may hold one
  const [program, pid] = [first, rest.join("/")].map((part) => new URLSearchParams(`_=${part}`).get("_"));
  return [program, { pid, sum }];
}

// Shows what the address names: a source above all else, a question of the past, or nothing. Any other name is a place
// on this page.
function follow() {
  const named = linked(location.hash);
  if (named) return openSource(...named);
  if ($("source").open) $("source").close();
  const id = new URLSearchParams(location.hash.slice(1)).get("q");
  if (id === current || (location.hash && id === null)) return;
  const entry = past().find((one) => one.id === id);
  entry ? reopen(entry) : showNothing();
}

// What finds a passage in a text file, for an address: its first words as they stand there, without the headings above.
function fragment({ text, metadata }) {
  const above = metadata.section ? `${metadata.section.replace(/[ :]+$/, "")}: ` : "";
  const own = text.startsWith(above) ? text.slice(above.length) : text;
  const start = [...own].slice(0, 80).join("");
  const words = start === own ? own : start.replace(/(?<=^[^]{40,})\s+\S*$/, ""); // a fragment ends where a word does
  return `#:~:text=${encodeURIComponent(words).replaceAll("-", "%2D")}`;
}

async function openFile(program, passage) {
  const tab = window.open("about:blank"); // before anything is awaited, or it counts as a pop-up
  try {
    const response = await call(`/document?${new URLSearchParams({ program, source: passage.source })}`);
    const place = passage.metadata.page ? `#page=${passage.metadata.page}` : fragment(passage);
    const file = URL.createObjectURL(await response.blob());
    if (response.headers.get("content-disposition")) { // a browser would show its bytes
      tab?.close();
      make("a", { href: file, download: passage.source.split("/").pop() }).click();
    } else if (tab) tab.location = file + place;
    else $("source-file").replaceChildren(make("p", { class: "error", role: "alert", text: "The browser keeps this page from opening a tab. Allow it, or follow the link:" }),
      make("a", { href: file + place, target: "_blank", text: passage.source }));
  } catch (problem) {
    tab?.close();
    $("source-file").replaceChildren(make("p", { class: "error", role: "alert", text: reasonOf(problem) }));
  }
}

// ---- the start

let documents = false, listing = null;

// Whether the programs are listed; asks the server for them until it has told them.
const listed = () => (listing ??= list());

async function list() {
  try {
    const served = await (await call("/programs")).json();
    documents = served.documents;
    for (const { name, about } of served.programs) {
      $("program").append(make("option", { value: name, text: name, title: about }));
      $("other").append(make("option", { value: name, text: name, title: about }));
    }
    $("other-label").hidden = served.programs.length < 2;
    const indexes = [...new Set(served.programs.map((one) => one.index).filter(Boolean))];
    $("serving").textContent = shown(indexes.length ? `over ${indexes.join(", ")}` : served.programs.map((one) => one.name).join(", "));
    $("trouble").replaceChildren();
    return true;
  } catch (problem) {
    listing = null;
    $("trouble").replaceChildren(make("p", { class: "error", role: "alert", text: reasonOf(problem) }),
      make("button", { type: "button", class: "again", text: problem instanceof NoKey ? "Enter key" : "Try again", on: start }));
    return false;
  }
}

async function start() {
  if (await listed()) follow();
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const question = $("question").value.trim();
  if (question && (await listed())) askAll(question, [...new Set([$("program").value, $("other").value].filter(Boolean))]);
});
// Whether a key chooses or leaves what an input method offers: Safari says so of the last one by its code alone.
const composes = (event) => event.isComposing || event.keyCode === 229;
$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !composes(event)) { event.preventDefault(); $("form").requestSubmit(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !composes(event) && !document.querySelector("dialog[open]")) asking?.abort(STOPPED);
  if (event.key === "/" && !/^(TEXTAREA|INPUT|SELECT)$/.test(document.activeElement.tagName)) { event.preventDefault(); $("question").focus(); }
});
$("key-form").addEventListener("submit", (event) => {
  if (ASCII.test($("key-value").value.trim())) return;
  event.preventDefault(); // no header can carry it
  tellOfKey("A key is of ASCII characters only, and this one has others.");
});
$("stop").addEventListener("click", () => asking?.abort(STOPPED));
$("forget").addEventListener("click", () => { asking?.abort(STOPPED); localStorage.removeItem(PAST); drawPast(); });
$("source").addEventListener("close", () => { // a link's source is closed for good: a reload shows what is shown now
  if (linked(location.hash)) history.replaceState(null, "", current ? `#q=${current}` : location.pathname);
});
$("history-toggle").addEventListener("click", () => {
  $("history-toggle").setAttribute("aria-expanded", String($("history").classList.toggle("shown")));
});
for (const close of document.querySelectorAll("[data-close]")) close.addEventListener("click", () => close.closest("dialog").close());

$("form").hidden = false;
$("question").focus();
drawPast();
if (!linked(location.hash)) follow();
window.addEventListener("hashchange", follow); // the back button's too: each question has an address of its own
await start();
