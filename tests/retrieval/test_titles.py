"""What a document's passages are called."""

import json
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import dspy
import pytest

from raisf.data.questions import load_questions
from raisf.evaluation.examples import gold_passages
from raisf.evaluation.gold import outside
from raisf.optimize.judges.judge_data import steps
from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.corpus.titles import title_of, titled
from raisf.retrieval.passage import Passage

PARAGRAPH = "The Danube rises in the Black Forest, passes ten countries, and flows into the Black Sea near Sulina.\n"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("Marie Curie.txt", "Marie Curie"),
        ("marie_curie.txt", "Marie Curie"),
        ("ra-isf-paper.pdf", "Ra Isf Paper"),
        ("McGill-report.docx", "McGill report"),
        ("danube.txt.gz", "Danube"),
        ("élan_vital.html", "Élan Vital"),
        ("東京都.txt", "東京都"),
        *((name, "") for name in ("00.txt", "doc17.txt", "page 3.md", "2403.06840.pdf", "Untitled-2.docx", "a.txt")),
    ],
)
def test_a_file_name_is_a_title_where_it_says_something(name: str, title: str):
    assert title_of(Path("docs") / name) == title


@pytest.mark.parametrize(
    ("told", "title"),
    [
        (" The  Danube ", "The Danube"),
        ("the danube", "the danube"),
        ("UN", "UN"),
        ("IV", "File Name"),
        ("Microsoft Word - danube_report.docx", "Danube Report"),
        *(
            (told, "File Name")
            for told in (None, "", "untitled", "Document", "Page 1", "Microsoft Word - Document1.docx")
        ),
        # What programs call any file of theirs.
        *((told, "File Name") for told in ("Word Document", "PowerPoint Presentation", "Presentation1", "Slide 1")),
        *((told, "File Name") for told in ("Layout 1", "No Job Name", "(Anonymous)", "PowerPoint-Präsentation")),
        *((told, "File Name") for told in ("about:blank", "PII: S0304-3975(96)00072-2", "arXiv:1706.03762v7", "Title")),
        *(
            (told, "File Name")
            for told in ("main.dvi", "untitled-1.indd", r"C:\Users\ada\scan.doc", "a.example/b.html")
        ),
        (r"C:\Users\ada\Danube report.DOCX", "Danube report"),
        ("24/7 TCP/IP Support.docx", "24/7 TCP/IP Support"),
        *(
            (told, told)
            for told in ("Page layout 1", "Anonymous Was a Woman", "The arXiv: a history", "TCP/IP", "ASP.NET")
        ),
    ],
)
def test_a_document_that_tells_its_title_is_called_so(told: str | None, title: str):
    assert title_of(Path("file_name.pdf"), told) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (f"The Danube\n\n{PARAGRAPH}", "The Danube"),
        (f"\n\n  The Danube  \n\n\n{PARAGRAPH}", "The Danube"),
        (f"The Danube\n{PARAGRAPH}", "The Danube"),
        ("The Danube\n==========\nIt flows.\n", "The Danube"),
        ("多瑙河\n\n多瑙河是欧洲第二长河。\n", "多瑙河"),
        (f"What is RAG?\n\n{PARAGRAPH}", "What is RAG?"),
        ("كم بيت؟\n\nبيت كبير.\n", "كم بيت؟"),
        # an underline makes no title of a heading, a sentence, or a whole paragraph
        ("# The Danube\n---\nIt flows.\n", ""),
        ("It was long ago.\n***\nIt flows.\n", ""),
        ("word " * 300 + "\n---\nIt flows.\n", ""),
        # a sentence, a letter, a list, hard-wrapped prose, a lonely line, words that say nothing, nothing
        (f"It is long.\n\n{PARAGRAPH}", ""),
        (f"Dear Anna,\n\n{PARAGRAPH}", ""),
        ("दिल्ली भारत की राजधानी है।\n\nयमुना नदी इसके किनारे बहती है।\n", ""),
        ("صديقتي مريم،\n\nبيت كبير.\n", ""),
        ("- milk\n\n- bread\n", ""),
        ("1. Milk for tea\n\n2. Bread\n", ""),
        ("The Danube is a river that passes through\nten countries and flows into the Black Sea\n", ""),
        ("The Danube\n", ""),
        ("The Danube", ""),
        (f"Introduction\n\n{PARAGRAPH}", ""),
        ("2024-11-23\n\n" + PARAGRAPH, ""),
        ("多瑙河是欧洲第二长河\uff0c仅次于伏尔加河。\n\n它流经十个国家。\n", ""),
        (f"{'word ' * 16}\n\n{PARAGRAPH}", ""),
        # what Markdown puts above its text: a badge, a picture, a tag
        ("[![build](https://x.org/b.svg)](https://x.org)\n\nText.\n", ""),
        ("![the bridge](bridge.png)\n\nText.\n", ""),
        ("<p align=center>\n\nText.\n", ""),
        ("", ""),
        ("\n \n", ""),
    ],
)
def test_a_first_line_is_a_title_where_it_is_set_apart(text: str, title: str):
    lines = text.splitlines(keepends=True)
    found, rest = titled(lines)
    assert found == title
    left = list(rest)
    assert len(left) == len(lines), "what stands in which line does not move"
    kept = " ".join("".join(left).split())
    assert kept == " ".join(text.replace(title, "", 1).replace("==========", "").split())


