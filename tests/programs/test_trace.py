"""The tree that a user sees in the terminal."""

import io

from rich.console import Console

from raisf.programs.ra_isf import RAISF
from raisf.programs.rendering import render
from raisf.programs.trace import Cost, JudgedPassage, Judgement, Node, Step, Trace


def shown(trace, width=100):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render(trace))
    return console.file.getvalue()


def test_the_tree_shows_verdicts_scores_answers_reasons_and_cost(ask, scripted, plan, shelf):
    lm = scripted(root=plan(subs=["who?", "where was #1 born?"]), who=plan(know=True), where=plan(relevant=1))
    text = shown(ask(RAISF(shelf, k=2), lm, "root of it all?"))
    assert "root of it all? → A(root of it all?)  from 2 of 2 sub-answers" in text
    assert "1. who? → A(who?)  from memory" in text
    assert "✓ score 1.00  Title 1 · passage 1" in text and "✗ score 0.50  Title 2 · passage 2" in text
    assert "“passage 1”" in text
    assert "ra-isf · 11 LM calls" in text


def test_a_long_passage_takes_one_line_and_brackets_are_text():
    passage = JudgedPassage(
        pid="1", title="[bold]T[/bold]", text="word\n" * 500, judgement=Judgement(verdict="relevant")
    )
    node = Node(question="what is [/red] ?", passages=[passage], know=Judgement(verdict=None, readable=False))
    text = shown(Trace(system="rag", root=node, cost=Cost(lm_calls=2, unmetered_calls=1), unreadable=1), width=70)
    assert "[bold]T[/bold]" in text and "[/red]" in text
    assert len(text.splitlines()) <= 6 and max(map(len, text.splitlines())) <= 70
    assert "knows it? unreadable" in text and "1 unreadable" in text
    assert "0 + 0 tokens (1 call cached or uncounted)" in " ".join(text.split())


def test_a_probability_is_shown_where_the_lm_gives_one():
    node = Node(question="q", know=Judgement(verdict="unknown", probability=0.12))
    assert "knows it? no p=0.12" in shown(Trace(system="ra-isf", root=node, cost=Cost()))


def test_steps_show_what_was_written_searched_and_found_each_passage_once():
    found = JudgedPassage(pid="1", title="Velm", text="Velm lies on the Oss.")
    steps = [
        Step(query="Where is Velm?", passages=[found]),
        Step(generation="Velm lies on the Oss.", query="Velm lies on the Oss."),
        Step(generation="So the answer is: the Oss."),
    ]
    text = shown(Trace(system="ircot", root=Node(question="q", steps=steps, passages=[found]), cost=Cost()))
    lines = [line.strip("│├└─ ") for line in text.splitlines()]
    assert lines[1:5] == [
        "searched Where is Velm?",
        "· Velm · Velm lies on the Oss.",
        "searched Velm lies on the Oss.",
        "So the answer is: the Oss.",
    ]
    assert text.count("Velm · Velm") == 1


def test_passages_are_shown_where_no_step_searched_for_them():
    node = Node(
        question="q", steps=[Step(generation="A thought.")], passages=[JudgedPassage(pid="1", title="T", text="x")]
    )
    text = shown(Trace(system="cot-rag", root=node, cost=Cost()))
    assert "A thought." in text and "T · x" in text


def test_an_answer_that_says_there_is_none_is_unknown_with_the_reason():
    for answer in ("", " Unknown. ", None):
        node = Node(question="q").conclude("acted", "after 2 searches", answer)
        assert (node.answer, node.reason) == ("unknown", "after 2 searches, but the LM found no answer")
    assert Node(question="q").conclude("acted", "after 2 searches", " two\nlines ").answer == "two lines"
