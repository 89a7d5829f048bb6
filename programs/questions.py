"""What the programs do with the text of questions and answers: compare it, cut it, and fill in "#1" references."""

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable

from raisf.evaluation.confidence import UNKNOWN as UNKNOWN
from raisf.lm.labels import compatible
from raisf.lm.lists import ASKS, plain
from raisf.retrieval.corpus.splitting import NOT_SHORT, STOPS, WIDE_END
from raisf.utils.text import clean
from raisf.utils.wording import AUXILIARIES, INTERROGATIVES, REFERENCE, UNSPACED
from raisf.utils.wording import fill as fill
from raisf.utils.wording import filled as filled
from raisf.utils.wording import is_yes_no as is_yes_no
from raisf.utils.wording import normal as normal

YES_NO = frozenset(
    "yes no ja nein nee nej nei oui non sí sì sim não tak nie да нет так ні evet hay\u0131r "
    "نعم لا כן לא हाँ नहीं 是 否 不是 はい いいえ 네 예 아니요 아니오 ใช่ ไม่ใช่".split()
)
"""In their normal form."""
_NOWHERE = YES_NO - {"sim", "tak"}  # passages hold a SIM, and the province Tak

# A rambling LM may list hundreds; with three levels below each, an unlimited budget would never see the end.
MAX_SUB_QUESTIONS = 10

# Not after an initial or a title, as in "J. R. Stone" and "Mt. Etna", nor after what is cut short in a sentence that
# goes on, as in "Apple Inc. was" and "Jan. 5".
_TITLES = r"(?<!\b(?:Jr|Sr|Lt|Mt|Ft))(?<!\b(?:Gen|Maj|Col|Gov|Sen|Rev))(?<!\bCapt)"
_CUT = r"(?<=\bCo)|(?<=\b(?:Inc|Ltd|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec))|(?<=\b(?:Corp|Bros|Sept))"
_STOP = rf"(?<!\b[^\W\d]){NOT_SHORT}{_TITLES}(?!(?:{_CUT})\.\s+[a-z\d])\."
_SENTENCE_END = re.compile(rf"(?:{_STOP}|[!?\u2026{STOPS}])[^\w\s,;]{{0,8}}\s+|{WIDE_END}")
_LETTER = re.compile(r"[^\W\d_]")
# What may stand on neither side of an answer that begins, or ends, with a letter or a digit; in Hebrew and Arabic up to
# three letters before it are words, such as "in the".
_SPACED = rf"[^\W\d_{UNSPACED}]"
_LETTER_ENDS = rf"(?!{_SPACED}|[#+]+(?!\w))"
_JOINED = "[\u05d1\u05d4\u05d5\u05db\u05dc\u05de\u05e9\u0627\u0628\u0641\u0643\u0644\u0648]"
_EDGES = {
    "letter": (rf"(?<!{_SPACED})", _LETTER_ENDS),
    "joining": (rf"(?:(?<!{_SPACED})|(?<=\b{_JOINED})|(?<=\b{_JOINED}{{2}})|(?<=\b{_JOINED}{{3}}))", _LETTER_ENDS),
    "digit": (r"(?<!\d)(?<!\d[.,])", r"(?!\d|[.,]\d)"),
    "other": ("", ""),
}
_JOINING = re.compile("[\u05d0-\u06ff]")
_WITHOUT_SPACES = re.compile(f"[{UNSPACED}]")
_ONE_SHAPE = str.maketrans(
    dict.fromkeys("\u2018\u2019\u00b4\u0060", "'") | dict.fromkeys("\u2010\u2011\u2012\u2013", "-")
)
# How LMs that were instructed say that they have no answer: the whole of it, in the words that `normal` leaves.
_REST = r"(?:(?!\b(?:but|however)\b).)*"
_SOURCE = r"""(?:(?:the|this|that|these|any|your)\ )?(?:(?:given|provided|above|retrieved)\ )?
    (?:passages?|texts?|contexts?|documents?|articles?|facts?|sources?|information|question|answer)
    (?:\ (?:given|provided|above))?"""
