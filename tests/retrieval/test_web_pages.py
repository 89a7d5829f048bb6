"""Of html is read what a page shows, in its own encoding; what cannot be read is named."""

from pathlib import Path

import pytest

from raisf.retrieval.corpus.reading import read_documents
from tests.retrieval.conftest import reading_error_of

pytest.importorskip("lxml", reason="needs the extra documents")


def test_of_a_web_page_the_visible_text_is_read(tmp_path: Path):
    (tmp_path / "p.html").write_text(
        "<html><head><title>Rivers &amp; seas</title><style>p {}</style></head><body><nav>Menu</nav>"
        "<h1>Rivers &amp; seas</h1><p>They <b>flow</b>.<br>Always.<script>x()</script></p><!-- hidden -->"
        "<h2>The <i>Danube</i></h2><ul><li>long</li><li>wide</li></ul>tail</body></html>"
    )
    found = [(p.title, p.text, p.metadata) for p in read_documents(tmp_path / "p.html")]
    assert found == [
        ("Rivers & seas", "They flow. Always.", {}),
        ("Rivers & seas", "The Danube: - long - wide tail", {"section": "The Danube"}),
    ]


@pytest.mark.parametrize("kind", ["article", "main", "section", "aside", "figure", "details", "my-part"])
def test_a_page_may_leave_out_the_tags_of_its_head_and_body(tmp_path: Path, kind: str):
    """lxml takes what it does not know for a part of the head: the page's text was lost, and what stood below read."""
    within = f"<{kind}><h2>Boats</h2><p>Ten.</p></{kind}>"
    (tmp_path / "p.html").write_text(
        f"<!DOCTYPE html>\n<title>Fees</title><style>p {{}}</style>\n{within}\n<p>Ends.</p>"
    )
    found = [(p.title, p.text) for p in read_documents(tmp_path / "p.html")]
    assert found == [("Fees", "Boats: Ten. Ends.")]


def test_a_sign_that_links_to_its_heading_and_a_way_past_the_menu_are_no_text(tmp_path: Path):
    """Of a course's site each heading ended in `#`, and of each page of a club's a passage began `Skip to`."""
    (tmp_path / "p.html").write_text(
        "<title>Fees | The Club</title><a href='#main'>Skip to main content</a>"
        "<h1>Fees <a href='#fees'>#</a></h1><p>Ten.</p>"
        "<h2>Who pays<a href='#who'>\u00b6</a></h2><p>All.</p><h2><a href='#c'>C#</a></h2><p>See <a href='#'>#</a>.</p>"
    )
    assert [(p.title, p.text) for p in read_documents(tmp_path / "p.html")] == [
        ("Fees", "Ten."),
        ("Fees", "Who pays: All."),
        ("Fees", "C#: See #."),
    ]


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<html><p>One.</p></html>\n<html><h1>Two</h1><p>Three.</p></html>", ["One.", "Two: Three."]),
        ("<!doctype html><html><p>One.</p></html><!-- by a tool --><div>Two.</div>", ["One. Two."]),
        ("<html><p>One.</p></html>Two.", ["One. Two."]),
        ("<nav><a>Home</a><main><p>One. Two.</p></main>", ["Home One. Two."]),
    ],
)
def test_what_stands_where_it_should_not_is_read(page: str, texts: list[str], tmp_path: Path):
    (tmp_path / "p.html").write_text(page)
    (tmp_path / "m.md").write_text("<html><p>One.</p></html><p>Two.</p>\n")
    assert [p.text for p in read_documents(tmp_path / "p.html")] == texts
    assert [p.text for p in read_documents(tmp_path / "m.md")] == ["One. Two."]


