"""What site generators leave in documents is not read, and a document keeps its title."""

import time
from pathlib import Path

import pytest

from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.corpus.templates import as_markdown


def read(folder: Path, name: str, text: str) -> list[tuple[str, str]]:
    (folder / name).write_text(text)
    return [(passage.title, passage.text) for passage in read_documents(folder / name)]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{% alert %}\nIt opens at {{ hour }}.\n{% endalert %}\n", "It opens at {{ hour }}."),
        ("{{< figure src='a.jpg' alt='The old pool of the town' >}} Swim.", "The old pool of the town Swim."),
        ("Ask [the office]({{ site.baseurl }}{% link office.md %}) first.", "Ask the office first."),
        ("Write `{% raw %}`.\n\n```\n{% keep %}\n```", "Write `{% raw %}`. {% keep %}"),
        ('!!! warning "Mind it"\n    Hold the *rail*.\n\n    - Both.\nOut.', "Mind it: Hold the rail. - Both. Out."),
        ('=== "Linux"\n    Run it.\n\n    !!! note\n        As root.\n', "Linux: Run it. As root."),
        (":::{important}\nNo fires.\n:::", "No fires."),
        (":::note[By the way]\nNo fires.\n:::", "By the way No fires."),
        (':::tip{title="By the way" open}\nNo fires.\n:::', "By the way No fires."),
        ("10. Ten.\n\n    :::warning\n    No fires.\n    :::", "10. Ten. No fires."),
        ("!!! That hurt\nand was loud.", "!!! That hurt and was loud."),
        ("See [us](x){:target='_blank'} for more.", "See us for more."),
        ("1. Get.\n1. Fix.\n   1. Left.\n   1. Right.\n1. Go.", "1. Get. 2. Fix. 1. Left. 2. Right. 3. Go."),
        ("3. Boil.\n5. Cool.", "3. Boil. 5. Cool."),
        ("0. Read.\n1. Boil.", "0. Read. 1. Boil."),
        ("By a {{< var words.two-thirds >}} vote. It is <%= tax %>.", "By a two thirds vote. It is <%= tax %>."),
        ("1. Write:\n\n    ~~~\n    {% for x in y %}\n    ~~~", "1. Write: {% for x in y %}"),
        ("Use `[text]({{ url }})`.\n\n```a``` {% x %}", "Use [text]({{ url }}). a"),
        ("::: The answer is 4", "The answer is 4"),
        ("- ```\n  {% keep %}\n  ```\n\n2. ~~~\n   b\n   ~~~\n\n!!! note\n    In.", "- {% keep %} 2. b In."),
    ],
)  # fmt: skip
def test_tags_and_blocks_of_sites_are_no_text(written: str, said: str, tmp_path: Path) -> None:
    found = read(tmp_path, "a.md", f"Before.\n\n{written}")
    assert " ".join(text for _, text in found).replace("`", "") == f"Before. {said}".replace("`", "")
    assert as_markdown(written).count("\n") == written.count("\n"), "what stands in which line does not move"


def test_a_page_without_its_generator(tmp_path: Path) -> None:
    page = "---\ntitle: Pool\n---\n{% extends 'base' %}\n<ol start=4><li>Pay.<li>Swim.<ol><li>Slowly.</ol></ol>"
    assert read(tmp_path, "a.html", page) == [("Pool", "4. Pay. 5. Swim. 1. Slowly.")]
    page = "---\ntitle: Pool\n---\n<title>{{ page.title }} | Club</title><h1>{{ page.title }}</h1><p>Swim."
    assert read(tmp_path, "c.html", page) == [("Pool", "Swim.")]
    page = "<title>Tags: {{ }}</title><h2>The <code>{{ x }}</code> tag</h2><p>Swim."  # a page about templates
    assert read(tmp_path, "d.html", page) == [("Tags: {{ }}", "The {{ x }} tag: Swim.")]
    page = "---\ntitle: Tags\n---\n## The `{{ x }}` tag\n\nSwim.\n\n## {{ page.title }}\n\nRow."
    assert [text for _, text in read(tmp_path, "e.md", page)] == ["The {{ x }} tag: Swim.", "Row."]
    page = f"<p>Begin with <code>{{% for x in y %}}</code>.<ol type=a><li>Pay.</ol><ol start={'9' * 5000}><li>Go.</ol>"
    assert read(tmp_path, "b.html", page) == [("", "Begin with {% for x in y %}. a. Pay. 1. Go.")]