_SAYS = r"(?:mention|state|specif|sa(?:y|id)|contain|give|provide|answer|discuss|tell|include|list|indicate)\w*"
_STATED = r"(?:mentioned|stated|specified|given|provided|known|found|available|listed|included|told|clear)"
_NO_ANSWER = re.compile(
    rf"""(?:(?:(?:i\ am\ )?sorry|unfortunately)\ )?(?:but\ )?
    (?:as\ (?:an?\ (?:\S+\ ){{0,3}}(?:ai|model|assistant) | of\ my\ (?:\S+\ ){{1,4}}(?:update|cutoff))
      \ (?:\S+\ ){{0,4}})?(?:
    the\ unknown | none(?:\ {_STATED})? | null | n/a | n\.a | no\ idea | not\ sure | not\ applicable | unanswerable
    | (?:there\ is\ )?(?:no|not\ any|not\ enough|insufficient)\ (?:relevant\ |further\ )?
      (?:(?:information|mention|answer)\b{_REST} | (?:data|details)(?:\ (?:available|found|given|provided))?)
    | (?:none|neither)\ (?:of\ )?{_SOURCE}\ (?:do\ |does\ )?{_SAYS}\b{_REST}
    | no\ (?:relevant\ )?(?:passages?|texts?|documents?|facts?|sources?)\ (?:
      {_SAYS}\b{_REST} | (?:(?:is|are|was|were)\ )?(?:found|available|provided))
    | no\ (?:specific|exact)\ (?:\S+\ ){{1,4}}(?:is|are|was|were)\ (?:mentioned|stated|specified)
      (?:\ (?:in|by|from)\ {_SOURCE})?
    | (?!(?:yes|no)\ )(?:\S+\ ){{1,8}}(?:is|are|was|were)\ (?:not|nowhere)\ (?:explicitly\ |directly\ )?{_STATED}
      \ (?:in|by|from)\ {_SOURCE}
    | (?:the|his|her|its|their)\ (?!(?:word|term)\ )(?:\S+\ ){{1,6}}(?:is|are|was|were|remains?)
      \ (?:unknown|not\ (?:known|(?:explicitly\ |directly\ )?(?:mentioned|stated|specified)))
    | i\ (?:do\ not|can\ ?not|could\ not|have\ no)\ \w{_REST}
    | i\ am\ (?:not\ (?:sure|certain|aware|able|familiar)|unable\ to)\b{_REST}
    | we\ do\ not\ know\b{_REST} | (?:it\ does|they\ do)\ not\ (?:say|mention)
      (?:\ (?:it|this|that|so|who|whose|what|which|when|where|why|how|whether|if)\b{_REST})?
    | (?:unable\ to|can\ ?not)\ (?:answer|determine)\b{_REST}
    | (?:it\ is\ )?(?:impossible|not\ possible)\ to\ (?:say|tell|know|determine|answer)
      (?:\ (?:it|this|that|the\ answer|the\ question))?(?:{_REST}\ (?:in|by|from|on|with)\ {_SOURCE})?
    | (?:(?:it|{_SOURCE})\ )?(?:(?:is|was|are|were|remains)\ )?
      (?:(?:not|nowhere)\ (?:explicitly\ |directly\ )?{_STATED} | unknown | unclear)
      (?:\ (?:in|by|from)\ {_SOURCE})?
    | not\ in\ {_SOURCE}
    | (?:{_SOURCE}\ is\ )?unknown\ (?:(?:as|since|because)\ {_SOURCE}\b{_REST} | not\ in\ {_SOURCE})
    | (?:(?:it|{_SOURCE})\ )?(?:can\ ?not|could\ not)\ be\ (?:determined|answered|found|known){_REST}
    | {_SOURCE}\ (?:do|does|did)\ not\ {_REST} | {_SOURCE}\ (?:is|are)\ not\ (?:clear|there|in\ {_SOURCE})\b{_REST}
    )""",
    re.VERBOSE,
)
_CURRENCIES = {"£": "GBP", "€": "EUR", "$": "USD", "¥": "JPY"}
_ACCORDING = re.compile(rf"^(?:based\ on|according\ to)\ {_SOURCE}\ ", re.VERBOSE)
_SMALL = frozenset("a an the and or of to in on for with by at from".split())
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![\d,])")
_LONG = re.compile(r"(?<![\w.,])[1-9][0-9]{3,20}(?![\w,])")
_EMPHASIS = re.compile(r"[*_<>]+")
_EMPHASISED = re.compile(r"(\*{1,3}|`)([^*`]*\w[^*`]*)\1\W?")
_CONTRACTED = (("can't", "can not"), ("n't", " not"), ("'m", " am"), ("it's", "it is"), ("there's", "there is"))


