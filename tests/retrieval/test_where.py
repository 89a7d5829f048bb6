"""A filter finds exactly the passages it describes, and a wrong one is refused with the place where it breaks."""

import operator
import time
import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raisf.retrieval.corpus.texts import passages_of_texts
from raisf.retrieval.passage import Passage
from raisf.retrieval.search.where import check_names, parse_where
from raisf.utils.errors import InputError

PASSAGE = Passage(
    "p1", "text", "The Guide", source="a/guide's.pdf", metadata={"page": 3, "year": "1999", "draft": False, "x-y": 2.5}
)


@pytest.mark.parametrize(
    "condition",
    [
        "source = 'a/guide''s.pdf'",
        'source = "a/guide\'s.pdf" and page = 3',
        "page != 4 and page < 4 and page <= 3 and page > 2 and page >= 3.0",
        "year = 1999 and year > 1998.5 and year = '1999'",
        "page in (1, 2, 3)",
        "page not in (1, 2)",
        "not (page = 4 or page = 5)",
        "page = 4 or page = 5 or id = 'p1'",
        "page = 3 or page = 4 and id = 'other'",
        "draft = false AND NOT draft = true",
        "`x-y` = 2.5 and title >= 'The'",
        "page>-1 and page<+1e2",
        "page > .5 and page < 4. and page = 3.0e0 and page = 3E+0",
        "nothing != 3 and nothing not in ('x')",
    ],
)
def test_what_a_filter_describes_is_found(condition: str):
    assert parse_where(condition)(PASSAGE)


@pytest.mark.parametrize(
    "condition",
    [
        "page = 4",
        "page = '3'",  # a number is not a text
        "draft = 0",  # nor is false
        "page = true",
        "title > 3",
        "year < 'zzz' and year > 2000",
        "nothing = 3",
        "nothing < 3 or nothing in (1)",
        "(page = 3 or page = 4) and id = 'other'",
        "not page = 3",
    ],
)
def test_what_a_filter_excludes_is_not_found(condition: str):
    assert not parse_where(condition)(PASSAGE)


@pytest.mark.parametrize("written", ["1_000", "Infinity", "inf", "nan", "0x10", " 12", "1e", ""])
def test_a_text_that_is_a_number_in_python_alone_is_a_text(written: str):
    """A part number 1_000 is none of a thousand, and a film called Infinity not above all years."""
    one = Passage("p", "text", metadata={"n": written, "list": [1]})  # type: ignore[dict-item]
    assert not parse_where("n > 0 or n = 1000 or n <= 0 or list > 0 or list = 1")(one)
    assert parse_where(f"n = '{written}'")(one)


@pytest.mark.parametrize(
    ("condition", "place"),
    [
        ("", "at its end"),
        ("page", "at its end"),
        ("page = ", "at its end"),
        ("page = 3 page = 4", "at 'page'"),
        ("page = three", "at 'three': put a text in quotes"),
        ("page = 'three", 'at "\'three"'),
        ("page ~ 3", "at '~ 3'"),
        ("3 = page", "at '3'"),
        ("(page = 3", "at its end"),
        ("page > 3 end or page < 3", "at 'end'"),
        ("page in ()", "at ')'"),
        ("page in 3", "at '3'"),
        ("page not 3", "at '3'"),
        ("page = 3x", "at '3x'"),
        ("page = 3.5.1", "at '3.5.1'"),
        ("page = 1e5e", "at '1e5e'"),
        ("page = 'a''", "at \"'a''\""),
        ("__import__('os').system('true')", "at '('"),
        ("(" * 100_000, "nests deeper"),
        ("not " * 100_000 + "page = 3", "nests deeper"),
    ],
)
def test_a_wrong_filter_is_refused_with_its_place(condition: str, place: str):
    with pytest.raises(InputError) as caught:
        parse_where(condition)
    assert place in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "value", ["1" * 60_000 + "x", "1." + "1" * 60_000 + "x", "'" + "''" * 30_000, " " * 60_000 + "?"]
)
def test_a_long_wrong_value_is_refused_at_once(value: str):
    start = time.process_time()
    with pytest.raises(InputError):
        parse_where(f"page = {value}")
    assert time.process_time() - start < 1


def test_a_column_named_source_is_found_beside_the_document_it_stands_in():
    row = Passage("p", "t", source="t.csv", metadata={"line": 2, "source": "manual 7"})
    for condition in ("source = 'manual 7'", "source = 't.csv'", "source in ('manual 7')", "source < 'n'"):
        assert parse_where(condition)(row)
    for condition in ("source != 'manual 7'", "source != 't.csv'", "source = 'p.csv'", "source > 'z'"):
        assert not parse_where(condition)(row)
    assert parse_where("source = 'nyt'")(next(passages_of_texts([{"text": "t", "source": "nyt"}])))


@pytest.mark.parametrize("wanted", ["NFC", "NFD"])
@pytest.mark.parametrize("held", ["NFC", "NFD"])
def test_letters_are_the_same_however_they_are_composed(held: Literal["NFC", "NFD"], wanted: Literal["NFC", "NFD"]):
    """A Mac's file names are decomposed, and typed ones are not: what is seen to be there was not found."""
    source, name, city = (unicodedata.normalize(held, text) for text in ("Pr\u00e9nom.txt", "n\u00e9", "Orl\u00e9ans"))
    passage = Passage("1", "An owl.", source=source, metadata={name: city})
    for text in ("source = 'Pr\u00e9nom.txt'", "`n\u00e9` in ('Orl\u00e9ans')", "`n\u00e9` >= 'Orl\u00e9ans'"):
        where = parse_where(unicodedata.normalize(wanted, text))
        assert where(passage)
        check_names(where, passage.metadata)


def test_numbers_beyond_what_a_float_holds_are_compared():
    passage = Passage("p", "t", metadata={"account": "9" * 400})
    assert parse_where("account > 3")(passage) and not parse_where("account = 3")(passage)


def test_a_misspelt_field_is_told_instead_of_finding_nothing():
    with pytest.raises(InputError, match=r"no passage has a field .pgae.*there are id, page, source, title, `unit"):
        check_names(parse_where("pgae = 3"), ["page", "unit price"])
    with pytest.raises(InputError, match=r"no passage has a field 'Page', but 'page' \(in the filter 'Page = 3'\)"):
        check_names(parse_where("Page = 3"), ["page", "unit price"])
    check_names(parse_where("`unit price` = 3"), ["page", "unit price"])


@given(st.text())
def test_any_text_can_be_asked_for_and_no_text_breaks_the_parser(text: str):
    quoted = text.replace("'", "''")
    assert parse_where(f"title = '{quoted}'")(Passage("p", "t", text))
    try:
        parse_where(text)
    except InputError:
        pass


@given(st.integers(-5, 5), st.integers(-5, 5), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
def test_numbers_compare_as_numbers(found: int, wanted: int, sign: str):
    compare = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[sign]
    passage = Passage("p", "t", metadata={"n": found, "as_text": str(found)})
    expected = getattr(operator, compare)(found, wanted)
    assert parse_where(f"n {sign} {wanted}")(passage) == expected
    assert parse_where(f"as_text {sign} {wanted}")(passage) == expected