def test_numbered_items_of_html_in_markdown_are_cited_by_their_own_lines(tmp_path: Path) -> None:
    items = [f"<li>Rule {number} of the club is {'long ' * 60}.</li>" for number in range(1, 5)]
    (tmp_path / "a.md").write_text("\n".join(["<ol>", *items, "</ol>", "<p>Meeting 3.</p>"]))
    found = [passage for passage in read_documents(tmp_path / "a.md") if "Rule" in passage.text]
    assert [passage.metadata["line"] for passage in found] == [2, 3, 4, 5]


def test_front_matter_is_read_where_there_is_nothing_else(tmp_path: Path) -> None:
    menu = "---\ntitle: >-\n  Lunch on\n  Wednesday\ndishes:\n  - Lentil soup\n  - 'Apple pie'\n---\n"
    assert read(tmp_path, "a.md", menu) == [
        ("Lunch on Wednesday", "title: > Lunch on Wednesday dishes: Lentil soup Apple pie")
    ]


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        # what the document says it is called comes before what merely stands first
        ("---\ntitle: Overtime\n---\n{% alert %}\n\nAsk.\n", ["Overtime"]),
        ("---\ntitle: Digital vaccine cards\n---\nGreetings, hackers!\n\nAsk.\n", ["Digital vaccine cards"]),
        ("---\ntitle: Trails\n---\n# {{ $frontmatter.title }}\nWalk.\n", ["Trails"]),
        ("---\ntitle: Home\n---\n# The trails\nWalk.\n", ["The trails"]),
        ("{% include disclaimer.html %}\n\nBack it up.\n", ["Some File"]),
        ("\\newpage\n\n# Duties\nTo cook.\n", ["Duties"]),
        ("\\newpage\n\nWe all cook.\n", ["Some File"]),
        ("A <b>bold</b> title &amp; more\n\nText.\n", ["A bold title & more"]),
        ("<h1 align=center>Garden <i>Club</i></h1>\n\nPlants.\n\n<h2>Fees</h2>\nTen.\n", ["Garden Club"] * 2),
        # many headings of the first level are chapters
        ("# Rules of the club\n# 1. Name\nOurs.\n# 2. Aims\nTo play.\n# 3. Fees\nTen.\n", ["Rules of the club"] * 3),
        ("# 1. Name\nOurs.\n# 2. Aims\nTo play.\n# 3. Fees\nTen.\n", ["Some File"] * 3),
        ("# v6.0\nFaster.\n# v5.9\nSlower.\n# v5.8\nSlow.\n", ["Some File"] * 3),
        ("![](x.png)\n\n# A file of rules\nOurs.\n# Aims\nTo play.\n# Fees\nTen.\n", ["A file of rules"] * 3),
        ("# One\nOurs.\n# Another\nTo play.\n", ["One", "Another"]),
    ],
)
def test_a_document_keeps_its_title(text: str, titles: list[str], tmp_path: Path) -> None:
    assert [title for title, _ in read(tmp_path, "some_file.md", text)] == titles


def test_the_heading_of_a_chapter_leads_its_text(tmp_path: Path) -> None:
    found = read(tmp_path, "rules.md", "---\ntitle: The club\n---\n# Welcome\nPlay.\n## Fees\nTen.\n")
    assert found == [("The club", "Welcome: Play."), ("The club", "Fees: Ten.")]  # as in html and rst
    found = read(tmp_path, "rules.md", "# Rules\nPlay.\n# Fees\nTen.\n# Aims\n## First\nJoy.\n")
    assert found == [("Rules", "Play."), ("Rules", "Fees: Ten."), ("Rules", "Aims: First: Joy.")]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("JULEP\n\nFill a glass with ice and pour the champagne.\n\nCUP\n\nDissolve it.\n", "Drinks"),
        ("THE GREAT GATSBY\n\nBy F. Scott Fitzgerald\n\nCHAPTER ONE\n\nIn my years.\n", "THE GREAT GATSBY"),
        ("DRINKS FOR SUMMER\n\nCLARET CUP\n\nDissolve it.\n", "DRINKS FOR SUMMER"),
        ("III\n\nIt rained.\n", "Drinks"),
    ],
)
def test_the_first_of_several_entries_is_no_title_of_all(text: str, title: str, tmp_path: Path) -> None:
    assert {found for found, _ in read(tmp_path, "drinks.txt", text)} == {title}


@pytest.mark.parametrize(
    "line", [f"!!! note{' ' * 9_000}!", f"::: note a{' ' * 60_000}b", ":::{" + 'title="' * 9_000, "{%" + "`" * 60_000]
)
def test_marks_that_nobody_ends_cost_no_time(line: str) -> None:
    start = time.process_time()
    as_markdown(line)
    assert time.process_time() - start < 2