def test_a_heading_says_what_is_seen_of_it_with_its_words_apart(tmp_path: Path):
    (tmp_path / "p.html").write_text(
        "<svg><title>Icon</title></svg><h1>Annual<br>Report</h1><p>It rose.</p>"
        "<h2><svg><title>Link</title></svg>10<sup>6</sup> users<style>.x{}</style><div>Part 2</div></h2><p>Many."
    )
    assert [(p.title, p.text) for p in read_documents(tmp_path / "p.html")] == [
        ("Annual Report", "It rose."),
        ("Annual Report", "10^6 users Part 2: Many."),
    ]
    deep = "<h1>" + "<b><h2>" * 700 + "Rivers" + "</h2></b>" * 700 + "</h1><p>They flow."
    (tmp_path / "p.html").write_text(deep)
    assert [p.text for p in read_documents(tmp_path / "p.html")][-1].endswith("They flow.")


def test_a_heading_without_words_is_none(tmp_path: Path):
    """Of a conference's site, whose name was a picture, each part had a passage of the page's title alone."""
    (tmp_path / "p.html").write_text(
        "<title>Talks | Club</title><h1><img src='a.png'></h1><h1>Talks</h1><p>Two.</p><h2> </h2><h2>May</h2><p>One."
    )
    assert [(p.title, p.text) for p in read_documents(tmp_path / "p.html")] == [
        ("Talks", "Two."),
        ("Talks", "May: One."),
    ]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            "<caption>Fees</caption><tr><th>Plan<th>Fee</tr><tr><td>Lite<br>(new)<td><p>$39</p><p>a month</p></tr>",
            "Fees. Plan: Lite (new); Fee: $39 a month.",
        ),
        ("<tr><th>Open<td>9 to 5</tr><tr><th>Closed<td>Sundays</tr>", "Open: 9 to 5. Closed: Sundays."),
        ("<tr><th colspan=2>Danube</tr><tr><th>Length:<td>2850 km</tr>", "Danube. Length: 2850 km."),
        ("<caption>Our fees:</caption><tr><td>Lite<td>$39</tr>", "Our fees: Lite; $39."),
        ("<tr><th colspan=2>Fees</tr><tr><th>Plan<th>Fee</tr><tr><td>Lite<td>$39</tr>", "Fees. Plan: Lite; Fee: $39."),
        (
            "<tr><th rowspan=2>Route<th colspan=2>Fare</tr><tr><th>Adult<th>Child</tr><tr><td>Oslo<td>20<td>10</tr>",
            "Route: Oslo; Fare Adult: 20; Fare Child: 10.",
        ),
        ("<tr><th>Route<th>Fare</tr><tr><th>Oslo<th>20</tr>", "Route: Oslo; Fare: 20."),
        (
            "<tr><th>Route<th>Fare</tr><tr><th colspan=2>South</tr><tr><td>Oslo<td>20</tr>",
            "South. Route: Oslo; Fare: 20.",
        ),
        ("<tr><th>Route<th>Fare</tr><tr><td colspan=2>None today</tr>", "Route; Fare. None today."),
        (
            "<tr><th>Route<th>Fare</tr><tr><td colspan=9>South</tr><tr><td>Oslo<td>20</tr>",
            "South. Route: Oslo; Fare: 20.",
        ),
        ("<tr><th>Danube</tr><tr><td>Length<td>2850 km</tr>", "Danube. Length; 2850 km."),
        (
            "<tr><th>Plan<th colspan=2>Price</tr><tr><td rowspan=2>Lite<td>monthly<td>$3</tr>"
            "<tr><td>yearly<td>$30</tr><tr><td>Plus</tr>",
            "Plan: Lite; Price: monthly; Price: $3. Plan: Lite; Price: yearly; Price: $30. Plan: Plus.",
        ),
        ("<tr><td><b>Plan</b><td><strong>Fee</strong></tr><tr><td>Lite<td>$39</tr>", "Plan: Lite; Fee: $39."),
        ("<tr><td><b>Plan</b><td><b>Lite</b></tr><tr><td><b>Fee</b><td><b>$39</b></tr>", "Plan; Lite. Fee; $39."),
        ("<tr><td>Check-in:<td>from 15:00</tr>", "Check-in: from 15:00."),
        ("<tr></tr><td>one</td><td>two</td>", "one two"),
        ("<!-- c --><tr><!-- c --><td>a<td>b</tr>", "a; b."),
        ("loose<tr><td>a<td>b</tr>", "loose a b"),
        ("<tr><td>a<td rowspan=0>b</tr><tr><td colspan=999999999999>c</tr>", "a; b. c."),
        ("<tr><td>one</tr><tr><td>two</tr>", "one two"),
        ("<tr><td>left<td><table><tr><td>in<td>side</tr></table></tr>", "left in; side."),
        ("<tr><td>menu<td><h2>Rivers</h2>They flow.</tr>", "menu They flow."),
        (f"<tr><td>menu<td>{'word ' * 61}</tr>", "menu " + "word " * 60 + "word"),
    ],
)
def test_rows_of_a_web_page_s_table_carry_the_names_of_their_columns(table: str, text: str, tmp_path: Path):
    (tmp_path / "p.html").write_text(f"<table>{table}</table>")
    texts = [p.text.removeprefix("Rivers: ") for p in read_documents(tmp_path / "p.html")]
    assert " ".join(texts) == text


