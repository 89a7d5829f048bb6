"""Of reStructuredText a passage has what a reader of the page sees: no marks, no addresses, nothing of other files."""

import sys
from pathlib import Path

import pytest

from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.corpus.restructured import read_rst
from raisf.retrieval.index import build_index
from tests.retrieval.conftest import reading_error_of

pytest.importorskip("docutils", reason="needs the extra documents")


def texts(tmp_path: Path, content: str) -> list[str]:
    (tmp_path / "guide.rst").write_text(content)
    return [p.text for p in read_documents(tmp_path / "guide.rst")]


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        ("It is **bold**, *slanted* and ``code``.", "It is bold, slanted and code."),
        (
            "See `the rules <https://x.example>`__, Rules_ and `the\nlist`_.\n\n.. _rules: https://x.example\n"
            ".. _the list: https://y.example",
            "See the rules, Rules and the list.",
        ),
        ("`Us <mailto:a@b.example>`_, c@d.example", "Us (a@b.example), c@d.example"),
        (":ref:`the fees <costs>`, :doc:`Setup </a/b>`, :term:`OS <system>`", "the fees, Setup, OS"),
        (":ref:`appendix-files` and :doc:`/guide/install-it`", "appendix files and install it"),
        (
            ":command:`ls`, :kbd:`Ctrl+C`, :file:`~/{name}/x`, :guilabel:`&Save`, :menuselection:`File --> Open`",
            "ls, Ctrl+C, ~/name/x, Save, File > Open",
        ),
        (":py:func:`~a.b.run`, :unheard-of:`kept <x>`, :math:`a < b`, :pep:`8`", "run, kept, a < b, PEP 8"),
        ("10\\ :sup:`6`, 10\\ :sup:`-6`, H\\ :sub:`2`\\ O, 1\\ :sup:`st`", "10^6, 10^-6, H2O, 1st"),
        (":fas:`gear` :raw-html:`<br>` Turn it.", "Turn it."),
        (
            "|w| runs |v|.\n\n.. |w| replace:: The *Widget* |x|\n.. |x| replace:: **X**",
            "The Widget X runs v.",
        ),
        ("|Build| |Docs|\n\n|logo| Once open.\n\n|product| opens.", "Once open. product opens."),
        ("It is [1]_ so [#]_ [CIT]_.\n\n.. [1] One.\n.. [#] Two.\n.. [CIT] Three.", None),
        ("- one\n\n  - deeper\n\n- two\n\nAfter.", "- one - deeper - two After."),
        ("3. Boil.\n#. Cool.\n\nb) Eat.\nc) Wash.", "3. Boil. 4. Cool. b) Eat. c) Wash."),
        ("(i) Pay.\n\n(ii) Fetch, see (ii).\n\nXIV. Ended.", "i) Pay. ii) Fetch, see (ii). XIV. Ended."),
        ("I. Newton wrote it.", "I. Newton wrote it."),
        ("When?\n\n1987.\n\nGrade?\n\nA.\n\nEnd.", "When? 1987. Grade? A. End."),
        ("**Windows**\n  Click it\n\nDeposit : fee\n  Two rents.", "Windows: Click it. Deposit (fee): Two rents."),
        ("-a, --all=N  All of\n             them.", "-a, --all=N: All of them."),
        (":Author: Ada\n:orphan:\n\n| Line one\n| line two", "Author: Ada Line one line two"),
        ("Run::\n\n  # no heading\n  ls\n\n>>> 1\n1", "Run: # no heading ls >>> 1 1"),
        (".. code-block:: sh\n   :caption: Look\n\n   ls {{x}}\n", "Look: ls {{x}}"),
        (".. parsed-literal::\n\n   ls *name*\n\n.. math:: a^2", "ls name a^2"),
        (".. a comment\n   of two lines\n\n.. note: and one\n\nText.", "Text."),
        ("{% if x %}\nText.\n{% endif %}", "Text."),
        (
            "The {% if %} tag.\n\n+-----------+---+\n| {% if %}  | a |\n+-----------+---+",
            "The {% if %} tag. {% if %}; a.",
        ),
        (":math:`\\alpha + \\frac{1}{2}`, :code:`C:\\path`", "\\alpha + \\frac{1}{2}, C:\\path"),
        (".. role:: cpp(code)\n   :language: cpp\n\nUse :cpp:`std::vector<int>`.", "Use std::vector<int>."),
        ("Linux\n   Run::\n\n      apt install x", "Linux: Run: apt install x"),
    ],
)
def test_marks_are_read_as_what_they_say(marks: str, text: str | None, tmp_path: Path):
    assert texts(tmp_path, marks) == [text or "It is [1] so [2] [CIT]. [1] One. [2] Two. [CIT] Three."]


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        (".. note:: Begins here\n   and goes on.\n\n   - item", "Begins here and goes on. - item"),
        (".. warning ::\n   :class: wide\n\n   Hot.", "Hot."),
        (".. admonition:: By the way\n\n   It rains.", "By the way: It rains."),
        (".. versionadded:: 3.1\n   It rains.\n\n.. deprecated:: 3.2", "Added in version 3.1: It rains. "),
        (
            ".. tabs::\n\n   .. tab:: Lin\n\n      Run.\n\n   .. code-tab:: sh Mac\n\n      brew",
            "Lin: Run. Mac: brew",
        ),
        (".. grid:: 1 2\n\n   .. grid-item-card:: Fees\n      :link: x\n\n      $39", "Fees: $39"),
        (".. unheard-of:: wide\n   :x: y\n\n   Inside.", "wide: Inside."),
        (".. py:function:: run(fast=True)\n\n   Runs.\n\n   :param fast: Soon.", "run(fast=True) Runs. fast: Soon."),
        (".. toctree::\n   :maxdepth: 2\n\n   a\n   b\n\n.. contents::\n\n.. todo:: Draft.\n\nEnd.", "End."),
        (".. only:: latex\n\n   Paper.\n\n.. only:: html\n\n   Page.", "Page."),
        (".. only:: latex or html\n\n   Both.\n\n.. only:: latex or man\n\n   None.", "Both."),
        (".. class:: Thread(group=None)\n\n   Runs.\n\n.. class:: wide\n\nText.", "Thread(group=None) Runs. Text."),
        (
            ".. productionlist:: grammar\n   if: test\n\nAfter.\n\n.. code-block:: sh\n   ls -l\n",
            "if: test After. ls -l",
        ),
        (
            ".. rubric:: Read/Write\n\n.. py:data:: sys.path\n\n.. plain:: a/b\n\n.. plain:: x.png",
            "Read/Write sys.path a/b",
        ),
        (".. http:get:: /users/\n\n.. http:delete:: /users/\n\n   All.", "GET /users/ DELETE /users/ All."),
        (
            ".. confval:: port\n   :type: int\n   :default: 80\n\n   Where it listens.",
            "port (type: int, default: 80) Where it listens.",
        ),
        (".. py:data:: fee_\n   :type: int\n   :value: 30\n\n   A week.", "fee_ (type: int, value: 30) A week."),
        (
            ".. c:function:: T *get(T *self, int* n)\n\n.. attribute:: coef_\n\n   Weights.\n\n.. option:: C:\\a|b",
            "T *get(T *self, int* n) coef_: Weights. C:\\a|b",
        ),
        (
            ".. automodule:: halden\n   :members:\n\n   Threads\n   -------\n\n   Not safe.\n\n"
            ".. autoclass:: halden.Client\n\n.. autofunction:: halden.refund(days=14)\n\n   Pays back.\n\n"
            ".. module:: x\n\n   Inside.",
            "Threads Not safe. halden.refund(days=14) Pays back. Inside.",
        ),
        (
            ".. deprecated-removed:: 3.1 3.3\n   Use x.\n\n.. availability:: Linux.",
            "Deprecated since version 3.1, removed in version 3.3: Use x. Availability: Linux.",
        ),
        (
            ".. code-block::\n   pip install x\n   x run\n\n.. doctest::\n   >>> 1\n   1\n",
            "pip install x x run >>> 1 1",
        ),
        (
            ".. py:class:: Box(n)\n\n   Holds.\n\n.. py:module:: a.b\n\n.. cpp:class:: C\n\n   Is.",
            "Box(n) Holds. C: Is.",
        ),
        (f"{'9' * 5000}. a\n\nText.", f"{'9' * 5000}. a Text."),
        (".. default-domain:: cpp\n\n.. program:: curl\n\n.. py:currentmodule:: widget\n\nEnd.", "End."),
        (".. image:: x.png\n   :alt: Logo\n\n.. image:: a map of the five rooms.png\n\nEnd.", "End."),
        (
            ".. figure:: x.png\n   :alt: The five rooms of the house\n\n   A plan.",
            "The five rooms of the house A plan.",
        ),
        (".. figure:: x.png\n   :alt: A plan of all five rooms\n\n   A plan of all five\n   rooms.", None),
        (".. glossary::\n\n   Term\n     What it is.", "Term: What it is."),
        (".. twice:: x\n   :a: 1\n   :a: 2\n\n   Kept nonetheless.", "x :a: 1 :a: 2 Kept nonetheless."),
        ("===\nA B\n\ntext", "=== A B text"),
    ],
)
def test_of_a_directive_the_text_is_read_whether_it_is_known_or_not(directive: str, text: str | None, tmp_path: Path):
    found = " ".join(texts(tmp_path, directive))
    if text and text.endswith(" "):
        text += "Deprecated since version 3.2."
    assert found == (text or "A plan of all five rooms.")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("==== ===\nPlan Fee\n==== ===\nLite $39\nPlus\n==== ===", "Plan: Lite; Fee: $39. Plan: Plus."),
        (
            "+----+-----------+\n|    | Fare      |\n|Zone+-----+-----+\n|    |Adult|Child|\n+====+=====+=====+\n"
            "|A   |2    |1    |\n|    +-----+-----+\n|    |3    |2    |\n+----+-----+-----+",
            "Zone: A; Fare Adult: 2; Fare Child: 1. Zone: A; Fare Adult: 3; Fare Child: 2.",
        ),
        ("+---+-----+\n| a | - b |\n+---+-----+", "a; - b."),
        (
            ".. list-table:: Fees\n   :header-rows: 1\n   :widths: 9 9 9\n   :width: 9%\n\n   * - Plan\n     - Fee\n"
            "   * - Lite\n     - **$39**\n   * - Plus",
            "Fees Plan: Lite; Fee: $39. Plan: Plus.",
        ),
        (".. list-table::\n\n   Not a list.", "Not a list."),
        ('.. csv-table:: Fees\n   :header: Plan, Fee\n\n   Lite, "$3, a week"', "Fees Plan: Lite; Fee: $3, a week."),
        (".. table:: Fees\n\n   = =\n   a b\n   = =", "Fees: a; b."),
        ("=== ===\nOne\n==\nbroken\n=== ===", "=== === One broken === ==="),
    ],
)
def test_rows_of_a_table_carry_the_names_of_their_columns(table: str, text: str, tmp_path: Path):
    assert " ".join(texts(tmp_path, table)) == text


