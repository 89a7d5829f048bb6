"""Lists as LMs write them: numbers in brackets, words and ranges; texts in lines, with marks, or between semicolons."""

import re
from collections.abc import Iterator

# Longer than any list of a page's passages: what is longer is no list of numbers.
MAX_NUMBERS_CHARACTERS = 4_000
LARGEST_NUMBER = 100_000
MOST_NUMBERS = 1_000

# An empty list, said in one word or none.
NONE = re.compile(r"[\s\"'`*(]*(?:none|\[\s*\]|\[\s*none\s*\]|(?:an\s+)?empty(?:\s+list)?)[\s\"'`*).!]*", re.IGNORECASE)
_LISTING = r"[\[(#]*\d+[\])]*(?:\s*(?:to|through|and|,|-)\s*[\[(#]*\d+[\])]*)*"
_NO_PASSAGE = re.compile(
    rf"[\s\"'`*(]*(?:there (?:is|are) )?(?:none|nothing|no(?: relevant| helpful)? passages?)"
    rf"(?: of (?:the |these |those )?(?:given |provided |above )?(?:passages?|them)?(?: {_LISTING})?)?"
    r"(?: (?:above|here|given|provided))?"
    r"(?: (?:is|are|was|were|seems?|appears?)(?: to be)?(?: relevant| helpful| useful| sufficient| and)+"
    r"(?: (?:to|for) (?:answer(?:ing)? )?(?:the|this) question)?| helps?)?[\s\"'`*).!]*"
)
# Words that say nothing beside numbers.
_FILLERS = re.compile(
    r"\b(?:the|relevant|helpful|useful|sufficient|passages?|numbers?|nos?\.|ids?|answer|list|are|is|only)\b",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(?<=[\d\])])\s*(?:-|\bto\b|\bthrough\b)\s*(?=[\[(#\"']*\d)")
_NUMBERED = re.compile(r"(?<![\[(\d])\b\d+[.)]\s+[\[(\"']*\d")  # 1. 3: is the 1 a number of the list, or its mark?
# A count, no number of the list: "2 relevant passages: 1, 3".
_COUNT = re.compile(
    r"\d[\])]* (?:(?:relevant|helpful|useful|sufficient) )*(?:passages\b|passage\b(?! ?[\[(#]*\d))", re.IGNORECASE
)

_STRING = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_PYTHON_LIST = re.compile(rf"\s*\[\s*{_STRING}(?:\s*,\s*{_STRING})*\s*,?\s*\]\s*", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MARK = re.compile(
    r"\s*(?:[-*\u2022+]|\[\d+\][.:)]?|\(\d+\)|\**(?:q|sub[- ]?questions?\s*)?#?\d+\s*[.):]\**)\s+", re.IGNORECASE
)
_DIGIT_MARK = re.compile(r"\s*\**\d+\s*[.):]")
_REMARK = re.compile(r"\s+[-*\u2022+]\s")
ASKS = ("?", "\uff1f", "\u061f")  # full-width and Arabic, too
_PARTING = re.compile(r"""("[^"]*"|“[^”]*”|(?<!\w)'(?:[^']|(?<=\w)'(?=\w))*'(?!\w))|(?<!\w);|;(?!\w)""")
_INLINE = re.compile(r"(?:^|(?<=\s))(\d+)[.)]\s+")


def numbers(text: str) -> list[int] | None:
    """The numbers that a text in lower case lists: `[1, 3]`, `1 and 3`, `[1]-[3]`, `passages 1, 3`; [] for `none`.

    Returns:
        None where it says anything else beside them, or not to its end.
    """
    text = re.sub(r"(?<=[\[,])\s*\n|\n\s*(?=\])", " ", text)  # a number a line
    text = re.sub(r"[^\S\n]+", " ", text).strip()
    if NONE.fullmatch(text) or _NO_PASSAGE.fullmatch(text.replace("\n", " ")):
        return []
    if not _balanced(text) or _NUMBERED.search(text) or _COUNT.search(text):
        return None
    text = re.sub(r"^\s*[-*\u2022]\s+", "", text, flags=re.MULTILINE)
    text = _FILLERS.sub(" ", text.replace("_", " "))
    text = _RANGE.sub("~", text)
    text = re.sub(r"\band\b|[&;\n]", ",", text)
    # A point or colon ends something; inside a number it would be another number.
    if not re.fullmatch(r"(?:[\s\[\]()\"'`*,#~]|\d|[.:](?=[\s\"'`*\])]|$))*", text):
        return None
    if not re.search(r"\d[\s\"'`*\])().:]*$", text):
        return None  # it ends in a comma: more was to come
    return _listed(re.findall(r"\d+|~", text))


def texts(text: str) -> list[str] | None:
    """The texts that a text lists: in Python's spelling, marked or numbered, or with semicolons between them.

    Returns:
        None where it is no list: prose beside the marks, an open bracket, or a single text that is no question.
    """
    if _PYTHON_LIST.fullmatch(text):
        strings = [_ESCAPE.sub(_unescaped, string[1:-1]) for string in re.findall(_STRING, text, re.DOTALL)]
        return unmarked([" ".join(one.split()) for one in strings])
    if text.lstrip().startswith("[") and not _MARK.match(text):
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].rstrip(" *").endswith(":") and not _MARK.match(lines[0]):
        lines = lines[1:]  # "Here are the sub-questions:"
    lines = _without_remarks(lines)
    marked = [bool(_MARK.match(line)) for line in lines]
    if len(lines) == 1:
        parts = list(_inline(lines[0])) or _between_semicolons(lines[0])
        if len(parts) == 1 and not any(marked) and not plain(parts[0]).endswith(ASKS):
            return None
    else:
        parts = lines
        if not all(marked) and (any(marked) or not all(plain(line).endswith(ASKS) for line in lines)):
            return None
    items = [plain(part[mark.end() :] if (mark := _MARK.match(part)) else part) for part in parts]
    return items if all(re.search(r"\w", item) for item in items) else None


def _without_remarks(lines: list[str]) -> list[str]:
    """The lines of a list without those below a number that are further in and ask nothing, `   - This gives ...`.

    Numbers may be written as those by which later texts name them, `#1 Who?`.
    """
    if len(lines) > 1 and all(line.lstrip().startswith(f"#{number} ") for number, line in enumerate(lines, start=1)):
        return [f"{number}. {line.lstrip().partition(' ')[2]}" for number, line in enumerate(lines, start=1)]
    if not lines or not _DIGIT_MARK.match(lines[0]):
        return lines
    first = len(lines[0]) - len(lines[0].lstrip())
    if not all(line.rstrip(" *").endswith(ASKS) for line in lines if _DIGIT_MARK.match(line)):
        return lines
    return [line for line in lines if not (_REMARK.match(line[first:]) and not plain(line).endswith(ASKS))]


def unmarked(items: list[str]) -> list[str]:
    """The texts of a list without the marks that an LM wrote before each, too: `["1. Who?", "2. Where?"]`.

    Where one has none, or the numbers are not 1, 2 and so on, they are words: "1. FC Köln".
    """
    marks = [mark for item in items if (mark := _MARK.match(item))]
    told = [re.findall(r"\d+", mark[0]) for mark in marks]
    if len(items) < 2 or len(marks) < len(items):
        return items
    if any(told) and told != [[str(number)] for number in range(1, len(items) + 1)]:
        return items
    return [item[mark.end() :] for item, mark in zip(items, marks, strict=True)]


def _listed(tokens: list[str]) -> list[int] | None:
    found: list[int] = []
    span = False
    for token in tokens:
        if token == "~":
            if span or not found:
                return None
            span = True
            continue
        number = int(token) if len(token) < 7 else LARGEST_NUMBER + 1
        if number > LARGEST_NUMBER or (len(token) > 1 and int(token[0]) == 0):
            return None
        if span and not found[-1] < number < found[-1] + MOST_NUMBERS:
            return None
        found += range(found[-1] + 1, number + 1) if span else [number]
        span = False
        if len(found) > MOST_NUMBERS:
            return None
    return None if span or not found else found


def _balanced(text: str) -> bool:
    """Whether each bracket is closed, and none stands in more than one other."""
    open_ones: list[str] = []
    for character in text:
        if character in "[(":
            open_ones.append("]" if character == "[" else ")")
        elif character in "])" and (not open_ones or open_ones.pop() != character):
            return False
        if len(open_ones) > 2:
            return False
    return not open_ones


def _between_semicolons(line: str) -> list[str]:
    """The parts of `Who?; Where?`; a semicolon within quotation marks, or a word, parts nothing."""
    return [part for part in _PARTING.sub(lambda found: found[1] or "\n", line).split("\n") if part.strip()]


def _inline(line: str) -> Iterator[str]:
    """The parts of `1. Who? 2. Where?`, if the line is numbered so, from 1 on."""
    marks = list(_INLINE.finditer(line))
    if len(marks) < 2 or marks[0].start() > 0 or [int(mark[1]) for mark in marks] != list(range(1, len(marks) + 1)):
        return
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        yield line[mark.start() : following.start() if following else len(line)]


def plain(text: str) -> str:
    """A text in one line, without the emphasis or quotation marks around the whole: `"Low" or "Heroes"` keeps them."""
    text = " ".join(text.split())
    for mark in ("**", "__", "*", "`", '"', "'"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            within = text[len(mark) : -len(mark)]
            if _several(within, mark):
                break
            text = within.strip()
    return text


def _several(within: str, mark: str) -> bool:
    """Whether a text between two marks is several marked texts, as in `"Low" or "Heroes"`: closes one, opens one."""
    own = re.escape(mark)
    # An apostrophe within a word is no mark.
    closes = re.match(rf"(?:(?!{own}).|(?<=\w){own}(?=\w))*(?<=\S){own}(?!\w)", within)
    return closes is not None and re.search(rf"(?<!\w){own}(?=\S)", within[closes.end() :]) is not None


def _unescaped(match: re.Match[str]) -> str:
    return " " if match[1] in "nrt" else match[1]