def test_a_term_on_a_page_is_told_from_what_describes_it(tmp_path: Path):
    (tmp_path / "p.html").write_text(
        "<dl><dt>Probation<dd>Six months<dt>Notice:<dd>Three months.<dt>Pets<dd><p>One cat</p></dl><p>See above"
    )
    assert [p.text for p in read_documents(tmp_path)] == [
        "Probation: Six months. Notice: Three months. Pets: One cat See above"
    ]


def test_a_reading_above_a_word_does_not_break_it(tmp_path: Path):
    word = "<ruby>東<rp>(</rp><rt>tō</rt><rp>)</rp>京<rt>kyō</rt></ruby>"
    table = f"<table><tr><th>Town<th>People<tr><td>{word}<td>14 million</table>"
    (tmp_path / "p.html").write_text(f"<p>{word} is large.{table}", "utf-8")
    assert [p.text for p in read_documents(tmp_path / "p.html")] == ["東京 is large. Town: 東京; People: 14 million."]


def test_numbers_that_only_a_style_sheet_parts_do_not_grow_together(tmp_path: Path):
    (tmp_path / "p.html").write_text(
        "<span>€80</span><span>12 m²</span> <span>O</span><span>slo</span> <span>1</span>.<span>5</span> B<b>12</b>"
    )
    assert [p.text for p in read_documents(tmp_path)] == ["€80 12 m² Oslo 1.5 B12"]


def test_words_on_a_page_are_not_run_together(tmp_path: Path):
    (tmp_path / "p.html").write_text(
        "<p>10<sup>6</sup> or 1<sup>st</sup><p><option>Red</option><option>Green</option> <kbd>Ctrl</kbd><kbd>C</kbd>"
    )
    assert [p.text for p in read_documents(tmp_path)] == ["10^6 or 1st Red Green Ctrl C"]


RAISED = [
    ("500<sup>{link}</sup> people", "500^1 people"),
    ("It costs 5.<sup>1</sup> In 2020,<sup>[2]</sup> (<sup>3</sup>)", "It costs 5.^1 In 2020,[2] (3)"),
    ("10<sup>-6</sup> or 10<sup>\u2212{bold}</sup> mol", "10^-6 or 10^\u22126 mol"),
    ("10<sup>6</sup>/mm<sup>3</sup>, Na<sup>+</sup>, 5<sup>th</sup> 7", "10^6/mm^3, Na+, 5th 7"),
    ("1<sup>1</sup>/<sub>2</sub> cups, <sup>1</sup>/<sub>3</sub> cup", "1 1/2 cups, 1/3 cup"),
]


@pytest.mark.parametrize(("written", "text"), RAISED)
def test_a_raised_number_does_not_grow_together_with_what_is_before_it(written: str, text: str, tmp_path: Path):
    (tmp_path / "p.html").write_text(f"<p>{written.format(link='<a href=#n>1</a>', bold='<b>6</b>')}</p>")
    (tmp_path / "p.md").write_text(written.format(link="[1](#n)", bold="**6**"))
    assert [p.text for p in read_documents(tmp_path)] == [text, text]