# A reply that declines where sub-questions were asked for, or answers; one that ends in a question mark is a question.
_REFUSAL = re.compile(
    r"(?:sorry|unfortunately|unable|as an? (?:ai|language)|i(?:'m| am| can| could| do| will| would| was| have|'d)"
    r"|cannot|can'?t|n/?a\b|none\b|null\b|nothing|not (?:applicable|possible|needed|necessary|decomposable)"
    r"|no (?:sub|further|additional|other|follow|decomposition|need|more|questions?\b)|there (?:is|are) no"
    r"|(?:so,? )?(?:the )?(?:final )?answer(?: is\b|:)|(?:the(?:se)? )?facts (?:already |are )*suffic"
    r"|(?:done|enough|stop)\W*$|-+$|(?:we|i)(?: now)? have enough\b"
    r"|(?:the|this) question can (?:now )?be answered(?: now)?\W*$"
    r"|(?:no,? )?(?:all )?(?:the |these )?(?:given |found |necessary |required |available |above )*facts "
    r"(?:found |so far |given |above |already |are |do |now )*(?:suffic|enough|known\W*$)"
    r"|based on (?:the|these) [\w ]*\bfacts\b(?!.*\b(?:who|whose|what|which|where|when|how|is there|did)\b)"
    r"|(?:it|this|that|the (?:given )?question)\b.*"
    r"(?:cannot|can't|can not|n't|not |no |impossible|already|simple|atomic))",
    re.IGNORECASE,
)


def is_unknown(answer: str) -> bool:
    """Whether an answer says, in these words or in others, that there is none.

    "The Unknown" is a film and "I Don't Know" a song, so titles are answers; and so is what goes on with a "but".
    """
    said = answer.translate(_ONE_SHAPE)
    said = normal(_EMPHASIS.sub(" ", said)) or normal(said)  # "**" may be the answer
    for short, full in _CONTRACTED:
        said = said.replace(short, full)
    small = _SMALL if said.startswith("i ") else ()  # "I Don't Want to Miss a Thing"
    capitals = [word[:1].isupper() for word in answer.split()[1:] if word not in small]
    titled = bool(capitals) and all(capitals) and not answer.isupper()
    if {*said.split()} <= {UNKNOWN}:
        return True
    if said == "null" and "Null" in answer:  # German's zero
        return False
    explained = re.sub(rf"^{UNKNOWN} (?:[-—] )?", "", _ACCORDING.sub("", said))  # "Unknown. The passages do not say."
    return not titled and any(_NO_ANSWER.fullmatch(one) for one in (said, explained))


def holds(text: str, answers: Iterable[str], spelling: Callable[[str], str] | None = None) -> bool:
    """Whether a text has all words of one of the answers in a row; of `YES_NO` no text says whether they hold.

    Args:
        text: Such as a passage.
        answers: Any of them will do.
        spelling: What two spellings of the same words have in common; None: all but other words and other numbers, so
            that "3.2 million" stands in "$3.2 million" and "Graz" in "Graz-based", but "5" not in "3.5".
    """
    answers = [answer for answer in answers if normal(answer) not in _NOWHERE]
    if spelling is None:
        plain = _plain(text)
        return any(_pattern(words).search(plain) for words in (normal(_plain(answer)) for answer in answers) if words)
    words = f" {spelling(text)} "
    return any(f" {spelling(answer)} " in words for answer in answers)


