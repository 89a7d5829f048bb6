"""The corpora of the field are indexed as they are distributed, packed or not, a passage at a time."""

import bz2
import csv
import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raisf.retrieval.corpus.documents import find_documents
from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.passage import Passage
from raisf.retrieval.search.where import parse_where
from raisf.utils.errors import InputError
from raisf.utils.text import clean, composed

SHARED = Path(__file__).parents[3] / "shared" / "data"

CELLS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)

# What DPR distributes: three columns, parted by tabs, quoted where a cell has quotes.
PSGS = (
    "id\ttext\ttitle\n"
    '1\t"Aaron Aaron ( or ; ""Ahärôn"") is a prophet and high priest."\tAaron\n'
    '2\tplain text without quotes\t"""Weird Al"" Yankovic"\n'
    '3\t"two\nlines"\tLines\n'
)
# Without the time, or the workers of a test run would not have the same tests.
CUT = gzip.compress(PSGS.encode(), mtime=0)[:-20]
# What HotpotQA distributes: folders AA, AB, ... of bzip2 files, a page a line.
ABSTRACT = {
    "id": "12",
    "url": "https://en.wikipedia.org/wiki?curid=12",
    "title": "Anarchism",
    "text": ["Anarchism is a political philosophy.", " It advocates self-governed societies."],
    "charoffset": [[[0, 9], [10, 12]], [[37, 39]]],
    "text_with_links": ['Anarchism is a <a href="political%20philosophy">political philosophy</a>.', " It advocates."],
    "charoffset_with_links": [[[0, 9]], [[37, 39]]],
}
# What ColBERT reads: numbered from 0, no names of columns, no quoting.
COLLECTION = (
    '0\tAnarchism | Anarchism is "a" political philosophy.\n'
    "1\tA passage of MS MARCO has no title.\n"
    '2\t"Quoted" | Begins with a quote.\n'
    "3\tThe text | of three columns.\tThe title\n"
)


def read(path: Path) -> list[tuple[str, str, str]]:
    return [(passage.pid, passage.title, passage.text) for passage in read_documents(path)]


def test_dprs_passages(tmp_path: Path):
    expected = [
        ("1", "Aaron", 'Aaron Aaron ( or ; "Ahärôn") is a prophet and high priest.'),
        ("2", '"Weird Al" Yankovic', "plain text without quotes"),
        ("3", "Lines", "two lines"),
    ]
    (tmp_path / "psgs_w100.tsv").write_text(PSGS, encoding="utf-8")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "psgs_w100.tsv.gz").write_bytes(gzip.compress(PSGS.encode()))
    assert read(tmp_path / "psgs_w100.tsv") == read(tmp_path / "packed" / "psgs_w100.tsv.gz") == expected
    assert next(read_documents(tmp_path / "psgs_w100.tsv")).citation == "psgs_w100.tsv, line 2"


@settings(max_examples=60, deadline=None)
@given(cells=st.lists(st.tuples(CELLS.filter(clean), CELLS), min_size=1, max_size=5))
def test_every_text_that_csv_can_write_is_read(tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str]]):
    file = tmp_path_factory.mktemp("psgs") / "p.tsv"
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, delimiter="\t")
        writer.writerow(["id", "text", "title"])
        writer.writerows([number, *pair] for number, pair in enumerate(cells))
    assert read(file) == [
        (str(number), clean(composed(title)), clean(text)) for number, (text, title) in enumerate(cells)
    ]


def test_hotpotqas_abstracts_in_their_folders(tmp_path: Path):
    for number, folder in enumerate(("AA", "AB")):
        (tmp_path / folder).mkdir()
        line = json.dumps(ABSTRACT | {"id": str(12 + number)}) + "\n"
        (tmp_path / folder / "wiki_00.bz2").write_bytes(bz2.compress(line.encode()))
    text = "Anarchism is a political philosophy. It advocates self-governed societies."
    first, second = read_documents(tmp_path)
    assert first == Passage(
        "12", text, "Anarchism", source="AA/wiki_00.bz2", metadata={"line": 1, "url": ABSTRACT["url"]}
    )
    assert (second.pid, second.citation) == ("13", "AB/wiki_00.bz2, line 1")