def test_the_passages_of_a_document_are_called_after_what_it_begins_with(tmp_path: Path):
    (tmp_path / "00.txt").write_text(f"The Danube\n\n{PARAGRAPH * 10}")
    (tmp_path / "01.txt").write_text(PARAGRAPH)
    (tmp_path / "2.md").write_text(f"The Rhine\n---------\nLong.\n## Source\nHigh.\n{PARAGRAPH}")
    (tmp_path / "lakes.md").write_text("## Deep ones\nBaikal.\n")
    (tmp_path / "3.md").write_text("## Shallow ones\nBalaton.\n")
    titles = {passage.pid: passage.title for passage in read_documents(tmp_path)}
    assert {title for pid, title in titles.items() if pid.startswith("00.txt#")} == {"The Danube"}
    assert titles["00.txt#2"] == "The Danube" and titles["01.txt#1"] == ""
    assert (titles["2.md#1"], titles["2.md#2"]) == ("The Rhine", "The Rhine")
    assert (titles["lakes.md#1"], titles["3.md#1"]) == ("Lakes", "")


def test_front_matter_is_no_text_but_tells_the_title(tmp_path: Path):
    body = f"{PARAGRAPH}## Delta\nIt is wide.\n"
    (tmp_path / "policies.md").write_text(f"---\nlayout: main\ntitle: 'House rules'\ntags:\n  - a\n---\n{body}")
    (tmp_path / "rivers.md").write_text(f"---\nlayout: main\n---\n\n{body}")
    (tmp_path / "rule.md").write_text(f"---\n{PARAGRAPH}\n---\nMore of it.\n")
    for name, head in (
        ("toml", "+++\ntitle = 'Rules'\n[extra]\na = 1\n+++"),
        ("noted", "---\n# note\n\ntitle: Rules\n---"),
    ):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.md").write_text(f"{head}\n{body}")
    assert {(p.title, p.text) for p in read_documents(tmp_path / "in")} == {
        ("Rules", PARAGRAPH.strip()),
        ("Rules", "Delta: It is wide."),
    }
    (tmp_path / "in" / "noted.md").unlink(), (tmp_path / "in" / "toml.md").unlink()
    (tmp_path / "open.md").write_text("---\nkey: value\n")
    found = {p.pid: p for p in read_documents(tmp_path)}
    assert [p.title for p in found.values()] == ["Open", "House rules", "House rules", "Rivers", "Rivers", "Rule"]
    assert found["policies.md#1"].text == found["rivers.md#1"].text == PARAGRAPH.strip()
    assert found["policies.md#2"].metadata["line"] == 8, "the lines are those of the file"
    assert "More of it" in found["rule.md#1"].text and PARAGRAPH.strip() in found["rule.md#1"].text
    assert found["open.md#1"].text == "key: value"


@pytest.mark.parametrize(
    ("between", "read"),
    [
        ("Date: 5 May\nPresent: Ada\n\nAda reported on the pontoon.\n", True),
        ("Present: Ada\n- Ada reported on the pontoon.\n", True),
        ("Date: 5 May\nPresent: Ada\nDecision: Ada reported, and we buy it.\n", True),
        ("\nDate: 5 May\nWho: Ada reported.\n", True),
        ("\ndate: 5 May\n", False),
        ("Title: Of Ada\nOwner: HR, 5 May\n", False),
        ("Date: 5 May\nlast edited: now\n", False),
        ("Title: Of Ada\nDate: 5 May\nTags: [a]\n", False),
        ("Date: 5 May\ntags:\n- a\n- b\nabout: >\n  Ada reported.\n# no\n", False),
        ("Date: 5: May\nlist: [\n]\n\nauthor: {{ page.author }}\n", False),
    ],
)
def test_prose_between_two_rules_is_no_front_matter(tmp_path: Path, between: str, read: bool):
    """Minutes that begin with a rule and a date were lost up to the next rule."""
    (tmp_path / "minutes.md").write_text(f"---\n{between}---\n\nThe end is near.\n")
    text = " ".join(passage.text for passage in read_documents(tmp_path / "minutes.md"))
    assert ("5 May" in text or "Ada reported" in text) == read and text.endswith("The end is near.")