def test_a_formula_of_a_page_is_read_once_and_on_one_line(tmp_path: Path):
    power, half = "<msup><mn>10</mn><mn>6</mn></msup>", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"
    tex = "<annotation>10^6+\\frac12</annotation>"
    (tmp_path / "p.html").write_text(
        f"<p>With <math><semantics><mrow>{power}<mo>+</mo><mn>3</mn>{half}</mrow>{tex}</semantics></math>,"
        f'<b><i class="katex-mathml"><math>{power}</math></i><i class="katex-html">106</i></b>,'
        f'<i class="katex-html">7</i>.<table><tr><th>A<th>B<tr><td><math>{power}{tex}</math><td>{tex}1</table>'
    )
    assert [p.text for p in read_documents(tmp_path)] == ["With 10^6+3 1/2,10^6,7. A: 10^6; B: 1."]


def test_a_formula_that_is_hidden_behind_its_picture_is_read(tmp_path: Path):
    """Wikipedia's are: of a sentence about one, the formula was missing."""
    power = "<math><semantics><msup><mn>10</mn><mn>6</mn></msup><annotation>10^{6}</annotation></semantics></math>"
    (tmp_path / "p.html").write_text(
        f'<p>Some <span><span style="display: none;">{power}</span><img src="x.svg" alt="10^{{6}}"></span> people.'
        f'<div style="display: none">Not {power} this.</div>'
    )
    assert [p.text for p in read_documents(tmp_path / "p.html")] == ["Some 10^6 people."]


def test_a_number_that_a_heading_raises_behind_its_first_words_is_told_as_such(tmp_path: Path):
    (tmp_path / "p.html").write_text("<h1>Towns</h1><h2>10<sup>6</sup> people</h2><p>Two.")
    assert [p.text for p in read_documents(tmp_path)] == ["10^6 people: Two."]


@pytest.mark.parametrize(
    "hidden",
    [
        "<p hidden>Draft.</p>",
        "<div style='color: red; DISPLAY : none'><p>Draft.</div>",
        "<span style='visibility:hidden'>Draft.</span>",
        "<select><option>Draft.</select>",
        "<textarea>Draft.</textarea>",
        "<table><tr><td>a<td>b<tr hidden><td>Draft.<td>c</table>",
        "<p><del>Draft.</del><s>Draft.</s><strike>Draft.</strike>",
        "<p><span style='color: red; text-decoration: underline line-through'>Draft.</span>",
    ],
)
def test_what_nobody_sees_on_a_page_is_not_read(hidden: str, tmp_path: Path):
    (tmp_path / "p.html").write_text(f"<body style='display:none'><p>Fee: 3.</p>{hidden}<p aria-hidden=true>Paid.</p>")
    (tmp_path / "q.md").write_text(f"<div>Fee: 3.{hidden}</div>\n")
    texts = [p.text for p in read_documents(tmp_path)]
    assert len(texts) == 2 and not any("Draft" in text for text in texts)
    assert texts[0].startswith("Fee: 3.") and texts[0].endswith("Paid.")


def test_an_element_that_strikes_out_and_is_never_closed_does_not_take_the_page_with_it(tmp_path: Path):
    (tmp_path / "p.html").write_text("<h1>Fees</h1><div>Was <s>9, is <s>8</s>.<h2>Terms</h2><p>Two weeks.</p></div>")
    assert [p.text for p in read_documents(tmp_path)] == ["Was 9, is .", "Terms: Two weeks."]


