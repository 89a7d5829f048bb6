"""What the page's script does by itself, without a browser."""

from urllib.parse import quote

from raisf.serving.sources import sum_of
from tests.raisf.serving.page_script import run_in_node

PLACES = """
const places = {}, documents = false, shown = String, reasonOf = (problem) => problem.message;
const place = () => ({ showModal() { this.open = true; }, replaceChildren(...held) { this.held = held; } });
const $ = (id) => (places[id] ??= place());
const make = (tag, { text }) => text;
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
"""


def test_of_two_sources_the_one_that_was_opened_last_is_shown() -> None:
    """The answer, or the failure, that came later took the place of the other's."""
    work = f"""{PLACES} let opening = 0;
    const call = async (path) => {{
      const pid = new URLSearchParams(path.split("?")[1]).get("pid");
      await wait(pid === "last" ? 1 : 100);
      if (pid === "broken") throw new Error("gone");
      const passage = {{ pid, title: pid, text: pid, metadata: {{}} }};
      return {{ json: async () => ({{ passage, context: [passage] }}) }};
    }};
    await Promise.all(["slow", "broken", "last"].map((pid) => openSource("rag", {{ pid }})));
    console.log(JSON.stringify([$("source-title").textContent, $("source-body").held.at(-1)]));"""
    assert run_in_node(work, "openSource") == ["last", "last"]


def test_a_source_that_is_no_longer_there_is_shown_as_the_answer_read_it() -> None:
    work = f"""{PLACES} let opening = 0, asked;
    const call = async (path) => {{ asked = path; throw new Error("it has changed"); }};
    $("source-body").append = function (...more) {{ this.held.push(...more); }};
    await openSource("rag", {{ pid: "a.md#1", text: "Zürich, 100 €" }});
    console.log(JSON.stringify([asked, $("source-body").held]));"""
    asked, shown = run_in_node(work, "openSource", "crc32")
    assert asked == f"/source?program=rag&pid=a.md%231&sum={sum_of('Zürich, 100 €')}"
    assert shown == ["it has changed", "The answer was read from:", "Zürich, 100 €"]


def test_a_passage_is_found_in_its_file_by_whole_words_that_stand_there() -> None:
    text = "Cars, bicycles and drop-off places of " + "the whole town " * 9
    work = f"""
    const of = (text, section) => fragment({{ text, metadata: {{ section }} }});
    console.log(JSON.stringify([of("Parking: {text}", "Parking :"), of("Ada: at 5%"), of("河".repeat(90))]));"""
    found, *others = run_in_node(work, "fragment")
    assert found == f"#:~:text={quote(text[:77]).replace('-', '%2D')}"
    assert others == ["#:~:text=Ada%3A%20at%205%25", f"#:~:text={quote('河' * 80)}"]


def test_a_long_run_of_dots_does_not_hold_up_the_page() -> None:
    """With fifty thousand of them, as of a table of contents, the tab stood still."""
    work = """
    const text = `${".".repeat(1e6)}x and more. The river ends there... It does! End.`, marked = [];
    const mark = (place, text, start, end) => marked.push(text.slice(start, end)), shown = String;
    const passage = { querySelector: (part) => ({ textContent: part === ".words" ? text : "" }) };
    highlight("So the river ends there", [passage]);
    console.log(JSON.stringify(marked));"""
    assert run_in_node(work, "highlight") == ["The river ends there..."]