def test_headings_part_a_file_and_are_cited_by_their_lines(tmp_path: Path):
    (tmp_path / "guide.rst").write_text(
        ".. _top:\n\n=======\nThe *Halden* guide\n=======\n\nIntro.\n\nSet **up**\n------\nRun it, see :ref:`run-it`.\n"
        "\nLog\n---\n\n1.2\n~~~\nBread.\n\n.. _run-it:\n\nHow to run\n----------\n"
    )
    found = [(p.title, p.text, p.metadata) for p in read_documents(tmp_path / "guide.rst")]
    assert found == [
        ("The Halden guide", "Intro.", {"line": 4}),
        ("The Halden guide", "Set up: Run it, see How to run.", {"line": 9, "section": "Set up"}),
        ("The Halden guide", "Log: 1.2: Bread.", {"line": 16, "section": "Log: 1.2"}),
        ("The Halden guide", "How to run", {"line": 22}),
    ]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("A REPL\n===\nOne.\n\nUsage\n===\nTwo.", [("A REPL", "One."), ("A REPL", "Usage: Two.")]),
        ("Hello.\n\nA REPL\n===\nOne.", [("A REPL", "Hello."), ("A REPL", "One.")]),
        (
            "Hello.\n\nSetup\n===\nOne.\n\nUsage\n===\nTwo.",
            [("Fees Of 2024", "Hello.")],
        ),
        ("Only text.", [("Fees Of 2024", "Only text.")]),
        ("PEP: 8\nTitle: Style\n  Guide\nStatus: Final\n\nAbstract\n===\nOne.", [("PEP 8: Style", None)]),
        ("---\ntitle: The fees\n---\n\nThe fees\n===\nOne.", [("The fees", "One.")]),
    ],
)
def test_a_document_is_called_by_its_own_heading(content: str, found: list[tuple[str, str | None]], tmp_path: Path):
    (tmp_path / "fees_of_2024.rst").write_text(content.replace("===", "======"))
    passages = list(read_documents(tmp_path))
    assert [(p.title, p.text if text else None) for p, (_, text) in zip(passages, found, strict=False)] == found


