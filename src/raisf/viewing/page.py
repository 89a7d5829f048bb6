"""The viewer's page: one file of HTML, style and script, with the data in it or a server behind it."""

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from raisf.utils.errors import InputError
from raisf.utils.files import replacing
from raisf.viewing.view import View

SCRIPTS = ("data.js", "runs.js", "questions.js", "tree.js", "main.js")
# What could end a script's element, or be read as a line's end in JavaScript, as JSON's own escapes.
_ESCAPES = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="raisf view">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
{policy}<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header><strong>{title}</strong>
<nav aria-label="Views">
<a href="#" data-view="">Runs</a> <a href="#view=questions" data-view="questions">Questions</a> {links}
</nav>
</header>
<main id="main" tabindex="-1"><p class="muted">loading …</p><noscript>This page needs JavaScript.</noscript></main>
<footer><kbd>j</kbd> next question, <kbd>k</kbd> previous, <kbd>Esc</kbd> all questions, <kbd>/</kbd> search</footer>
"""


def style() -> str:
    """The page's style."""
    look = files("raisf.reports").joinpath("look.css").read_text("utf-8")
    return look + _asset("view.css")


def script() -> str:
    """The page's script."""
    shared = files("raisf.utils").joinpath("visible.js").read_text("utf-8")
    return "\n".join(["(() => {", '"use strict";', shared, *map(_asset, SCRIPTS), "})();"])


def policy(*more: str) -> str:
    """The Content-Security-Policy: this page's own style and script, and nothing else, from nowhere else."""
    own = [f"script-src '{_hash(script())}'", f"style-src '{_hash(style())}'"]
    return "; ".join(["default-src 'none'", *own, "base-uri 'none'", "form-action 'none'", *more])


def shell(title: str, links: str = "", embedded: bool = False) -> Iterator[str]:
    """The page up to its data, and what follows the data."""
    told = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy())}">\n' if embedded else ""
    yield _PAGE.format(policy=told, title=html.escape(title), style=style(), links=links)
    yield f"<script>{script()}</script>\n</body>\n</html>\n"


def export(view: View, out: Path) -> int:
    """Writes the page with all data in it: a single file that needs no network and no server.

    Args:
        view: What is shown.
        out: The `.html` file; one that is there is replaced.

    Returns:
        Its size in bytes.
    """
    before, after = shell(view.title, embedded=True)
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", errors="replace") as file:
        file.write(before)
        file.write(_element("summary", view.summary))
        for number in range(view.blocks):
            file.write(_element(f"block-{number}", view.block(number)))
        file.write(after)
    return out.stat().st_size


def as_json(value: Any) -> str:
    """JSON that can stand inside a page: no character of it is markup.

    Raises:
        InputError: A number in it is not finite, which JSON does not have.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InputError(f"a record holds a number that JSON does not have ({error}): mend or drop its line") from error
    return text.translate(_ESCAPES)


def _element(name: str, value: Any) -> str:
    return f'<script type="application/json" id="{name}">{as_json(value)}</script>\n'


def _asset(name: str) -> str:
    return files("raisf.viewing").joinpath("assets", name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
