"""Filters on passages: `source = 'handbook.pdf' and page >= 10`, parsed into a test, never run as code.

expression  comparison | not expression | expression and expression | expression or expression | (expression)
comparison  name = value, and the same with != < <= > >= ; name in (value, ...) ; name not in (value, ...)
name        id, title, source (the document, or a column of that name), or a name of the metadata such as page; in
            backquotes where it is no plain word
value       'text' or "text" (its own quote doubled inside), a number, true, false
"""

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from raisf.retrieval.passage import Passage, Value
from raisf.utils.errors import InputError
from raisf.utils.text import composed

Test = Callable[[Passage], bool]

# Quantifiers are possessive (*+): to go back over what they took would find nothing, in quadratic time.
_NUMBER = r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?+"
_TOKEN = re.compile(
    rf"""\s*+(?:
        (?P<text>'(?:[^']|'')*+'|"(?:[^"]|"")*+")
      | (?P<number>{_NUMBER})(?![\w.])
      | (?P<sign><=|>=|!=|<>|==|=|<|>|\(|\)|,)
      | (?P<word>[^\W\d]\w*|`[^`]+`)
      | (?P<end>$)
    )""",
    re.VERBOSE,
)
_WHOLE = re.compile(_NUMBER)
_THOUSANDS = re.compile(r"-?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
"""A number as tables have it, `1,200`."""
_PLAIN = re.compile(r"[^\W\d]\w*")
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_EXAMPLE = "write for example: source = 'handbook.pdf' and page > 3, and a name with spaces in backquotes: `unit price`"
_DEEPEST = 50
"""Parentheses and `not`s inside each other: far beyond what people write, and far below Python's own limit."""


@dataclass(frozen=True, slots=True)
class Where:
    """A filter on passages.

    A passage without a field satisfies no comparison on it but `!=` and `not in`. A number is compared with a text
    that reads as a number as with that number, since tables hold text only; all else compares with its own kind.
    Letters with accents are the same however they are composed: a Mac's file names have them apart.

    Attributes:
        text: As it was written.
        names: The fields that it speaks of.
    """

    text: str
    names: frozenset[str]
    _test: Test

    def __call__(self, passage: Passage) -> bool:
        """Whether the passage satisfies it."""
        return self._test(passage)


def parse_where(text: str) -> Where:
    """The filter that an expression describes; the grammar stands at the top of this module.

    Raises:
        InputError: It is no such expression; the message shows where it breaks.
    """
    parser = _Parser(composed(text))
    test = parser.any_of()
    parser.expect("end")
    return Where(text, frozenset(parser.names), test)


def fields_of(passage: Passage, name: str) -> list[Value]:
    """What a passage has under a name that a filter may use: nothing, or one value, or a source beside its document."""
    if name == "id":
        return [passage.pid]
    if name == "title":
        return [passage.title]
    metadata = passage.metadata
    alike = [name] if name.isascii() else [other for other in metadata if composed(other) == name]
    found = [passage.source if name == "source" else None, *map(metadata.get, alike)]
    return [value for value in found if value is not None]


def check_names(where: Where, known: Iterable[str]) -> None:
    """Makes sure that some passage has each field a filter speaks of: a misspelt one would just find nothing.

    Raises:
        InputError: None has.
    """
    known = {"id", "title", "source", *map(composed, known)}
    if unknown := sorted(where.names - known):
        fields = ", ".join(name if _PLAIN.fullmatch(name) else f"`{name}`" for name in sorted(known))
        alike = [name for name in sorted(known) if name.lower() == unknown[0].lower()]
        but = f", but {alike[0]!r}" if alike else ""
        raise InputError(
            f"no passage has a field {unknown[0]!r}{but} (in the filter {where.text!r}); there are {fields}"
        )


class _Parser:
    """Recursive descent: one method a level of binding, loosest first."""

    def __init__(self, text: str):
        self.text = text
        self._shown = repr(text if len(text) <= 80 else f"{text[:80]}...")
        self.names: set[str] = set()
        self._depth = 0
        self._advance(0)

    def any_of(self) -> Test:
        tests = [self._all_of()]
        while self._take_word("or"):
            tests.append(self._all_of())
        return tests[0] if len(tests) == 1 else lambda passage: any(test(passage) for test in tests)

    def expect(self, *wanted: str) -> str:
        """The next token's text, which must be of one of these kinds or be one of these signs."""
        # A word may be called "end": it is none.
        if self._kind not in wanted and (self._token == "end" or self._token not in wanted):
            found = repr(self._token) if self._token else "its end"
            raise InputError(f"cannot read the filter {self._shown} at {found}; {_EXAMPLE}")
        token = self._token
        self._advance(self._end)
        return token

    def _all_of(self) -> Test:
        tests = [self._one()]
        while self._take_word("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda passage: all(test(passage) for test in tests)

    def _one(self) -> Test:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InputError(f"a filter nests deeper than {_DEEPEST} levels: {self._shown}; write it flatter")
        if self._take_word("not"):
            test = _opposite(self._one())
        elif self._token == "(":
            self.expect("(")
            test = self.any_of()
            self.expect(")")
        else:
            test = self._comparison()
        self._depth -= 1
        return test

    def _comparison(self) -> Test:
        name = self.expect("word").strip("`")
        self.names.add(name)
        negated = self._take_word("not")
        if negated or self._is_word("in"):
            if not self._take_word("in"):
                self.expect("in")
            values = self._values()
            test = _any_field(name, lambda found: any(_equal(found, value) for value in values))
            return _opposite(test) if negated else test
        sign = self.expect("=", "==", "!=", "<>", *_ORDER)
        value = self._value()
        if sign in _ORDER:
            compare = _ORDER[sign]
            return _any_field(name, lambda found: _ordered(found, value, compare))
        equal = _any_field(name, lambda found: _equal(found, value))
        return equal if sign in ("=", "==") else _opposite(equal)

    def _values(self) -> list[Value]:
        self.expect("(")
        values = [self._value()]
        while self._token == ",":
            self.expect(",")
            values.append(self._value())
        self.expect(")")
        return values

    def _value(self) -> Value:
        kind = self._kind
        if kind == "word" and self._token.lower() not in ("true", "false"):
            raise InputError(
                f"cannot read the filter {self._shown} at {self._token!r}: put a text in quotes; {_EXAMPLE}"
            )
        token = self.expect("text", "number", "word")
        if kind == "text":
            return token[1:-1].replace(token[0] * 2, token[0])
        return _number(token) if kind == "number" else token.lower() == "true"

    def _is_word(self, word: str) -> bool:
        return self._kind == "word" and self._token.lower() == word

    def _take_word(self, word: str) -> bool:
        if not self._is_word(word):
            return False
        self._advance(self._end)
        return True

    def _advance(self, start: int) -> None:
        match = _TOKEN.match(self.text, start)
        if match is None or match.lastgroup is None:
            raise InputError(f"cannot read the filter {self._shown} at {self.text[start:].strip()[:20]!r}; {_EXAMPLE}")
        self._kind, self._token, self._end = match.lastgroup, match[match.lastgroup], match.end()


def _any_field(name: str, fits: Callable[[Value], bool]) -> Test:
    return lambda passage: any(fits(found) for found in fields_of(passage, name))


def _opposite(test: Test) -> Test:
    return lambda passage: not test(passage)


def _number(text: str) -> int | float:
    """The number that a text is. What else is one in Python, 1_000 or Infinity, is a text here.

    Raises:
        ValueError: It is none.
    """
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    try:
        return int(text)
    except ValueError:
        return float(text)


def _alike(found: Value, wanted: Value) -> Value | None:
    """What was found, as the kind of thing that is wanted; None where it is another kind."""
    if isinstance(wanted, bool) or isinstance(found, bool):
        return found if isinstance(wanted, bool) and isinstance(found, bool) else None
    if isinstance(wanted, str):
        return composed(found) if isinstance(found, str) else None
    if isinstance(found, str):
        try:
            found = _number(found)
        except ValueError:
            return None
    return found if isinstance(found, int) or (isinstance(found, float) and not math.isnan(found)) else None


def _equal(found: Value, wanted: Value) -> bool:
    return _alike(found, wanted) == wanted


def _ordered(found: Value, wanted: Value, compare: Callable[[Value, Value], bool]) -> bool:
    alike = _alike(found, wanted)
    return alike is not None and compare(alike, wanted)