def test_comments_that_nobody_closes_cost_no_search_each(tmp_path: Path) -> None:
    """100 kB took eight seconds."""
    assert "x" in read(tmp_path, "a.md", "<div>\n" + "<!-- " * 200_000 + "x\n")[-1][1]


def test_what_a_container_holds_is_markdown_and_attributes_are_no_text(tmp_path: Path) -> None:
    """A whole page of kramdown's was one paragraph, with `{:.narrow}` between its sentences."""
    page = (
        '<section>\n<div class="x" markdown="1">\n# The old mill\n{:.no-underline}\n\nIt stands by the river.\n'
        "{:.large}\n</div>\n</section>\n\n<div markdown='block'>\n## Opening\n{:.t}\n\n- **Wednesday** 2 pm\n</div>\n"
    )
    assert read(tmp_path, "a.md", page) == [
        ("The old mill", "It stands by the river."),
        ("The old mill", "Opening: - Wednesday 2 pm"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The [[engine]] runs.", "The engine runs."),
        ("The [[systems/engine|motor]] has [[oil#grade]].", "The motor has oil grade."),
        ("See ![[chart.png]] below.", "See below."),
        ("It was so [[1]](https://example.org), and `[[ -f x ]]` says so.", "It was so [1], and [[ -f x ]] says so."),
    ],
)
def test_a_link_to_another_note_is_read_as_its_words(tmp_path: Path, text: str, said: str) -> None:
    assert read(tmp_path, "a.md", f"{text}\n") == [("", said)]


@pytest.mark.parametrize("mark", ["[TOC]", "[[toc]]", "[[_TOC_]]", "* toc\n{:toc}", "1. Contents\n{: toc}"])
def test_the_place_of_a_pages_contents_is_no_text(tmp_path: Path, mark: str) -> None:
    assert read(tmp_path, "a.md", f"{mark}\n\nThe text.\n") == [("", "The text.")]


def test_what_logseq_keeps_of_a_block_is_no_text(tmp_path: Path) -> None:
    """Between the items of a notebook stood the numbers of its blocks and the days of its cards."""
    page = (
        "- ## Compost\n  id:: 60a78b6b\n  collapsed:: true\n\t- Turn it in May.\n\t  card-last-interval:: 28.3\n"
        "\t- It needs air.\n\t  logseq.order-list-type:: number\n\n```\nid:: 7\n```\n\nHe said:: so.\n"
    )
    assert read(tmp_path, "a.md", page) == [("", "- Compost - Turn it in May. - It needs air. id:: 7 He said:: so.")]


@pytest.mark.parametrize("above", ["<p>\n<img src='a.svg'>\n</p>", "<img src='a.svg'>", "<br>", "<div>\n</div>"])
def test_a_heading_right_below_a_tag_is_one(tmp_path: Path, above: str) -> None:
    """The first words of the page that leads to a league's rules were `# Bylaws`, and it had no title."""
    assert read(tmp_path, "a.md", f"{above}\n# The bylaws\n\nPlay fair.\n") == [("The bylaws", "Play fair.")]
    assert read(tmp_path, "a.md", "<pre>\n# a\n</pre>\n\nSo.\n") == [("", "# a So.")]


def test_metadata_without_fences_tells_the_title_and_is_no_text(tmp_path: Path) -> None:
    """Of the page on travelling to a festival each passage was called `title: Travelling`, and one said `--`."""
    head = "title: Travelling\nslug: go\ntags:\n"
    for rule in ("\n", "\n--\n\n", "---\n"):
        assert read(tmp_path, "a.md", f"{head}{rule}Take the train.\n") == [("Travelling", "Take the train.")]
    head = "Date: 2010-12-03\nTitle: Travelling\nReviewer: Ada\nTags: a, b\n\n"  # Pelican has any keys, in any order
    assert read(tmp_path, "a.md", f"{head}Take the train.\n") == [("Travelling", "Take the train.")]
    head = "Title: Travelling\nBase Header Level: 2\n\n"  # MultiMarkdown's may have several words
    assert read(tmp_path, "a.md", f"{head}Go.\n") == [("Travelling", "Base Header Level: 2 Go.")]
    for head in ("% Travelling", "% Travelling\n% Ada\n% 5 May"):  # as pandoc has it
        assert read(tmp_path, "a.md", f"{head}\n\nTake the train.\n") == [("Travelling", "Take the train.")]
    assert read(tmp_path, "a.md", "% Travelling\nGo.\n") == [("", "% Travelling Go.")]  # its words stay its own
    assert read(tmp_path, "a.md", "Title: Dune is a book.\nIt was written in 1965.\n\nMore.\n")[0][1].endswith("More.")