def test_colberts_collection_and_its_quotes(tmp_path: Path):
    (tmp_path / "collection.tsv").write_text(COLLECTION)
    assert read(tmp_path / "collection.tsv") == [
        ("0", "Anarchism", 'Anarchism is "a" political philosophy.'),
        ("1", "", "A passage of MS MARCO has no title."),
        ("2", '"Quoted"', "Begins with a quote."),
        ("3", "The title", "The text | of three columns."),
    ]
    # The encoder sees what ColBERT itself would have made of the line.
    assert next(read_documents(tmp_path / "collection.tsv")).prompt_text == COLLECTION.split("\n")[0].split("\t")[1]


@pytest.mark.parametrize(
    ("name", "text"),
    [("part-00003.tsv", "Hexagon bolt"), ("msmarco_part2.tsv", "Hexagon bolt"), ("parts.tsv", "1001; Hexagon bolt")],
)
def test_the_numbers_of_a_collections_part_are_ids_and_those_of_parts_are_told(tmp_path: Path, name: str, text: str):
    """A list of parts, or of departments, lost its numbers."""
    (tmp_path / name).write_text("1001\tHexagon bolt\n1002\tWasher\n")
    assert next(read_documents(tmp_path / name)).text.startswith(text)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("Plan,Fee\nLite,$39\n\nFull,\n", [("Price List", "Plan: Lite; Fee: $39. Plan: Full.", {"line": 2})]),
        ("Plan;Fee\nLite;1,5\n", [("Price List", "Plan: Lite; Fee: 1,5.", {"line": 2})]),
        ("Plan\tFee, net\tAge\nLite\t3\t\n", [("Price List", "Plan: Lite; Fee, net: 3.", {"line": 2})]),
        ("title;text\nLite;It is cheap.\n", [("Lite", "It is cheap.", {"line": 2})]),
        ("sep=;\nPlan;Fee, net\nLite;3\n", [("Price List", "Plan: Lite; Fee, net: 3.", {"line": 3})]),
        ("sep=;\n\nPlan;Fee, net, all\nLite;3\n", [("Price List", "Plan: Lite; Fee, net, all: 3.", {"line": 4})]),
        ("Plan|Fee\nLite|1,5\n", [("Price List", "Plan: Lite; Fee: 1,5.", {"line": 2})]),
        ("Plan,Pay\nLite,a|b\n", [("Price List", "Plan: Lite; Pay: a|b.", {"line": 2})]),
        ("Plan,A|B|C\nLite,1|2|3\n", [("Price List", "Plan: Lite; A|B|C: 1|2|3.", {"line": 2})]),
        (";;\r\n \r\nPlan;Fee;Age\r\nLite;3;9\r\n", [("Price List", "Plan: Lite; Fee: 3; Age: 9.", {"line": 4})]),
        ("\n\nPlan;Fee\nLite;3\n", [("Price List", "Plan: Lite; Fee: 3.", {"line": 4})]),
        ("2024-01-03,Tea\n2024-01-04,Milk\n", [("Price List", "2024-01-03; Tea. 2024-01-04; Milk.", {"line": 1})]),
        ("Room;3/1/2024\nA;4\n", [("Price List", "Room: A; 3/1/2024: 4.", {"line": 2})]),
        (",text\n0,It is cheap.\n", [("", "It is cheap.", {"line": 2})]),
        ("id,Name,Fee\n7,Lite,3\n", [("Lite", "id: 7; Fee: 3.", {"line": 2, "name": "Lite", "fee": "3"})]),
        (
            "Name,Fee\nLite,\n,3\n",
            [("Lite", "Name: Lite.", {"line": 2, "name": "Lite"}), ("Price List", "Fee: 3.", {"line": 3, "fee": "3"})],
        ),
        (
            "Stop,Route,Day,From,To\nMill,2,Friday,9:00,\n,,,,\n",
            [
                (
                    "Price List",
                    "Stop: Mill; Route: 2; Day: Friday; From: 9:00.",
                    {"line": 2, "stop": "Mill", "route": "2", "day": "Friday", "from": "9:00"},
                )
            ],
        ),
    ],
)
def test_a_table_without_a_text_is_read_by_the_names_of_its_columns(tmp_path: Path, content: str, found: list):
    """Nearly all tables of a spreadsheet were skipped."""
    (tmp_path / "price_list.csv").write_text(content)
    assert [(p.title, p.text, p.metadata) for p in read_documents(tmp_path)] == found