def test_a_link_to_an_address_says_it(tmp_path: Path):
    (tmp_path / "p.html").write_text(
        '<p>Write to <a href="mailto:a@b.example?subject=x">us</a>, <a href="mailto:c@d.example">c@d.example</a>'
        ' or <a href="tel:+49-30">call</a> <a href="tel:+44%2020%207">+44 (20) 7</a>; see <a href="https://x.example">here</a>.</p>'
    )
    (tmp_path / "q.md").write_text("Write to [us](mailto:a@b.example) or <c@d.example>; see [here](https://x.example).")
    assert [p.text for p in read_documents(tmp_path)] == [
        "Write to us (a@b.example), c@d.example or call (+49-30) +44 (20) 7; see here.",
        "Write to us (a@b.example) or c@d.example; see here.",
    ]


def test_a_web_page_is_called_what_it_says_without_the_name_of_its_site(tmp_path: Path):
    for name, title, heading in (
        ("a", "Buckingham Palace - Encyclopedia", "Buckingham Palace"),
        ("b", "", "Buckingham Palace"),
        ("c", "Encyclopedia: palaces", "Buckingham Palace"),
    ):
        page = f"<title>{title}</title><h1><b>{heading}</b></h1><p>It stands in London.</p>"
        (tmp_path / f"{name}.html").write_text(page)
    assert [(p.title, p.text) for p in read_documents(tmp_path)] == [
        ("Buckingham Palace", "It stands in London."),
        ("Buckingham Palace", "It stands in London."),
        ("Encyclopedia: palaces", "Buckingham Palace: It stands in London."),
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<p>Café</p>".encode(), "Café"),
        ("<p>Café</p>".encode("utf-16"), "Café"),
        (b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?><html><p>Caf\xc3\xa9</p></html>', "Café"),
        ('<meta charset="latin-1"><p>Café</p>'.encode("latin-1"), "Café"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1252"><p>\x80</p>', "€"),
        # What browsers read: curly quotes under the name of an encoding that has none, and what cannot be UTF-16.
        (b'<meta charset="iso-8859-1"><p>\x93Caf\xe9\x94 \x96 it\x92s</p>', "\u201cCafé\u201d \u2013 it\u2019s"),
        (b'<meta charset="us-ascii"><p>\x93Caf\xe9\x94</p>', "\u201cCafé\u201d"),
        ('<meta charset="gb2312"><p>\u9555\u57fa</p>'.encode("gbk"), "\u9555\u57fa"),
        ('<meta charset="utf-16"><p>Café</p>'.encode(), "Café"),
        ('<meta charset="windows-874"><p>\u0e01</p>'.encode("cp874"), "\u0e01"),
        ('<meta charset="x-sjis"><p>\u2460</p>'.encode("cp932"), "\u2460"),
        ('<meta charset="UTF-16LE"><p>Café!</p>'.encode(), "Café!"),
        (b"<p>open <b>tags <div>" + b"<div>" * 1_000 + b"deep", "open tags deep"),
    ],
)
def test_a_web_page_says_how_it_is_encoded(content: bytes, text: str, tmp_path: Path):
    (tmp_path / "p.htm").write_bytes(content)
    assert [p.text for p in read_documents(tmp_path / "p.htm")] == [text]


def test_an_encoding_that_is_named_is_taken_at_its_word(tmp_path: Path):
    (tmp_path / "p.html").write_bytes('<meta charset="utf-8"><p>Café</p>'.encode("utf-16-le"))
    assert [p.text for p in read_documents(tmp_path / "p.html", "utf-16-le")] == ["Café"]
    (tmp_path / "p.html").write_bytes(b'<meta charset="iso-8859-1"><p>\xa4</p>')
    assert [p.text for p in read_documents(tmp_path / "p.html", "iso-8859-15")] == ["€"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<p>Caf\xe9</p>", "p.html: not utf-8"),
        (b'<meta charset="klingon">x', "'klingon', which is unknown"),
        (b"", "the corpus is empty"),
        (b"<!-- only -->", "the corpus is empty"),
    ],
)
def test_a_web_page_that_cannot_be_read_is_named(content: bytes, message: str, tmp_path: Path):
    (tmp_path / "p.html").write_bytes(content)
    assert message in reading_error_of(tmp_path / "p.html")
