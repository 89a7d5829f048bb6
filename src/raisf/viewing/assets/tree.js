// One question: gold, and the trees of one or two runs beside it.

const probability = (one) => (one && typeof one.probability === "number" ? ` p=${one.probability.toFixed(2)}` : "");
const badge = (text, kind = "") => el("span", { class: `badge ${kind}` }, text);

/** A text with the sentence that was quoted from it marked, up to white space. */
function highlighted(text, evidence) {
  const words = (evidence || "").trim().split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const found = words.length && words.length < 200 ? new RegExp(words.join("\\s+"), "i").exec(text) : null;
  if (!found) return said(text);
  const end = found.index + found[0].length;
  return el("span", { class: "data", dir: "auto" }, text.slice(0, found.index), el("mark", {}, found[0]), text.slice(end));
}

function passageItem(passage, number, context, node, wrong) {
  const judgement = passage.judgement;
  const relevant = judgement?.verdict === "relevant";
  const { gold_pids: pids, gold_titles: titles } = context.gold;
  const gold = pids?.length ? pids.includes(passage.pid) : titles?.includes(passage.title);
  const says = wrong.find((error) => error[2] === number);
  const text = passage.text || (context.texts[passage.pid] || [])[1] || "";
  const mark = !judgement ? ["·", "muted", "not judged"] : judgement.readable === false ? ["?", "warn", "unreadable"] : relevant ? ["✓", "good", "relevant"] : ["✗", "bad", "irrelevant"];
  const heading = [
    el("span", { class: mark[1], "aria-hidden": "true" }, mark[0] + " "), el("span", { class: "sr" }, mark[2] + ": "),
    el("strong", {}, said(passage.title || passage.pid)),
    el("span", { class: "muted" }, judgement?.readable === false ? " unreadable" : probability(judgement), typeof passage.score === "number" ? ` score ${passage.score.toFixed(2)}` : ""), " ",
    gold && says?.[1] === "irrelevant" ? badge("gold, but not enough alone", "bad") : [gold && badge("gold passage", "good"), " ", says && badge(`gold says ${says[1]}`, "bad")],
    passage.citation && el("span", { class: "muted small" }, " ", said(passage.citation)),
  ];
  if (!text) return el("li", {}, heading);
  return el("li", {}, el("details", { open: relevant || undefined }, el("summary", {}, heading), el("p", {}, highlighted(text, relevant || !judgement ? node.evidence : ""))));
}

function passageList(passages, context, node, wrong = []) {
  if (!Array.isArray(passages) || !passages.length) return null;
  return el("ul", { class: "passages" }, passages.map((one, number) => passageItem(one, number, context, node, wrong)));
}

function knowLine(node, wrong) {
  if (!node.know) return null;
  const told = { know: "yes", unknown: "no" }[node.know.verdict] || "unreadable";
  return el("p", {}, el("span", { class: "muted" }, "knows it? "), told, el("span", { class: "muted" }, probability(node.know)), " ",
    wrong.map((error) => badge(`gold says ${error[1]}`, "bad")));
}

function enoughLine(node) {
  if (!node.sufficient) return null;
  const told = { sufficient: "yes", insufficient: "no" }[node.sufficient.verdict] || "unreadable";
  return el("p", {}, el("span", { class: "muted" }, "do these suffice? "), told, el("span", { class: "muted" }, probability(node.sufficient)));
}

function stepLine(step, context, node) {
  return [
    step.generation && step.generation !== step.query && el("p", {}, said(step.generation)),
    step.query && el("p", {}, el("span", { class: "muted" }, "searched "), said(step.query)),
    passageList(step.passages, context, node),
  ];
}

/** A node of a tree, with those below it. */
function nodeItem(node, place, context) {
  const wrongs = (judge) => (context.errors[judge] || []).filter((error) => error[0] === place);
  const answered = node.answer && node.answer !== "unknown";
  const steps = Array.isArray(node.steps) ? node.steps : [];
  const subs = Array.isArray(node.sub_questions) ? node.sub_questions : [];
  return el("li", {}, el("details", { class: "node", open: true },
    el("summary", {}, said(node.question, "span", "q"), " → ", said(node.answer || "unknown", "span", answered ? "a" : "a warn"), " ",
      badge(node.route || "–"), node.readable === false && badge("unreadable", "warn"), wrongs("decomposition").map((error) => badge(`gold has ${error[1]}`, "bad"))),
    el("div", { class: "body" },
      node.reason && el("p", { class: "muted" }, said(node.reason), typeof node.seconds === "number" ? `, ${node.seconds.toFixed(2)} s` : ""),
      knowLine(node, wrongs("know")),
      steps.map((step) => stepLine(step, context, node)),
      !steps.some((step) => step.passages?.length) && passageList(node.passages, context, node, wrongs("relevance")),
      enoughLine(node),
      node.evidence && el("blockquote", {}, said(node.evidence), (node.cited || node.found_afterwards) && el("span", { class: "muted small" }, " ",
        node.cited && said(node.cited), node.found_afterwards && `${node.cited ? ", " : ""}found afterwards: the reader quoted nothing`)),
      node.grounded === false && el("p", { class: "warn" }, "The answer stands in none of the passages read.")),
    subs.length > 0 && el("ol", { class: "subs" }, subs.map((sub, number) => nodeItem(sub, `${place}.${number + 1}`, context)))));
}

