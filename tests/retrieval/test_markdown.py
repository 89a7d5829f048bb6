"""Of Markdown's marks a passage has what they say, and it ends where a paragraph, an item or a row does."""

from pathlib import Path

import pytest

from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.corpus.splitting import LONGEST, SHORTEST, split_text


def texts(tmp_path: Path, content: str) -> list[str]:
    (tmp_path / "guide.md").write_text(content)
    return [p.text for p in read_documents(tmp_path / "guide.md")]


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        ("It is **bold**, *slanted* and `code`.", "It is bold, slanted and code."),
        (
            "See [the rules](/rules#1), [more][most] and [most].\n\n[most]: https://x.example",
            "See the rules, more and most.",
        ),
        (
            "![A river](river.png) It flows. <!-- hidden\nnote --> <b>Fast</b><br>and wide &amp; deep.",
            "It flows. Fast and wide & deep.",
        ),
        ("> Quoted.\n{: .note}", "Quoted."),
        ("We meet on <time datetime='2026-08-27'>27th August</time>.\n\n\\newpage\n", "We meet on 27th August."),
        ("- [ ] Anchor\n- [x] Bailer\n\n[ ] is a box.", "- Anchor - [x] Bailer [ ] is a box."),
        ("Write `{.x}` and {#each}.", "Write {.x} and {#each}."),
        ("<div>\n<p>In &lt;tags&gt;</p>\n</div>\n\nOut.", "In <tags> Out."),
        ("- one\n  - deeper\n- ![](x.png)\n\nAfter.", "- one - deeper After."),
        ("3. Boil.\n4. Cool.", "3. Boil. 4. Cool."),
        ("Opened:\n\n1987.\n\nFloors:\n\n* 42)\n*\n\nEnd.", "Opened: 1987. Floors: 42) End."),
        ("```sh\n# no heading\nls\n```\n\n    indented", "# no heading ls indented"),
        ("a | b", "a | b"),
        ('![A photo of the old pool.](p.jpg "Pool")', "A photo of the old pool."),
        ('![Pool](p.jpg "The pool was built in 1931.")', "The pool was built in 1931."),
        ("`m[i][j]` and \\[A\\]\\[B\\] and [no][link]", "m[i][j] and [A][B] and [no][link]"),
        (
            "A `Vec<int>` or Vec<String>, 10<sup>6</sup>, 1<sup>1</sup >/<sub >2</sub>, 1<sup>st</sup> "
            "<kbd>Ctrl</kbd><kbd>C</kbd>",
            "A Vec<int> or Vec<String>, 10^6, 1 1/2, 1st Ctrl C",
        ),
        ("Kept.\n{: type='a'}", "Kept."),
        (
            "In <ruby>東<rp>(</rp><rt>tō</rt><rp>)</rp>京<rt>kyō</ruby > a `<rt>` is <rt> and <ruby> too.",
            "In 東京 a <rt> is <rt> and <ruby> too.",
        ),
        ("Before.\n\n<!-- todo\n\nAfter.", "Before. todo After."),
        ("x {: .a " + " " * 50_000, "x {: .a"),
        ("One\nof two lines\n---\nMore.", "One of two lines More."),
        (f"{'word ' * 16}\n---\nMore.", "word " * 16 + "More."),
        ("It is.[^1]\n\n[^1]: Forbidden\n[^2]: Here\n\nEnd.", "It is.[1] [1] Forbidden [2] Here End."),
        (
            "On [Monday][^b], not [^c] or `[^b]`.\n\n  [^b]:\n    In May.\n\n    Later: Friday.",
            "On [Monday][b], not [^c] or [^b]. [b] In May. Later: Friday.",
        ),
        (
            "Deposit\n:   Two **rents**,\nin cash\n\n    - or gold\n\n**Fee:**\n\n: `$40`\n: $20",
            "Deposit: Two rents, in cash - or gold Fee: $40. $20.",
        ),
        ("Run\n:   ```sh\n    : ls\n    ```\n\nAt 9\n:smile: or 10 : 30", "Run: : ls At 9 :smile: or 10 : 30"),
        ("It is ~~$50~~ $40,\n~~or\n**so**,~~ and <del>Ann</del><ins>Bo</ins> a ~~ b.", "It is $40, and Bo a ~~ b."),
        ("- ~~Done~~\n- `~~x~~` <S a='b'>9</S> 8 <s>kept.\n\n<p>Was <s>9</s>8", "- ~~x~~ 8 kept. Was 8"),
        ("<script>x()</script>\n\n<style>y</style>\n\n[Text", "[Text"),
        ('```toml title="fees.toml"\nlite = 39\n```', "fees.toml: lite = 39"),
        ("```sh [All fees] \nfees -a\n```\n\n```{r}\nx\n```", "All fees: fees -a x"),
    ],
)
def test_marks_are_read_as_what_they_say(marks: str, text: str, tmp_path: Path):
    assert texts(tmp_path, marks) == [text]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("| Plan | Fee |\n| --- | --- |\n| Lite | **$39** |\n| Plus | |", "Plan: Lite; Fee: $39. Plan: Plus."),
        ("| | Fee: |\n| --- | --- |\n| Day pass | $12! |", "Day pass; Fee: $12!"),
        ("| Only | names |\n| --- | --- |", "Only; names."),
        ("| Who | What | Due |\n| --- | --- | --- |\n| Ada | | |", "What; Due. Who: Ada."),
        (
            "| Task | Owner |\n| --- | --- |\n| <ul><li>Backups</li><li>Tests</li></ul> | Bob |",
            "Task: Backups Tests; Owner: Bob.",
        ),
        ("<table><tr><th>Plan<th>Fee</tr>\n<tr><td>Lite<td>39</tr></table>", "Plan: Lite; Fee: 39."),
        ("| One |\n| --- |\n| cell |\n\nAfter.\n\n| Two |\n| --- |\n| cells |", "One: cell. After. Two: cells."),
    ],
)
def test_rows_of_a_table_carry_the_names_of_their_columns(table: str, text: str, tmp_path: Path):
    assert texts(tmp_path, table) == [text]