@pytest.mark.parametrize("mark", ["\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\v", "\f"])
def test_what_ends_a_line_for_docutils_alone_moves_no_citation(mark: str, tmp_path: Path):
    (tmp_path / "a.rst").write_text(f"Part\n====\n\nOne{mark}and two.\n\nNext\n----\n\nThree.\n")
    found = [(passage.text, passage.metadata["line"]) for passage in read_documents(tmp_path / "a.rst")]
    assert found == [("One and two.", 1), ("Next: Three.", 6)]


def test_wrapped_paragraphs_items_code_and_rows_are_cited_by_their_own_lines(tmp_path: Path):
    """Whatever parts the lines: a link over two of them, a directive, a table."""
    marks = ["p{} is a line of eight words or so"] * 60, ["- p{} is an item of nine words or so"] * 60
    code, rows = ["   p{} is a line of nine words and so"] * 60, ["   * - p{} is a line of nine words"] * 60
    cells = ['   p{} is a line,"of nine', '   words", or so'] * 30
    holders = ["", ""], ["", ""], [".. note::", ""], [".. code::", ""], [".. list-table::", ""], [".. csv-table::", ""]
    for (first, second), parts in zip(holders, [*marks, code, code, rows, cells], strict=True):
        lines = ["Part", "====", "", "Intro.", "", first, second]
        lines += [line.format(number) for number, line in enumerate(parts, start=8)]
        if parts is marks[0]:
            lines[9] = "p10 is `a line of eight words"
            lines[10] = "p11 <https://x.example>`_ or even so more"
        (tmp_path / "a.rst").write_text("\n".join(lines))
        found = list(read_documents(tmp_path / "a.rst"))
        assert len(found) > 2
        for passage in found[1:]:
            begins = next(int(word[1:]) for word in passage.text.split() if word[0] == "p" and word[1:].isdigit())
            assert begins - 1 <= int(str(passage.metadata["line"])) <= begins


