"""What directives of reStructuredText show, docutils' own and Sphinx's: no file is opened, nothing is run.

For `restructured`, with docutils of the extra `documents`. A directive that nobody knows keeps its text.
"""

import csv
import re
from typing import Any

from docutils import nodes, utils
from docutils.parsers.rst import Directive, directives, roles, states
from docutils.parsers.rst.directives import misc, tables
from docutils.statemachine import StringList

from raisf.retrieval.corpus.rst_roles import AS_WRITTEN, OWN_CODE, role
from raisf.retrieval.corpus.shown import number_of

# What puts nothing into the text that stands in the file: other files, lists that are made, what is drawn or run.
_UNSEEN = re.compile(
    r"include|raw|literalinclude|toctree|contents|index|meta|highlight(lang)?|([\w.+-]+:)?(current-?module|namespace)|date|"
    r"default-(role|domain)|program|title|header|footer|sectnum|section-numbering|target-notes|(section|code|module)author|"
    r"tabularcolumns|todo(list)?|testsetup|testcleanup|graphviz|(di)?graph|inheritance-diagram|mermaid|plantuml|uml|"
    r"plot|gnuplot|jupyter-(?!execute).*|bibliography|program-?output|command-output|runblock|youtube|vimeo|iframe|"
    r"autosummary|restructuredtext-test-directive|glossary-?list|post(list)?|feed|language"
)
_TEXTS = frozenset(
    "attention caution danger error hint important note tip warning seealso epigraph pull-quote highlights compound "
    "glossary hlist acks line-block".split()
)
_CODES = frozenset(
    "code code-block sourcecode code-tab testcode testoutput doctest prompt productionlist literal math console "
    "ipython parsed-literal jupyter-execute".split()
)
_SILENT = frozenset(
    "container class rst-class cssclass css-class div tabs tab-set grid grid-item panels columns column ifconfig only "
    "card-carousel button-link button-ref module automodule video update".split()
)
"""Directives that take what nobody sees, a class or a condition, before their text."""
_SINCE = {
    "versionadded": "Added in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
    "versionremoved": "Removed in version",
    "deprecated-removed": "Deprecated since version",
}
_VALUED = frozenset("confval attribute data property variable".split())
"""Directives that describe a value, whose type and value are told beside its name."""
# Builders of Sphinx: what is for others alone is on no page.
_ELSEWHERE = re.compile(
    r"\s*(not\s+(html|builder_html)|{0}(\s+or\s+{0})*)\s*".format("(latex|man|text|texinfo|epub|pdf)")
)
_PATH = re.compile(
    r"\.{0,2}/\S*|\S*\.(png|jpe?g|gif|svg|webp|pdf|mp4|webm|py|rst|txt|md|ipynb|inc|c|h|cpp|js|ts|json|ya?ml|toml|csv|html?|sh)"
)
"""What names a file, where a directive has nothing besides; the paths that an API answers to stand in domains."""
_STYLE = re.compile(r"[a-z\d_ -]+")
"""Names of docutils' classes; in Sphinx the directive of that name describes one of Python's, with a signature."""
_WORD = re.compile(r"[^\W\d_]")
_SIGNED = re.compile(
    r"(auto)?(class|exception|function|method|classmethod|staticmethod|attribute|data|property|decorator)|"
    r"option|cmdoption|envvar|describe|object|macro|type|member|opcode"
)
"""Directives whose own line is a signature, in which a star and an underscore are themselves."""
_ESCAPED = re.compile(r"\\(.)")
_SETTINGS = {
    **{"file_insertion_enabled": False, "raw_enabled": False, "report_level": 5, "halt_level": 6},
    **{"warning_stream": False, "syntax_highlight": "none", "smart_quotes": False, "line_length_limit": 1 << 26},
}