def bare(text: str) -> str:
    """A text without the emphasis that Markdown puts around the whole of it: "**Graz**", but not "**" or "__init__"."""
    emphasised = _EMPHASISED.fullmatch(text)
    return emphasised[2] if emphasised else text


def spellings(answer: str) -> list[str]:
    """An answer, and the same as it may stand elsewhere: with 520000 for 520,000, and GBP 85 for £85."""
    joined = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), answer)
    parted = _LONG.sub(lambda number: f"{int(number[0]):,}", answer)
    told = [*dict.fromkeys((answer, joined, parted))]
    for sign, code in _CURRENCIES.items():
        told += [one.replace(sign, f" {code} ") for one in told if sign in one]
        told += [re.sub(rf"\b{code}\s*", sign, one) for one in told if re.search(rf"\b{code}\b", one)]
    return [*dict.fromkeys(told)]


def _plain(text: str) -> str:
    """A text without its case, its ligatures and the shapes of its quotation marks and dashes."""
    return unicodedata.normalize("NFKC", text).casefold().translate(_ONE_SHAPE)


@functools.lru_cache(4096)
def _pattern(answer: str) -> re.Pattern[str]:
    """What finds an answer's words in a plain text: any marks between two words will do, within a word the same."""
    words = answer.split()
    found = ""
    for before, word in zip(("", *words), words, strict=False):
        unit = before[-1:].isdigit() and not word[0].isdigit()  # 3 km, also written 3km
        found += (r"\W*" if unit else r"\W+") * bool(before)
        found += r"\s*".join(map(re.escape, re.findall(r"\d+|[^\W\d]\w*|[^\w\s]", word)))
    return re.compile(_EDGES[_kind(words[0][0])][0] + found + _EDGES[_kind(words[-1][-1])][1])


def _kind(character: str) -> str:
    if character.isdigit():
        return "digit"
    if not character.isalpha() or _WITHOUT_SPACES.match(character):
        return "other"
    return "joining" if _JOINING.match(character) else "letter"


def refuses(text: object) -> bool:
    """Whether a text in the place of a question declines to ask one; MuSiQue's "I Am Legend >> director" asks."""
    said = compatible(str(text)).strip(" \"'*`([])")
    return not said.endswith("?") and " >> " not in said and _REFUSAL.match(said) is not None


def asks(text: str) -> bool:
    """Whether a text is worded as a question: it ends as one, or has one of English's question words to begin with."""
    words = normal(text).split()[:4]
    return text.rstrip(" \"'*`)]").endswith(ASKS) or bool(
        words and (words[0] in AUXILIARIES or not INTERROGATIVES.isdisjoint(words))
    )


def first_sentence(text: str) -> str:
    """The text up to the end of its first sentence; all of it where no end is found. "1." alone is no sentence."""
    if (letter := _LETTER.search(text)) is None:
        return text
    ends = (end.end() for end in _SENTENCE_END.finditer(text))
    return next((text[:end].rstrip() for end in ends if letter.start() < end), text)


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order."""
    ends = [end.end() for end in _SENTENCE_END.finditer(text)]
    parts = [text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    return [part for part in parts if part]


def listed(sub_questions: Iterable[object]) -> list[str]:
    """The sub-questions that an LM listed, in its order, 10 at most.

    Empty ones are left out, and at the end what declines to list more ("No further questions."). One that differs from
    an earlier one only in its spelling takes that one's.
    """
    texts = [plain(clean(text)) for text in sub_questions]
    while texts and refuses(texts[-1]):
        texts.pop()
    spelling: dict[str, str] = {}
    return [spelling.setdefault(normal(text), text) for text in texts if normal(text)][:MAX_SUB_QUESTIONS]


def references(question: str, before: int) -> list[int]:
    """Which earlier sub-questions a sub-question names.

    Args:
        question: Such as "Where was #1 born?".
        before: The sub-question's own number, counted from 1. "#N" for any other N ("the #1 hit" in the first
            sub-question, say) is text, not a reference.

    Returns:
        Numbers counted from 1, ascending, each once.
    """
    return sorted({int(number) for number in REFERENCE.findall(question) if 0 < int(number) < before})