def test_headings_of_both_kinds_part_a_file_and_are_cited_by_their_lines(tmp_path: Path):
    (tmp_path / "guide.md").write_text(
        "# The *guide* to [us](x)\n\nIntro.\n\nSet **up**\n------\nRun it.\n\n- item\n\n  ## no section\n\n"
        "## ![](x)\nEnd.\n"
    )
    found = [(p.title, p.text, p.metadata) for p in read_documents(tmp_path / "guide.md")]
    assert found == [
        ("The guide to us", "Intro.", {"line": 1}),
        ("The guide to us", "Set up: Run it. - item no section", {"line": 5, "section": "Set up"}),
        ("The guide to us", "End.", {"line": 13}),
    ]


@pytest.mark.parametrize(
    ("file", "above"),
    [
        ("a.md", "---\ntitle: Fees\ntags: [a]\n---\n"),
        ("a.md", "<!-- A licence,\nof two lines. -->\n"),
        ("a.mdx", 'import A from "a"\n'),
        ("a.rst", ".. A licence,\n   of two lines.\n"),
    ],
)
def test_what_no_heading_stands_above_is_cited_by_its_own_line(file: str, above: str, tmp_path: Path):
    (tmp_path / file).write_text(f"{above}\nThe fee is due in May.\n\nRules\n-----\n\nPay.\n")
    begins = above.count("\n") + 2
    fee, rules = read_documents(tmp_path / file)
    assert (fee.text, fee.metadata["line"]) == ("The fee is due in May.", begins)
    assert rules.metadata["line"] == begins + 2


def test_a_heading_without_text_leads_those_below_it_or_stands_alone(tmp_path: Path):
    (tmp_path / "log.md").write_text(
        "# Changes\n## 1.2 - 2024\n### Added\n\n- Bread.\n### Fixed:\nButter.\n## 1.1 - 2023\n## Ada, 555\n### Bob\n"
        "### Carl\n![](x)\n# Other"
    )
    found = [(p.title, p.text, p.citation.removeprefix("log.md, line ")) for p in read_documents(tmp_path / "log.md")]
    assert found == [
        ("Changes", "1.2 - 2024: Added: - Bread.", "3"),
        ("Changes", "1.2 - 2024: Fixed: Butter.", "6"),
        ("Changes", "1.1 - 2023", "8"),
        ("Changes", "Ada, 555: Bob", "10"),
        ("Changes", "Ada, 555: Carl", "11"),
        ("Other", "Other", "13"),
    ]


def test_lines_of_code_are_cited_by_their_own(tmp_path: Path):
    code = [f"line {n} of a licence that nobody reads" for n in range(1, 60)]
    (tmp_path / "a.md").write_text("\n".join(["Text.", "", "```", *code, "```"]))
    _, *others = read_documents(tmp_path / "a.md")
    assert len(others) > 2
    assert all(passage.metadata["line"] == 3 + int(passage.text.split()[1]) for passage in others)


