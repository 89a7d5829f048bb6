"""The numbers of lists as they are shown: 3, c or iii."""

from string import ascii_lowercase

_ROMAN = tuple(
    zip((1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1), "m cm d cd c xc l xl x ix v iv i".split(), strict=True)
)
_LARGEST = 3999
"""The largest number that is written in letters."""


def numeral(number: int, form: str) -> str:
    """A number in a form that docutils or Word names, such as `lowerroman` or `upperLetter`; else in digits."""
    form = form.lower()
    if form == "decimalzero":
        return str(number).zfill(2)
    if not (form.endswith(("roman", "alpha", "letter")) and 0 < number <= _LARGEST):
        return str(number)
    written = _roman(number) if form.endswith("roman") else _letters(number)
    return written.upper() if form.startswith("upper") else written


def _roman(number: int) -> str:
    written = ""
    for value, sign in _ROMAN:
        written += sign * (number // value)
        number %= value
    return written


def _letters(number: int) -> str:
    """Behind z come aa and bb."""
    return ascii_lowercase[(number - 1) % 26] * (1 + (number - 1) // 26)
