// Elements are made of text nodes only: nothing in a record is ever read as markup.

/** An element: attributes by name, `class` and listeners (`onclick`) among them; null and false are left out. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : visible(child))));
  return made;
}

const LONG = 1200; // characters; more are shown on demand
const CLIPPED = 300; // of a table's cell

/** What a record says, in its own direction; long text is cut, with a button that shows the rest. */
function said(text, tag = "span", name = "") {
  const all = String(text ?? "");
  const made = el(tag, { class: `data ${name}`, dir: "auto" }, all.slice(0, LONG));
  if (all.length > LONG) {
    const more = el("button", { type: "button", onclick: () => { more.remove(); made.append(visible(all.slice(LONG))); } },
      `show all ${all.length.toLocaleString("en")} characters`);
    made.append("… ", more);
  }
  return made;
}

/** One line of what a record says, cut to what a table's cell can show. */
function clip(text) {
  return el("span", { class: "clip", dir: "auto" }, String(text ?? "").slice(0, CLIPPED));
}

const embedded = document.getElementById("summary") !== null;

/** A part of the data: "summary" or "block-N"; embedded in the page, or asked of the server. */
async function load(name, version) {
  if (embedded) return JSON.parse(document.getElementById(name).textContent);
  const reply = await fetch(`data/${name}.json` + (version ? `?version=${version}` : ""));
  if (reply.status === 410) { location.reload(); await new Promise(() => {}); }
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

let data = null; // the summary, once it is there
const blocks = new Map();

/** The trees of a question, by run, and the texts of passages by id. */
async function treesOf(place) {
  const number = Math.floor(place / data.block);
  if (!blocks.has(number)) {
    if (blocks.size > 8) blocks.delete(blocks.keys().next().value);
    const coming = load(`block-${number}`, data.version);
    coming.catch(() => blocks.delete(number)); // to be asked for again
    blocks.set(number, coming);
  }
  const block = await blocks.get(number);
  return { trees: block.trees[place % data.block], texts: block.texts };
}

/** Names that a link can keep: ids, numbered where two questions share one. */
function nameQuestions() {
  const seen = new Map();
  data.places = new Map();
  data.questions.forEach((question, place) => {
    const count = (seen.get(question.id) || 0) + 1;
    seen.set(question.id, count);
    question.name = count === 1 ? question.id : `${question.id}~${count}`;
    data.places.set(question.name, place);
  });
}

// Halves go to the even digit, as in the terminal and in reports: toFixed makes 6.3 of 6.25.
const PERCENT = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1, roundingMode: "halfEven" });
const percent = (share) => PERCENT.format(100 * share);
const number = (value, digits = 1) => (value === null || value === undefined ? "–" : value.toFixed(digits));

// The state is the address's fragment, so that every view is a link.
function state() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** A link to a view: the state with some of it changed; "" and null leave a name out. */
function link(changes, from = state()) {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...from, ...changes })) {
    if (value !== null && value !== undefined && value !== "") all.set(name, value);
  }
  return "#" + all.toString();
}

const runOf = (label) => data.runs.findIndex((run) => run.label === label);