def test_a_page_that_lies_in_its_front_matter_is_read(tmp_path: Path):
    """Sites that editors fill in have it there: of a choir's page on joining two words were all that was found."""
    rehearse = (
        "  - text: |\n      ## Rehearsals\n      On Fridays at 7:30 p.m. in the school.\n\n      The first term is free"
    )
    more = ". After it the choir asks 100 pounds a year, or 95 of those with a concession, and has no auditions.\n"
    noted = "note: |\n  Short.\n"
    (tmp_path / "join.md").write_text(f"---\ntitle: Join the choir\n{noted}sections:\n{rehearse}{more}---\nJoin page\n")
    found = list(read_documents(tmp_path / "join.md"))
    assert [(p.title, p.text, p.metadata["line"]) for p in found] == [
        (
            "Join the choir",
            "Rehearsals: On Fridays at 7:30 p.m. in the school. The first term is free" + more.strip() + " Join page",
            7,
        )
    ]
    block = "  b: |\n    " + "One word after another stands here. " * 8 + "\n"
    for odd in (
        f"a: &x\n  - *x\n{block}",
        f"a: [\n{block}",
        "".join(f"k{n}: &k{n} [{'*k' + str(n - 1) + ',' if n else ''}1]\n" for n in range(9)),
    ):
        (tmp_path / "odd.md").write_text(f"---\ntitle: Odd\n{odd}---\nThe text.\n")
        assert "The text." in [p.text for p in read_documents(tmp_path / "odd.md")][-1]
    said = "  One word after another stands here.\n" * 8
    (tmp_path / "menu.md").write_text(f"---\ntitle: Menu\ndishes:\n  - Lentil soup\nnotes: |\n{said}---\n")
    found = [passage.text for passage in read_documents(tmp_path / "menu.md")]
    assert found == [("One word after another stands here. " * 8).strip(), "title: Menu dishes: Lentil soup notes: |"]
    css = "style: |\n" + "  .a { color: red; margin: 0 1px 2px 3px; }\n" * 9
    (tmp_path / "styled.md").write_text(f"---\ntitle: Styled\n{css}---\nThe text.\n")
    assert [p.text for p in read_documents(tmp_path / "styled.md")] == ["The text."]


def test_a_heading_with_a_colon_has_one_colon_behind_it(tmp_path: Path):
    (tmp_path / "laser.md").write_text("# Laser cutter\n## Allowed materials:\nWood and paper.\n")
    assert [p.text for p in read_documents(tmp_path)] == ["Allowed materials: Wood and paper."]


@pytest.mark.parametrize(
    ("told", "title"),
    [
        ('Policy on the "Old Mill"', 'Policy on the "Old Mill"'),
        ('"The \\"Old\\" Mill"', 'The "Old" Mill'),
        ("'The mill''s rules'", "The mill's rules"),
        ('"The mill', "The mill"),
    ],
)
def test_quotes_within_a_title_stay(tmp_path: Path, told: str, title: str):
    """A society's rules were called `Policy Number "2002-08-03`."""
    (tmp_path / "a.md").write_text(f"---\ntitle: {told}\n---\nNo fires.\n")
    assert [p.title for p in read_documents(tmp_path)] == [title]


@pytest.mark.parametrize("held", ["NFC", "NFD"])
@pytest.mark.parametrize("wanted", ["NFC", "NFD"])
def test_gold_names_a_title_however_its_letters_are_composed(
    held: Literal["NFC", "NFD"], wanted: Literal["NFC", "NFD"], tmp_path: Path
):
    """A Mac's names of files are decomposed, and what is typed is not."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / unicodedata.normalize(held, "Résumé Müller.txt")).write_text("Of a life.")
    row = {"title": unicodedata.normalize(held, "Café"), "text": "Of coffee."}
    (tmp_path / "docs" / "rows.jsonl").write_text(json.dumps(row))
    gold = [unicodedata.normalize(wanted, name) for name in ("Résumé Müller", "Café")]
    questions = tmp_path / "q.json"
    parts = {"sub_questions": ["Who?", "Whose?"], "sub_answers": ["He", "His"], "sub_titles": gold}
    questions.write_text(json.dumps([{"question": "Whose?", "answer": "His", "gold_titles": gold, **parts}]))
    (example,) = load_questions(questions)
    titles = [passage.title for passage in read_documents(tmp_path / "docs")]
    assert titles == example.gold_titles == example.sub_titles


@pytest.mark.parametrize("held", ["NFC", "NFD"])
@pytest.mark.parametrize("wanted", ["NFC", "NFD"])
def test_gold_is_found_however_it_is_composed(held: Literal["NFC", "NFD"], wanted: Literal["NFC", "NFD"]):
    """Also in passages and examples made in Python, and in indexes of earlier versions."""
    name, gold = (unicodedata.normalize(form, "Müller") for form in (held, wanted))
    passage = Passage(f"{name}.txt#1", "Of a life.", name)
    retriever = SimpleNamespace(passages=[passage], corpus_hash=held + wanted)
    for field, value in (("gold_titles", gold), ("gold_pids", f"{gold}.txt"), ("gold_pids", f"{gold}.txt#1")):
        example = dspy.Example(question="Whose?", answer="His", **{field: [value]})
        assert not outside(retriever, [("Whose?", *gold_passages(example))])
        (step,) = steps(example)
        assert step.all_among([passage])
