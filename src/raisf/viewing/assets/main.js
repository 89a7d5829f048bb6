// From the address to a page, and the keys.

const VIEWS = { questions: questionsView, question: questionView };
let turn = 0;

async function render() {
  const mine = ++turn, now = state(), main = document.querySelector("main");
  let made;
  try {
    made = await (VIEWS[now.view] || runsView)(now);
  } catch (error) {
    made = [el("h1", { tabindex: "-1" }, "This cannot be shown"), el("p", { class: "bad" }, error.message)];
  }
  if (mine !== turn) return; // another address was asked for meanwhile
  const before = document.activeElement?.name;
  main.replaceChildren(...[made].flat(Infinity).filter(Boolean));
  document.querySelectorAll("header nav a").forEach((one) => {
    const here = one.dataset.view === (now.view || "");
    if (here) one.setAttribute("aria-current", "page"); else one.removeAttribute("aria-current");
    if (one.dataset.view) one.href = link({ view: one.dataset.view, id: "" });
  });
  const heading = main.querySelector("h1");
  document.title = `${heading?.textContent.slice(0, 80) ?? ""} · raisf view`;
  // Who changed a filter goes on there; who came to another page begins at its heading.
  const field = before && main.querySelector(`[name="${CSS.escape(before)}"]`);
  (field || heading)?.focus({ preventScroll: true });
  if (!field) scrollTo(0, 0);
}

// The address's fragment is the state, so this link moves the focus by itself.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.querySelector("main").focus();
});
addEventListener("hashchange", render);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "/") { const field = document.querySelector("input[type=search]"); if (field) { event.preventDefault(); field.focus(); } return; }
  document.querySelector(`[data-key="${CSS.escape(event.key)}"]`)?.click();
});

(async () => {
  try {
    data = await load("summary");
    nameQuestions();
    document.querySelector("header strong").textContent = visible(data.title);
    await render();
  } catch (error) {
    document.querySelector("main").replaceChildren(el("h1", {}, "This cannot be shown"), el("p", { class: "bad" }, error.message));
  }
})();