function costLine(trace) {
  const cost = trace.cost || {};
  const several = (n, what) => `${n ?? "?"} ${what}${n === 1 ? "" : "s"}`;
  const untold = cost.unmetered_calls ? ` (${several(cost.unmetered_calls, "call")} cached or uncounted)` : "";
  const parts = [several(cost.lm_calls, "LM call"), `${cost.prompt_tokens ?? "?"} + ${cost.completion_tokens ?? "?"} tokens${untold}`, several(cost.retrievals, "retrieval"), `${number(cost.seconds, 2)} s`];
  const lost = [trace.failed && several(trace.failed, "failed call"), trace.unreadable && `${trace.unreadable} unreadable`].filter(Boolean);
  return el("p", { class: "muted small" }, parts.join(" · "), lost.map((one) => el("span", { class: "warn" }, ` · ${one}`)));
}

function side(run, place, found) {
  const answer = data.answers[run][place];
  const made = el("section", { class: "side", "aria-label": visible(data.runs[run].label) }, el("h2", { dir: "auto" }, data.runs[run].label));
  if (!answer) { made.append(el("p", { class: "muted" }, "did not answer this question")); return made; }
  const good = right(answer);
  if (answer.error) made.append(el("p", { class: "bad" }, said(answer.error)));
  else made.append(el("p", { class: "answer" }, el("span", { class: good ? "good" : "bad" }, good ? "✓ right: " : "✗ wrong: "), said(answer.prediction), el("span", { class: "muted small" }, ` F1 ${percent(answer.f1)}%`)));
  const trace = found.trees[run];
  if (!trace || typeof trace.root !== "object" || !trace.root) { made.append(el("p", { class: "muted" }, "This run keeps no trace.")); return made; }
  try {
    const context = { texts: found.texts[data.runs[run].texts] || {}, gold: data.questions[place].gold, errors: answer.judges };
    made.append(costLine(trace), el("ul", { class: "tree" }, nodeItem(trace.root, "0", context)));
  } catch (error) {
    made.append(el("p", { class: "warn" }, `This trace cannot be shown: ${error.message}`));
  }
  return made;
}

function goldPanel(question) {
  const gold = question.gold, asked = Array.isArray(gold.sub_questions) ? gold.sub_questions : [];
  const list = (name, values) => Array.isArray(values) && values.length > 0 && el("p", { class: "small" }, el("span", { class: "muted" }, name), values.map((value, i) => [i ? ", " : "", said(value)]));
  return el("section", { class: "gold", "aria-label": "Gold" },
    el("p", {}, el("strong", {}, "gold: "), question.answers.map((answer, i) => [i ? " / " : "", said(answer)]), " ", question.kind && badge(question.kind), " ",
      typeof gold.known === "boolean" && badge(gold.known ? "known" : "not known")),
    asked.length > 0 && el("ol", { class: "small" }, asked.map((text, i) => el("li", {}, said(text), gold.sub_answers?.[i] !== undefined && [" → ", said(gold.sub_answers[i])]))),
    list("passages: ", (gold.gold_titles?.length ? gold.gold_titles : gold.gold_pids)?.filter((_, i) => gold.gold_pids?.[i] !== "")));
}

/** The third page. */
async function questionView(now) {
  const place = data.places.get(now.id);
  if (place === undefined) return [el("h1", { tabindex: "-1" }, "No such question"), el("p", {}, "No question has the id ", el("code", {}, now.id || ""), " here. ", el("a", { href: link({ view: "questions", id: "" }) }, "All questions"))];
  const { a, b } = sides(now), question = data.questions[place];
  const found = await treesOf(place);
  const list = filtered(now), at = list.indexOf(place);
  const go = (to, text, key) => to >= 0 && to < list.length
    ? el("a", { class: "button", href: link({ id: data.questions[list[to]].name }), "data-key": key }, text) : el("span", { class: "button muted", "aria-disabled": "true" }, text);
  const others = data.runs.map((run, i) => el("li", {}, el("a", { href: link(i === a ? {} : { b: run.label }), "aria-current": i === a || i === b ? "true" : null }, verdict(data.answers[i][place]), " ", el("bdi", {}, run.label))));
  return [
    el("div", { class: "pages" }, el("a", { class: "button", href: link({ view: "questions", id: "", page: at < 0 ? "" : Math.floor(at / PAGE) || "" }), "data-key": "Escape" }, "↑ all questions"),
      go(at < 0 ? -1 : at - 1, "← previous", "k"), go(at < 0 ? -1 : at + 1, "next →", "j"), at >= 0 && el("span", { class: "muted" }, `${at + 1} of ${list.length}`)),
    el("h1", { tabindex: "-1" }, said(question.question)),
    el("p", { class: "muted small" }, "id ", el("code", { dir: "auto" }, question.id)),
    goldPanel(question),
    data.runs.length > 1 && el("ul", { class: "others", "aria-label": "This question in all runs; a link puts the run beside A" }, others),
    el("div", { class: "sides" }, side(a, place, found), b >= 0 && side(b, place, found)),
    !data.texts && el("p", { class: "muted small" }, "Records hold no passages' texts: give the index that was searched with --index to see them."),
  ];
}
