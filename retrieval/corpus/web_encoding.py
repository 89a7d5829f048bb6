"""How a web page is encoded: what it declares, and what browsers mean by that."""

import codecs
import io
import re

from raisf.retrieval.corpus.lines import told_encoding, wrong_encoding
from raisf.utils.errors import InputError

# How far into a page its encoding must be declared. Source: the HTML standard, section 4.2.5.4.
_DECLARED_WITHIN = 1024
# What a page means by the encodings that it declares: browsers read more into these names than they say, and a
# declaration that was found byte by byte is not in UTF-16. Source: https://encoding.spec.whatwg.org/#names-and-labels
# and the HTML standard, section 13.2.3.2. By Python's names, which all spellings of one encoding have in common.
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}
# The encodings that a page may declare, by Python's names: those of that standard. Python has others, such as
# unicode_escape, that no browser reads and that make anything of a page.
_DECLARABLE = frozenset(
    "ascii utf-8 utf-8-sig utf-16 utf-16-le utf-16-be cp866 iso8859-1 iso8859-2 iso8859-3 iso8859-4 iso8859-5 "
    "iso8859-6 iso8859-7 iso8859-8 iso8859-9 iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16 koi8-r koi8-u "
    "mac-roman mac-cyrillic cp874 tis-620 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 gb2312 gbk "
    "gb18030 hz big5 big5hkscs euc_jp iso2022_jp shift_jis cp932 euc_kr cp949".split()
)
# That standard's labels which Python does not know.
_LABELS = {
    **dict.fromkeys(("windows-874", "dos-874", "iso-8859-11"), "cp874"),
    **dict.fromkeys(("windows-31j", "x-sjis"), "cp932"),
    **dict.fromkeys(("windows-949", "iso-ir-149"), "cp949"),
    **dict.fromkeys(("x-gbk", "gb_2312-80", "csgb2312", "iso-ir-58"), "gb18030"),
    **dict.fromkeys(("x-x-big5", "cn-big5"), "big5hkscs"),
    **dict.fromkeys(("iso-8859-8-i", "iso-8859-8-e", "logical", "visual"), "iso8859-8"),
    **dict.fromkeys(("x-mac-cyrillic", "x-mac-ukrainian"), "mac-cyrillic"),
    **{"koi": "koi8-r", "koi8": "koi8-r", "koi8-ru": "koi8-u", "x-euc-jp": "euc_jp", "x-mac-roman": "mac-roman"},
    **{f"x-cp125{last}": f"cp125{last}" for last in range(9)},
    "unicode-1-1-utf-8": "utf-8",
}
_CHARSET = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_XML_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")


def declared_charset(page: bytes) -> str | None:
    """The encoding that a page says it is in, as it calls it; None where it says nothing."""
    declared = _CHARSET.search(page[:_DECLARED_WITHIN])
    return declared[1].decode("ascii", "replace") if declared else None


def _is_utf8_as_declared(page: bytes, declared: str | None) -> bool:
    try:
        return codecs.lookup(declared or "").name == "utf-8" and bool(page.decode())
    except (LookupError, ValueError):  # no such encoding, or the page is not in it
        return False


def decoded(raw: bytes, name: str, encoding: str | None) -> str:
    """The text of a page, in the encoding that `told_encoding` finds or it declares; in UTF-8 where nothing says.

    Args:
        raw: The page.
        name: What an error calls it.
        encoding: What the user says it is in if it is not UTF-8; None: nothing.

    Raises:
        InputError: It is not in that encoding, or nobody knows the one that it declares.
    """
    declared = declared_charset(raw)
    told = told_encoding(io.BytesIO(raw), None if encoding and _is_utf8_as_declared(raw, declared) else encoding)
    used = told or declared or "utf-8"
    try:
        if not told:
            codec = codecs.lookup(_LABELS.get(used.lower(), used)).name
            if codec not in _DECLARABLE:
                raise LookupError
            used = _MEANT.get(codec, codec)
        text = raw.decode(used)
    except UnicodeError as error:
        raise wrong_encoding(name, used, error) from error
    except (LookupError, ValueError) as error:
        raise InputError(f"{name} says it is encoded in {used!r:.40}, which is unknown; name it: --encoding") from error
    return _XML_DECLARATION.sub("", text.replace("\0", "").removeprefix("\ufeff"))
