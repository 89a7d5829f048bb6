"""The way through a site, and a page's contents, are no text of the page."""

from pathlib import Path

import pytest

from raisf.retrieval.corpus.reading import read_documents

pytest.importorskip("lxml", reason="needs the extra documents")

BODY = (
    "<h1>Pool</h1><p>It is deep.</p><h2 id=fees>1. Fees<a href='#fees'>\u200b</a></h2><p>Ten.</p>"
    "<h2 id=h>Hours</h2><p>All.</p>"
)
SAID = ["It is deep.", "1. Fees: Ten.", "Hours: All."]


def read(folder: Path, page: str) -> list[str]:
    (folder / "a.html").write_text(page)
    return [passage.text for passage in read_documents(folder / "a.html")]


@pytest.mark.parametrize(
    "way",
    [
        "<div role=navigation><h3>Navigation</h3><ul><li>About</ul></div>",
        "<div role=navigation><ul><li>Docs &raquo;<li>Pool</ul><hr></div>",
        "<div>On this page</div><ul><li><a href='#fees'>Fees</a><ul><li><a href='#h'>Hours</a></ul></ul>",
        "<p>Table of Contents</p>"
        "<ol><li><a href='#fees'><span>1</span> <span>Fees</span></a><li><a href='#h'>Hours</a></ol>",
    ],
)
def test_what_leads_through_a_page_is_no_text(way: str, tmp_path: Path) -> None:
    """Each page of a manual had passages of the links at its side, and its last one ended in all headings."""
    assert read(tmp_path, way + BODY) == SAID
    assert read(tmp_path, BODY + way) == SAID


def test_words_beside_what_leads_through_a_page_stay_apart(tmp_path: Path) -> None:
    assert read(tmp_path, "<p>Swim<div role=navigation>Next</div>slowly.") == ["Swim slowly."]


@pytest.mark.parametrize(
    ("links", "text"),
    [
        (
            "<ul><li><a href='#fees'>Fees</a> are due in May.<li><a href='#h'>Hours</a></ul>",
            "- Fees are due in May. - Hours",
        ),
        ("<ul><li><a href='#fees'>What it costs</a><li><a href='#h'>Hours</a></ul>", "- What it costs - Hours"),
        ("<ul><li><a href='fees.html'>Fees</a><li><a href='h.html'>Hours</a></ul>", "- Fees - Hours"),
        ("<p>On this page we tell all.</p>", "On this page we tell all."),
    ],
)
def test_links_that_say_more_than_the_headings_are_read(links: str, text: str, tmp_path: Path) -> None:
    assert read(tmp_path, links + BODY) == [text, *SAID]


def test_navigation_that_nobody_closes_does_not_take_the_page_with_it(tmp_path: Path) -> None:
    assert read(tmp_path, f"<div role=navigation><a>Home</a>{BODY}") == ["Home", *SAID]
