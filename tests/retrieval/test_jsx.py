"""Of an mdx file the text is read: no imports, no exports, no tags of components, but what these are titled."""

import time
from pathlib import Path

import pytest

from raisf.retrieval.corpus.jsx import without_jsx
from raisf.retrieval.corpus.reading import read_documents


def found(tmp_path: Path, content: str) -> list[tuple[str, str]]:
    (tmp_path / "guide.mdx").write_text(content)
    return [(p.text, p.citation.removeprefix("guide.mdx, line ")) for p in read_documents(tmp_path / "guide.mdx")]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("import A from 'a';\nimport {\n  B,\n\n  C,\n} from \"b\"\n\nText.", "Text."),
        ("export const fees = {\n  lite: 39,\n\n  plus: 49,\n};\n\nText.\n\nexport default () => <p>No</p>", "Text."),
        ("import the file from the archive.\n\nexport it.", "import the file from the archive. export it."),
        ("```js\nimport a from 'a'\n<B />\n```\n\nand `<C x={1}>`.", "import a from 'a' <B /> and <C x={1}>."),
        ("A {/* no\nnote */}<B.C x={{ a: '>' }} on={() => { go(1 > 2) }}/>b{' '}c <>d</>", "A b c d"),
        ('<Tab value="l" label="Linux">\n\n    Run **it**.\n\n    - one\n      - two\n\n</Tab>', None),
        ('<Card title="How to pay?" icon="x">\n  By card.\n</Card>', "How to pay? By card."),
        ('See:\n\n<Image\n  src={x}\n  alt="The old bridge of Prague"\n/>\n\n<Icon alt="star" />\n\nEnd.', None),
        ("<div className='x' style={{ color: 'red' }}>\n  Inside **it**.\n</div>", "Inside it."),
        ('<td style={{ width: 1 }}>a < b</td> and {"{x}"}', 'a < b and {"{x}"}'),
        (":::tip Title\n\nText.\n\n:::", "Title Text."),
        ("| Plan | Fee |\n| --- | --- |\n| Lite | <B id='x' />39 |", "Plan: Lite; Fee: 39."),
        ("If a < b and c > d, stop; write \\<Foo> so.", "If a < b and c > d, stop; write <Foo> so."),
        ('<Card title={"Billing"} />\n\n<TabItem label="Windows">Use it.</TabItem>', "Billing: Windows: Use it."),
        (
            '<ParamField path="limit" type="integer" required>Max number.</ParamField>',
            "limit (integer, required): Max number.",
        ),
        (
            '<ParamField body="log" type="boolean" default={false}>Tell.</ParamField>',
            "log (boolean, default false): Tell.",
        ),
        ("<A b={[{ c: (\n<>Lin</>\n), d: { e: { f: { g: 1 } } } }]}>x</A> y{/* " + "no " * 900 + "*/}", "x y"),
        ('<Card title="" description="Fees">Pay.</Card> <Icon alt="" title="">', "Fees: Pay."),
        ("export const A = () =>\n  <p>No</p>\n\nText.", "Text."),
        ('export const note =\n  "No (";\n\n# Fees\n\nText.', "Text."),
        ("export const fees = {" + "\n\n  lite: 39," * 300 + "\n}\n\nText.", "Text."),
        ('export const A = () => (<a href="x">https://a.example</a>);\n\nText.\n\n1) One.', "Text. 1) One."),
        ("export const open = /\\(/;\n\nText.\n\n1) One. :)", "Text. 1) One. :)"),
        ("export const code = `\nrun (\n\nstop\n`;\n\nText.", "Text."),
        ('<ParamField\n  header="X-Key" type={"string"}>\n  The key.\n</ParamField>', "X-Key (string): The key."),
        ("export const rows = [\n  { a: ')' }, // ]\n]\n\nText.", "Text."),
        ("<Unclosed x={ and\n\nmore {", "<Unclosed x={ and more {"),
    ],
)
def test_components_are_no_text(written: str, text: str | None, tmp_path: Path):
    otherwise = {
        "<T": "Linux: Run it. - one - two",
        "Se": "See: The old bridge of Prague End.",
    }
    assert [words for words, _ in found(tmp_path, written)] == [text or otherwise[written[:2]]]


def test_what_stands_below_a_component_is_cited_by_its_line(tmp_path: Path):
    written = "---\ntitle: Fees\n---\nimport A from 'a'\n\n<A\n  x={1}\n/>\n\n## Lite\n\nIt costs $39.\n"
    assert found(tmp_path, written) == [("Lite: It costs $39.", "10")]


@pytest.mark.parametrize(
    "piece",
    [
        "<A ",
        '<a "',
        "<A x={",
        "{/*",
        "`a",
        "<A x={{{",
        "<A x={<A y={",
        "{/* */",
        "import {\n",
        "{ ' ",
        '<A a="" ',
        "``````",
    ],
)
def test_what_nobody_closes_costs_no_search_each(piece: str):
    start = time.process_time()
    assert "".join(without_jsx(piece * 20_000)).strip() or piece[:2] == "im"
    assert time.process_time() - start < 5