def parse(text: str) -> nodes.document:
    """The tree of a text; what of it is wrong stands there, as a `system_message`."""
    from docutils.frontend import get_default_settings
    from docutils.parsers.rst import Parser
    from docutils.transforms.references import Footnotes

    settings = get_default_settings(Parser())  # it reads no file of settings
    vars(settings).update(_SETTINGS)
    document = utils.new_document("", settings)
    kept = directives.directive, roles.role
    directives.directive, roles.role = _directive, role
    try:
        Parser().parse(text, document)
    finally:
        directives.directive, roles.role = kept
    document.transformer.add_transform(Footnotes)
    document.transformer.apply_transforms()
    return document


class _AnyOption(dict[str, Any]):
    """Takes any option of a directive, as it is written."""

    def __bool__(self) -> bool:
        return True

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> Any:
        return lambda told: told or ""


class _Any(Directive):
    """What stands in its own line, a title perhaps, and its text. The others are like it, but for what they show."""

    optional_arguments, final_argument_whitespace, has_content = 1, True, True
    option_spec = _AnyOption()

    def run(self) -> list[nodes.Node]:
        told, name = self.arguments[0] if self.arguments else "", self.name.lower()
        if isinstance(self.state, states.SubstitutionDef):
            return [nodes.inline("", " ".join([told, *self.content]))]
        if name == "only" and _ELSEWHERE.fullmatch(told):
            return []
        silent = name.endswith(":module") or (name in _SILENT and (name != "class" or _STYLE.fullmatch(told)))
        return [*self._title("" if silent else told), *_nested(self)]

    def _title(self, told: str) -> list[nodes.Node]:
        domain, _, kind = self.name.lower().rpartition(":")
        if not _WORD.search(told) or (not self.content and not domain and _PATH.fullmatch(told)):
            return []
        if kind.startswith("auto") and not self.content and "(" not in told:
            return []  # what is shown of it stands in another file
        if domain == "http":
            told = f"{kind.upper()} {told}"  # a path may be asked in several ways
        details = [f"{key}: {self.options[key]}" for key in ("type", "value", "default") if self.options.get(key)]
        told += f" ({', '.join(details)})" if kind in _VALUED and details else ""
        told = f"Availability: {told}" if kind == "availability" else told
        leads = self.content and "\n" not in told and (told[-1].isalnum() or told[-1] == "_")
        told += ":" if leads else ""
        if domain or _SIGNED.fullmatch(kind):
            told = told if kind == "option" else _ESCAPED.sub(r"\1", told)
            return _paragraph(self, told, [nodes.Text(told)])
        return _paragraph(self, told)


class _Unseen(_Any):
    """Nothing is read of it."""

    def run(self) -> list[nodes.Node]:
        return []


class _Texts(_Any):
    """Its text is read, which may begin in its own line."""

    optional_arguments = 0

    def run(self) -> list[nodes.Node]:
        return _nested(self)


class _Code(_Any):
    """The lines of its code; of a formula, too, those that begin beside its name."""

    def run(self) -> list[nodes.Node]:
        name, told = self.name.lower(), self.arguments[0] if self.arguments else ""
        lines = list(self.content)
        found = _paragraph(self, f"{self.options['caption']}:") if self.options.get("caption") else []
        language, *beside = told.split("\n")  # no blank line below the language makes the code a part of it
        below = self.block_text.split("\n", 1)[0].rstrip().endswith("::")  # no language either
        begins = self.lineno
        if told and (below or name in ("math", "parsed-literal")):
            language, beside, begins = "", [language, *beside], self.lineno - (not below)
        if beside:
            lines, self.content_offset = [*beside, *lines], begins
        if name == "code-tab" and " " in language:
            found = _paragraph(self, f"{language.split(None, 1)[1]}:")
        block = nodes.literal_block("\n".join(lines), "\n".join(lines))
        if name == "parsed-literal":
            inline, _ = self.state.inline_text("\n".join(lines), self.lineno)
            block = nodes.literal_block("\n".join(lines), "", *inline)
        block.line = self.content_offset + 1
        return [*found, block]