def test_long_and_many_cells_of_a_row_are_read_and_not_repeated_in_each_of_its_passages(tmp_path: Path):
    """Such a file came to over fifty times its size, and was skipped."""
    table = tmp_path / "talks.csv"
    table.write_text("Author,Year,Topic,Lang,Body\nAnn,1999,sea,en," + "The sea is wide and deep. " * 7000 + "\n")
    found = list(read_documents(tmp_path))
    assert len(found) > 300 and sum(p.text.count("sea is wide") for p in found) == 7000
    assert {tuple(p.metadata.items()) for p in found} == {
        (("line", 2), ("author", "Ann"), ("year", "1999"), ("topic", "sea"), ("lang", "en"))
    }
    names, cells = ",".join(f"c{n}" for n in range(10_000)), ",".join(map(str, range(10_000)))
    table.write_text(f"{names}\n{cells}\n")
    found = list(read_documents(tmp_path))
    assert "c9999: 9999" in found[-1].text and found[0].metadata["c0"] == "0"
    assert sum(len(str(p.metadata)) for p in found) < 20 * len(names + cells)


def test_of_columns_of_one_name_the_first_that_says_something_is_filtered_by(tmp_path: Path):
    (tmp_path / "t.csv").write_text("A,A,B,C,D\nx,y,1,2,3\n,z,1,2,3\n")
    assert [p.metadata["a"] for p in read_documents(tmp_path)] == ["x", "z"]
    assert next(read_documents(tmp_path)).text == "A: x; A: y; B: 1; C: 2; D: 3."


def test_a_column_with_a_turkish_capital_is_filtered_by_what_is_typed(tmp_path: Path):
    (tmp_path / "t.csv").write_text("Ad,\u0130l,Plaka,Rakim,Alan\nKale,Ankara,6,1,2\n")
    assert parse_where("il = 'Ankara'")(next(read_documents(tmp_path)))


def test_rows_of_a_long_table_are_cut_between_and_cited_by_their_lines(tmp_path: Path):
    (tmp_path / "ports.csv").write_text("Port,Depth\n" + "".join(f"Port {n},{n} m\n" for n in range(2500)))
    found = list(read_documents(tmp_path))
    told = (re.match(r"Port: Port (\d+); Depth: \1 m\. ", p.text) for p in found)
    assert [int(p.metadata["line"]) - 2 for p in found] == [int(first[1]) for first in told if first]
    assert sum(p.text.count("Depth") for p in found) == 2500 and all(len(p.text.split()) <= 130 for p in found)