def test_a_document_takes_in_no_other_file_and_no_address(tmp_path: Path):
    """Whatever a stranger's document asks for: nothing but the document itself is opened."""
    secret = tmp_path / "secret.txt"
    secret.write_text("a,hunter2")
    asks = [f".. {name}:: {secret}\n" for name in ("include", "literalinclude", "raw", "image", "figure", "plot")]
    asks += [f".. {name}::\n   :file: {secret}\n" for name in ("csv-table", "raw", "list-table")]
    asks += [".. csv-table::\n   :url: https://x.example/a.csv\n", f".. raw:: html\n   :url: file://{secret}\n"]
    asks += [f".. figure:: {secret}\n   :figwidth: image\n", f".. image:: {secret}\n   :loading: embed\n"]
    asks += [f".. |x| include:: {secret}\n", ".. raw:: html\n\n   hunter2\n", ".. date::\n", ".. role:: hunter2(raw)\n"]
    (tmp_path / "a.rst").write_text("\n".join([*asks, "Said: |x| :hunter2:`End`."]))
    opened, watching = list[str](), True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in ("open", "socket.connect", "subprocess.Popen", "urllib.Request"):
            opened.append(str(arguments[0]))

    list(read_rst(tmp_path / "a.rst", "a.rst", None))  # what it imports is loaded
    sys.addaudithook(watch)
    found = " ".join(p.text for p in read_rst(tmp_path / "a.rst", "a.rst", None))
    watching = False
    assert opened == [str(tmp_path / "a.rst")]
    assert "hunter2" not in found and found.endswith("End.")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Caf\xe9", "a.rst: not utf-8"),
        (b"a\0b", "a.rst, line 1: zero bytes"),
        (b"", "the corpus is empty"),
        (b".. only a comment", "the corpus is empty"),
    ],
)
def test_what_cannot_be_read_is_named(content: bytes, message: str, tmp_path: Path):
    (tmp_path / "a.rst").write_bytes(content)
    assert message in reading_error_of(tmp_path / "a.rst")


@pytest.mark.parametrize("mark", ["- x", ".. note::", "x"])
def test_what_nests_without_end_is_read_as_it_is_written(mark: str, tmp_path: Path):
    found = texts(tmp_path, "".join(f"{'   ' * depth}{mark}\n\n" for depth in range(400)) + f"{'   ' * 400}Deep.")
    assert found[-1].endswith("Deep.") and " ".join(found).count(mark) == 400


def test_a_name_that_stands_for_many_does_not_fill_the_memory(tmp_path: Path):
    names = "".join(f".. |a{n}| replace:: {f'|a{n + 1}| ' * 10}\n" for n in range(30))
    assert len(texts(tmp_path, f"{names}.. |a30| replace:: lol\n\n|a0| |a0|\n")) == 1
    assert texts(tmp_path, ".. |a| replace:: |b|\n.. |b| replace:: |a| too\n\nIt is |a|.") == ["It is too."]


def test_a_folder_of_such_files_is_found_by_its_words(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.rst").write_text("Rivers\n======\n\nThe **Danube** is long.\n")
    (tmp_path / "docs" / "b.mdx").write_text('import A from "a"\n\n# Games\n\n<A>\n\n  Chess is **old**.\n</A>\n')
    index = build_index(tmp_path / "docs", tmp_path / "i", "bm25", progress=False)
    assert [(p.citation, p.title, p.text) for p in (index("Danube", 1)[0], index("chess", 1)[0])] == [
        ("a.rst, line 1", "Rivers", "The Danube is long."),
        ("b.mdx, line 3", "Games", "Chess is old."),
    ]