def test_a_wrapped_paragraph_is_cited_by_the_line_within_it(tmp_path: Path):
    """Whatever stands in the lines: code over two of them, a hard break, an item's mark, a quotation's."""
    wrapped = [f"w{n} begins this line of eight words or so" for n in range(4, 64)]
    wrapped[3], wrapped[4] = "w7 begins this line with `raisf index", "w8` over two lines and *emphasis*  "
    marks = ["- ", "  "]
    for start, later in (("", ""), marks, ("> ", "> ")):
        lines = [f"{later if n else start}{line}" for n, line in enumerate(wrapped)]
        (tmp_path / "a.md").write_text("\n".join(["## Part", "", "Intro.", *lines] if start else ["## Part", *lines]))
        found = list(read_documents(tmp_path / "a.md"))
        first = 3 if start else 2
        assert len(found) > 4
        for passage in found[1:]:
            words = passage.text.removeprefix("Part: ").split()
            begins = next(int(word.strip("`")[1:]) for word in words if word[0] == "w" and word[1:2].isdigit())
            within = words[0] != f"w{begins}"  # it begins in the midst of the line before
            assert passage.metadata["line"] == first + begins - 4 + (start != "") - within


@pytest.mark.parametrize(("opens", "closes"), [("<pre>", "</pre>"), ("<p align=center>\n<b>Note</b>", "</p>")])
def test_a_paragraph_of_html_of_many_lines_is_cited_by_the_line_within_it(opens: str, closes: str, tmp_path: Path):
    written = [f"w{n} begins this &amp; line of eight words or so" for n in range(60)]
    written[20] = "w20 is <b>not</b>, here, told as it is <i>written</i>"
    lines = ["# T", "", *f"{opens}\n".splitlines(), *written, closes, "", "After."]
    (tmp_path / "a.md").write_text("\n".join(lines))
    _, *later = read_documents(tmp_path / "a.md")
    assert len(later) > 2
    for passage in later:
        words = passage.text.split()
        number = int(next(word for word in words if word[0] == "w" and word[1:].isdecimal())[1:])
        within = not words[0].startswith("w")  # it begins in the midst of the line before
        assert passage.metadata["line"] == 1 + next(
            at for at, line in enumerate(lines) if line.startswith(f"w{number - within} ")
        )


def test_paragraphs_of_html_are_cited_by_their_own_lines(tmp_path: Path):
    lines = ["# T", "", "<!-- a", "comment -->", '<div class="wide"', "   id=x>"]
    lines += [f"<p>p{n} {'is a paragraph of eighty words ' * 14}</p>" for n in range(4)]
    (tmp_path / "a.md").write_text("\n".join([*lines, "</div>"]))
    found = [(passage.text.split()[0], passage.metadata["line"]) for passage in read_documents(tmp_path / "a.md")]
    assert found == [("p0", 1), ("p1", 8), ("p2", 9), ("p3", 10)]


def test_a_passage_of_a_long_section_is_cited_by_its_own_first_line(tmp_path: Path):
    lines = ["---", "title: Pools", "---", "## Fees", "", "| Plan | Fee |", "| --- | --- |"]
    lines += [f"| Plan {n} | {n} crowns a month, and a deposit |" for n in range(40)]
    (tmp_path / "pools.md").write_text("\n".join([*lines, "", "A sentence of seven words, or so. " * 60]))
    found = list(read_documents(tmp_path / "pools.md"))
    assert len(found) > 6 and found[0].citation == "pools.md, line 4"
    for passage in found[1:]:
        begins = passage.text.removeprefix("Fees: ").split(";")[0].removeprefix("Plan: ")
        line = lines.index(next((line for line in lines if f"| {begins} |" in line), lines[-1])) + 1
        assert passage.metadata["line"] == (line if begins.startswith("Plan ") else len(lines) + 2)


@pytest.mark.parametrize("depth", [60, 300])
@pytest.mark.parametrize("mark", ["> ", ": ", "[^1]: "])
def test_what_lies_deep_is_not_lost(mark: str, depth: int, tmp_path: Path):
    assert "at the bottom" in " ".join(texts(tmp_path, mark * depth + "at the bottom"))


def test_a_passage_ends_where_an_item_or_a_paragraph_does():
    item = "The day pass of the upper pool costs twelve crowns for all who live in the town.\n"
    for mark in ("- ", "* ", "\u2022 ", "7. ", "7) ", "\n"):
        pieces = split_text("".join(mark + item for _ in range(30)))
        assert len(pieces) > 3 and all(piece.endswith("town.") for piece in pieces)
    listed = split_text("".join(f"{n}. Stir. Then wait {n} minutes or so, until it is cold\n" for n in range(1, 60)))
    assert all(piece.endswith("cold") for piece in listed)
    assert all(SHORTEST <= len(piece.split()) <= LONGEST for piece in listed[:-1])


def test_what_leads_to_a_list_stays_with_it():
    before = "It opens at nine and closes at five on every day but Sunday. " * 8
    text = f"{before}\n\nThe fees are:\n\n" + "\n".join(
        f"- Plan {n}: {n} crowns a month and nothing more" for n in range(20)
    )
    pieces = split_text(text)
    assert not any(piece.endswith(":") for piece in pieces)
    assert " ".join(pieces) == " ".join(text.split()), "nothing is lost"