def test_a_json_list_is_read_where_it_is_named_and_passed_over_in_a_folder(tmp_path: Path):
    rows = [{"title": "A", "text": "One."}, {"idx": 7, "title": "B", "text": "Two."}]
    (tmp_path / "corpus.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "a.txt").write_text("Text.")
    assert read(tmp_path / "corpus.json") == [("corpus.json#1", "A", "One."), ("corpus.json#2", "B", "Two.")]
    assert next(read_documents(tmp_path / "corpus.json")).citation == "corpus.json, row 1"
    assert [document.name for document in find_documents(tmp_path)] == ["a.txt"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "collection.tsv",
            b"0\tx | y\n1\n",
            "collection.tsv, line 2: expected an id, a text and maybe a title, found 1",
        ),
        ("collection.tsv", b"0\tx\n1\ta\tb\tc\n", "line 2: expected an id, a text and maybe a title, found 4 columns"),
        (
            "collection.tsv",
            b"0\tx\n1\ty\n1\tz\n",
            "the id '1' comes twice: collection.tsv, line 1 or a little after it",
        ),
        ("psgs_w100.tsv", b"id\ttext\ttitle\n1\tx\n", "psgs_w100.tsv, line 2: fewer than the 3 columns"),
        ("c.csv", b'id,text\n0,a\n1,"open\n2,b\n3,c\n', "c.csv, line 3: not a table"),
        ("c.csv", b'id,text\n0,a\n1,"He" said\n', "c.csv, line 3: not a table"),
        ("c.csv", b'id,"text\n0,a\n1,b\n', "c.csv, line 1: not a table"),
        ("psgs_w100.tsv", b"identity\ttext\n1\tx\n2", "psgs_w100.tsv, line 3: fewer than the 2 columns"),
        ("psgs_w100.tsv.gz", CUT, "psgs_w100.tsv.gz: cannot be unpacked to its end"),
        ("psgs_w100.tsv.gz", b"id\ttext\n", "cannot be unpacked to its end (Not a gzipped file"),
        ("wiki_00.bz2", b"not packed", "wiki_00.bz2: cannot be unpacked to its end (Invalid data stream)"),
        ("wiki_00.bz2", bz2.compress(b'{"text": ["a", 3]}'), "wiki_00.bz2, line 1: no 'text' of type string"),
        ("corpus.json", b'[{"text": "x"}, 3]', 'corpus.json, row 2: expected {"text": ...}, found int'),
        ("corpus.json", b'[{"text": "x"}, {"title": "x"}]', "corpus.json, row 2: no 'text'"),
        ("corpus.json", b'{"text": "x"}', "expected a list, found an object with text: one row alone stands in [ ]"),
        ("corpus.json", b'{"text": "x"}\n{"text": "y"}\n', "or each on one line of a file named .jsonl"),
        ("spread.json", b'{\n"text": "x"\n}\n{"text":\n"y"}\n', "found one object after another: put them in [ ]"),
        ("notes.pdf.gz", b"", ".gz is no kind of document"),
    ],
)
def test_a_broken_corpus_names_its_line(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        list(read_documents(tmp_path / name))
    assert message in str(caught.value)


def test_packed_text_is_titled_like_unpacked(tmp_path: Path):
    (tmp_path / "the_guide.txt.gz").write_bytes(gzip.compress("Où?".encode()))
    assert read(tmp_path / "the_guide.txt.gz") == [("the_guide.txt.gz#1", "The Guide", "Où?")]


def test_a_real_corpus_is_indexed_and_searched(tmp_path: Path):
    file = SHARED / "wikipedia_abstracts" / "corpus_6119.json"
    if not file.is_file():
        pytest.skip(f"no {file.name} in a folder shared/data beside the repository")
    passages = list(islice(read_documents(file), 500))
    assert all(passage.title and passage.text for passage in passages)
    index = BM25.build(passages, tmp_path / "index")
    assert index("Teutberga, queen of Lotharingia", 1)[0].title == "Teutberga"
    rows = [passage for passage in read_documents(file) if not passage.pid.endswith("#2")]
    assert len(rows) >= 6_119


# The kernel's own high-water mark: that of `resource` is the parent's where the parent has used more.
MEASURE = """
import re, sys
from pathlib import Path
from raisf.retrieval.corpus.reading import read_documents
count = letters = 0
for passage in read_documents(sys.argv[1]):
    count += 1
    letters += len(passage.text)
    if count in (50_000, int(sys.argv[2])):
        print(count, letters, re.search("VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def psgs(count: int) -> Iterator[list[object]]:
    """Rows of a hundred words each, as DPR's."""
    words = [f"word{place * 7 % 9973}" for place in range(9973 + 99)]
    for number in range(1, count + 1):
        start = number * 31 % 9973
        yield [number, f'{" ".join(words[start : start + 99])} "quoted".', f"Title {number // 10}"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="memory is read from /proc, which only Linux has")
def test_a_million_passages_are_read_in_the_memory_of_fifty_thousand(tmp_path: Path):
    file, count = tmp_path / "psgs_w100.tsv", 1_000_000
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, delimiter="\t")
        writer.writerow(["id", "text", "title"])
        writer.writerows(psgs(count))
    run = [sys.executable, "-c", MEASURE, str(file), str(count)]
    shown = subprocess.run(run, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]).stdout
    (_, _, early), (total, letters, late) = [map(int, line.split()) for line in shown.splitlines()]
    assert total == count and letters > 500 * count
    assert late - early < 8 * 1024, f"{early} kB after 50,000 passages, {late} kB after {count}"


