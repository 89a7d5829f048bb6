"""If these failed, a part of a document would be in no passage, or be told wrongly, and nobody would hear of it."""

from pathlib import Path

import pytest

from raisf.retrieval.corpus.pdf import _unbroken
from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.passage import Passage
from raisf.retrieval.search.where import parse_where

SOFT = "\u00ad"


@pytest.mark.parametrize(
    ("name", "written", "read"),
    [
        # A line above the title.
        (
            "prices.md",
            "Valid until 31 December 2025\n\n# Price list\n\nBolts: 3.\n",
            ["Valid until 31 December 2025", "Bolts: 3."],
        ),
        ("prices.md", "Prices 2025\n-----\n\n# Bolts\n\nThey cost 3.\n", ["Prices 2025", "They cost 3."]),
        ("guide.md", "My guide\n\n```\n# a comment\n```\n\n## Part\nText.\n", ["# a comment", "Part: Text."]),
        # Entries below one that is called a title.
        ("m.md", "Title: Minutes of May\nPresent: Ada\n\nThe chair opened.\n", ["Present: Ada The chair opened."]),
        ("m.md", "title: Minutes of May\nauthor: Ada\n\nThe chair opened.\n", ["The chair opened."]),
        # A text that is one sign, or one title.
        (
            "club.md",
            "# Club\n\n## Dogs allowed\n\n\u274c\n\n## Fee\n\n5 euros.\n",
            ["Dogs allowed: \u274c", "Fee: 5 euros."],
        ),
        ("closed.txt", "Office closed on 5 May\n======\n", ["Office closed on 5 May"]),
        ("api.md", "# API\n\n- Delete: DELETE /users/{:id}\n", ["- Delete: DELETE /users/{:id}"]),
        ("api.md", "# API\n\nText *here*{.red}\n\n## Part {#part}\n\nMore.\n", ["Text here", "Part: More."]),
        # What stands above a table, and its first column.
        (
            "a.csv",
            "Valid until 31 December,,\nName,Price,Unit\nBolt,3,piece\nNut,4,piece\nTack,5,piece\n",
            [f"Valid until 31 December: Price: {price}; Unit: piece." for price in (3, 4, 5)],
        ),
        (
            "b.csv",
            "Q1 2025,,\nPlan,Price,Unit\nLite,3,month\nFull,4,month\nTeam,5,month\n",
            [
                "Q1 2025: Plan: Lite; Price: 3; Unit: month. Plan: Full; Price: 4; Unit: month. "
                "Plan: Team; Price: 5; Unit: month."
            ],
        ),
        (
            "c.csv",
            "Notes of 2025,,\nid,title,text\n1,T,one\n2,U,two\n3,V,three\n",
            ["Notes of 2025: one", "Notes of 2025: two", "Notes of 2025: three"],
        ),
        ("rooms.tsv", "101\tAda Fischer\n102\tBob Long\n", ["101; Ada Fischer. 102; Bob Long."]),
        ("days.tsv", "2020\tAda Fischer\n2020\tBob Long\n", ["2020; Ada Fischer. 2020; Bob Long."]),
        ("collection.tsv", "7\tAda Fischer\n9\tBob Long\n", ["Ada Fischer", "Bob Long"]),
        # Versions and days head a part.
        (
            "log.txt",
            "My log\n======\n\n2.1.0 (2024-03-01)\n-----------\n- It counts.\n\n2024-01-02\n----------\n- It begins.\n",
            ["2.1.0 (2024-03-01): - It counts.", "2024-01-02: - It begins."],
        ),
        ("sum.txt", "Two coffees\n\n5.50\n-----\nThank you.\n", ["5.50 Thank you."]),
        # Words that a line breaks at a soft hyphen.
        *(
            (f"a.{kind}", f"The work{SOFT}{end}place is\nquiet.", None)
            for kind in ("txt", "md")
            for end in ("\n", "\r\n")
        ),
        ("a.html", f"<p>The work{SOFT}\n  place is\nquiet.", None),
        # A cell under two names.
        (
            "t.html",
            "<table><tr><th>Time<th>Mon<th>Tue<tr><td>9:00<td>Yoga<td><tr><td>10:00<td colspan=2>Swim</table>",
            ["Time: 9:00; Mon: Yoga. Time: 10:00; Mon: Swim; Tue: Swim."],
        ),
    ],
)
def test_all_that_a_document_says_is_in_its_passages(
    name: str, written: str, read: list[str] | None, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(written.encode())
    found = [passage.text for passage in read_documents(tmp_path / name)]
    assert found == (read or ["The workplace is quiet."])


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("short-\nand long-term", "short- and long-term"),
        ("Vor-\nund Nachteile", "Vor- und Nachteile"),
        ("pre-\nor post-tax", "pre- or post-tax"),
        ("it goes in-\nto it", "it goes into it"),
        ("the state-of-the-\nart", "the state-of-the-art"),
        ("a cost-effec-\ntive way", "a cost-effective way"),
        ("https://a.example/price-\nlist/2025", "https://a.example/price-list/2025"),
        ("run it with --dry-\nrun", "run it with --dry-run"),
        ("Leiter/Mitar-\nbeiter", "Leiter/Mitarbeiter"),
        ("пред-\nприятия", "предприятия"),  # noqa: RUF001
        ("wła-\nściwe", "właściwe"),
        ("infor- \nmation", "information"),
        ("infor\u2010\nmation", "information"),
        ("Coca-\nCola, anti-\n American", "Coca-Cola, anti-American"),
        ("COVID-\n19 in 1990-\n1995, a 20-\nyear loan", "COVID-19 in 1990-1995, a 20-year loan"),
        ("20-\nand 30-year loans", "20- and 30-year loans"),
        ("the infor-\n12", "the infor-\n12"),  # the page's number
    ],
)
def test_a_hyphen_at_a_lines_end_of_a_pdf_goes_where_it_broke_a_word_and_stays_elsewhere(
    broken: str, whole: str
) -> None:
    assert _unbroken([broken]) == [whole]


def test_a_number_with_its_thousands_set_apart_is_compared_as_a_number() -> None:
    costly = parse_where("price > 1000")
    prices = ("950", "1,200", "1100", "-1,200", "1,20")
    rows = [Passage(str(number), "", metadata={"price": price}) for number, price in enumerate(prices)]
    assert [row.pid for row in rows if costly(row)] == ["1", "2"]
    assert [row.pid for row in rows if parse_where("price < -1000")(row)] == ["3"]