class _Since(_Any):
    """In which version something changed, and how."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        version, *how = self.arguments
        if self.name.lower() == "deprecated-removed" and how:
            removed, *how = how[0].split(None, 1)
            version = f"{version}, removed in version {removed}"
        told = f"{_SINCE[self.name.lower()]} {version}{':' if how or self.content else '.'}"
        return [*_paragraph(self, " ".join([told, *how])), *_nested(self)]


class _Picture(_Any):
    """What a picture shows, as far as it is told, and the text below it."""

    def run(self) -> list[nodes.Node]:
        told = " ".join(self.options.get("alt", "").split())
        image = nodes.image("", alt="" if told in " ".join(" ".join(self.content).split()) else told)
        image.line = self.lineno
        return [image, *_nested(self)]


class _Rows(tables.CSVTable):
    """A table out of the text below it; one that lies in a file of its own is not looked for."""

    option_spec = _AnyOption(
        {**(tables.CSVTable.option_spec or {}), "widths": lambda _: "auto", "width": str, "encoding": str}
    )

    def run(self) -> list[Any]:
        found = list(super().run())
        for node in found:
            node.line = self.lineno
        return found

    def parse_csv_data_into_rows(self, csv_data: Any, dialect: Any, source: Any) -> Any:
        """The rows, as docutils has them, whose cells know the line in which their row begins; and how many columns."""
        first = self.content_offset if csv_data is self.content else self.lineno - 1
        reader = csv.reader((f"{line}\n" for line in csv_data), dialect=dialect)
        rows, at = list[Any](), 0
        for row in reader:
            cells = (cell.splitlines() for cell in row)
            rows.append([(0, 0, 0, StringList(cell, items=[(source, first + at)] * len(cell))) for cell in cells])
            at = reader.line_num
        return rows, max(map(len, rows), default=0)


class _ListTable(_Any):
    """A list of lists, whose items are the rows and cells of a table."""

    def run(self) -> list[nodes.Node]:
        caption = _paragraph(self, self.arguments[0]) if self.arguments else []
        found = _nested(self)
        rows = [item.children[0] for item in found[0].children if item.children] if len(found) == 1 else []
        if not rows or not all(isinstance(row, nodes.bullet_list) for row in [*found, *rows]):
            return [*caption, *found]
        named = min(number_of(self.options.get("header-rows"), 0), len(rows))
        made = [nodes.row("", *(nodes.entry("", *item.children) for item in row.children)) for row in rows]
        group = nodes.tgroup("", nodes.thead("", *made[:named]), nodes.tbody("", *made[named:]))
        table = nodes.table("", group)
        table.line = self.lineno
        return [*caption, table]


class _OwnRole(_Any):
    """A role of the document's own: one that is made of code is read as code."""

    required_arguments, optional_arguments = 1, 0

    def run(self) -> list[nodes.Node]:
        name, _, made_of = self.arguments[0].partition("(")
        if made_of.rstrip(" )") in AS_WRITTEN:
            self.state.document.setdefault(OWN_CODE, []).append(name.strip().lower())
        return []


_OWN: dict[str, type[Directive]] = {
    "role": _OwnRole,
    "replace": misc.Replace,
    "unicode": misc.Unicode,
    "image": _Picture,
    "figure": _Picture,
    "thumbnail": _Picture,
    "csv-table": _Rows,
    "list-table": _ListTable,
    "flat-table": _ListTable,
    **dict.fromkeys(_TEXTS, _Texts),
    **dict.fromkeys(_CODES, _Code),
    **dict.fromkeys(_SINCE, _Since),
}


def _directive(name: str, *_: object) -> tuple[type[Directive], list[nodes.Node]]:
    name = name.lower()
    return (_Unseen if _UNSEEN.fullmatch(name) else _OWN.get(name, _Any)), []


def _nested(directive: Directive) -> list[nodes.Node]:
    """What the text of a directive says."""
    holder = nodes.container()
    directive.state.nested_parse(directive.content, directive.content_offset, holder)
    return list(holder.children)


def _paragraph(directive: Directive, text: str, said: list[nodes.Text] | None = None) -> list[nodes.Node]:
    """A paragraph in the directive's own line; of marks it says what they say, if it is not told."""
    inline = said or directive.state.inline_text(text, directive.lineno)[0]
    paragraph = nodes.paragraph(text, "", *inline)
    paragraph.line = directive.lineno
    return [paragraph]
