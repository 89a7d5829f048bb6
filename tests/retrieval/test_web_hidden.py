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
        "<div role=navigation><ul hidden><li>Docs</ul><s>Spa</s><a href='#fees'>Skip to content</a></div>",
        "<div>On this page</div><ul><li><a href='#fees'>Fees</a><ul><li><a href='#h'>Hours</a></ul></ul>",
        "<p>Table of Contents</p>"
        "<ol><li><a href='#fees'><span>1</span> <span>Fees</span></a><li><a href='#h'>Hours</a></ol>",
    ],
)
def test_what_leads_through_a_page_is_no_text(way: str, tmp_path: Path) -> None:
    """Each page of a manual had passages of the links at its side, and its last one ended in all headings."""
    assert read(tmp_path, way + BODY) == SAID
    assert read(tmp_path, BODY + way) == SAID


MENU = "<ul><li><a href='i'>Home</a><li><a href='#x'>Fees</a><ul><li><a href='b.html'>Boats</a></ul></ul>"


def test_a_list_of_links_above_all_headings_is_the_way_through_a_site(tmp_path: Path) -> None:
    """Each page of a club's site had a passage of the names of all other pages."""
    assert read(tmp_path, f"<p>The Club</p>{MENU}{BODY}") == ["The Club", *SAID]
    said = "- Home - Fees - Boats"
    assert read(tmp_path, f"<h1>Pool</h1>{MENU}") == [said]
    assert read(tmp_path, f"<p>See:</p>{MENU}") == [f"See: {said}"], "a page without a heading"
    staff = MENU.replace("'i'", "'mailto:a@b.example'")
    assert read(tmp_path, staff + BODY)[0] == "- Home (a@b.example) - Fees - Boats"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("<b>The Club</b><style>b { a: 1 }</style><nav>Home. Fees.</nav><a href='/in'>Log in</a>", []),
        ("<p>Closed in May.", ["Closed in May."]),
        ("<a href='tel:+4155'>Call us</a>", ["Call us (+4155)"]),
    ],
)
def test_what_a_site_says_above_each_page_is_no_text(header: str, said: list[str], tmp_path: Path) -> None:
    """Each page of a town's site had a passage of its name and `Login`."""
    assert read(tmp_path, f"<header>{header}</header>{BODY}") == [*said, *SAID]
    assert read(tmp_path, f"<article><header>By Ada</header>{BODY}</article>") == ["By Ada", *SAID]
    assert read(tmp_path, "<header>The Club</header>") == ["The Club"], "a page without a heading"


def test_an_address_that_is_hidden_from_programs_is_read(tmp_path: Path) -> None:
    link = "<a href='/x' class='__cf_email__' data-cfemail='{}'>[email&#160;protected]</a>"
    hidden = "42" + bytes(byte ^ 0x42 for byte in b"dock@pool.example").hex()
    assert read(tmp_path, f"<p>Ask {link.format(hidden)}.") == ["Ask dock@pool.example."]
    assert read(tmp_path, f"<p>Ask {link.format('4z')}.") == ["Ask [email protected]."]


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