ROWS = "Plan: Lite; Fee: 39. Plan: Plus; Fee: 59."
NOTED = "Plan: Lite; Fee: 39. Plan: Plus; Fee: 59; Note: x."
BOARD = "Board of ours: President; Ann. Board of ours: Treasurer; Bob."


@pytest.mark.parametrize(
    ("content", "told"),
    [
        # empty cells that a spreadsheet leaves off, a caption of its own, a sign in the names that parts no columns
        ("Plan,Fee,Note\nLite,39\nPlus,59,x\n", [("Price List", NOTED)]),
        ("Prices of now,,\nIn euros,,\nPlan,Fee,Note\nLite,39,\nPlus,59,\n", [("Prices of now In euros", ROWS)]),
        ("Prices of now\nPlan,Fee\nLite,39\nPlus,59\n", [("Prices of now", ROWS)]),
        ("Prices of now\nPlan;Fee\nLite;39\nPlus;59\n", [("Prices of now", ROWS)]),
        ("Prices of now\nPlan;Fee;Note\nLite;39\nPlus;59;x\n", [("Prices of now", NOTED)]),
        ("Prices of now\nPlan,Fee,Note\nLite,39\nPlus,59,x\n", [("Prices of now", NOTED)]),
        ("Prices of now\nIn euros\nPlan;Fee;Note\nLite;39\nPlus;59;x\n", [("Prices of now In euros", NOTED)]),
        ("Full text\nOne; two.\nThree; four.\n", [("Price List", "Full text: One; two. Full text: Three; four.")]),
        ("Board of ours,\nPresident,Ann\nTreasurer,Bob\n", [("Price List", BOARD)]),
        ("Who pays?,\nWho runs it?,\n", [("Price List", "Who pays?: Who runs it?")]),
        ("Plan;Fee (EUR, net);Notes, all\nA;39;x\n", [("Price List", "Plan: A; Fee (EUR, net): 39; Notes, all: x.")]),
        ("Fees now,,\nid,text,year\na,Ten.,1\nb,Two.,2\n", [("Fees now", "Ten."), ("Fees now", "Two.")]),
        (",value\n0,5\n1,6\n", [("Price List", "0; value: 5. 1; value: 6.")]),
        ("1,Ada,Oslo\n2,Bob,Bern\n", [("Price List", "1; Ada; Oslo. 2; Bob; Bern.")]),
        ("10,Ada\n25,Bob\n", [("Price List", "10; Ada. 25; Bob.")]),
        ("2023,Oslo,Bern\n1,5,6\n", [("Price List", "2023: 1; Oslo: 5; Bern: 6.")]),
        ("2023,2024\n2024,6\n", [("Price List", "2023: 2024; 2024: 6.")]),
        ("date,text,image\n1913,No hunting.\n", [("", "No hunting.")]),
    ],
)  # fmt: skip
def test_tables_as_spreadsheets_write_them(content: str, told: list[tuple[str, str]], tmp_path: Path) -> None:
    (tmp_path / "price_list.csv").write_text(content)
    assert [(found.title, found.text) for found in read_documents(tmp_path / "price_list.csv")] == told
