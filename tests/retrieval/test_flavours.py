"""What flavours of Markdown add to it is read as what it says."""

from pathlib import Path

import pytest

from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.corpus.templates import as_markdown


def read(folder: Path, text: str) -> list[str]:
    (folder / "a.md").write_text(f"# Club rules\n\n{text}\n")
    return [passage.text for passage in read_documents(folder / "a.md")]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[Join](j.md){ .button .button--red } or ![A](a.png){ width='20%' } wait.", "Join or wait."),
        ("[Small]{.smallcaps #s} and **bold**{: .x } and `a = 1`{.python l=x}.", "Small and bold and a = 1."),
        ("{ .annotate }\n\n1. Knock.\n{style=lower-roman}\n", "1. Knock."),
        ("It is `{ref}` and {this} and f(x){ return }.", "It is {ref} and {this} and f(x){ return }."),
        ("The 140^th^ day, 10^6^ litres of H~2~O; x^2 and ~3~.", "The 140th day, 10^6 litres of H2O; x^2 and ~3~."),
        ("(fees)=\n\nSee {ref}`the-fees`, {doc}`../open-hours`, {ref}`Fees <x>`.", "See the fees, open hours, Fees."),
        ("Press {octicon}`gear` and {kbd}`Ctrl`; {math}`a^b`.", "Press and Ctrl; a^b."),
        ('--8<-- "part.md"\n\nKnock.', "Knock."),
        ("> [!NOTE]\n> Bring it.\n\n> [!tip]- Good to know\n> It is dark.", "Bring it. Good to know: It is dark."),
        ("> [!] No mark, [!x].", "[!] No mark, [!x]."),
        ("- Ask\n    - the [office](o.md){ .x } {% icon %}", "- Ask - the office"),
        ("- :::warning\n  No fires.\n  :::\n- Ask.", "- No fires. - Ask."),
        ("```{note}\n:class: x\n\nIt costs *ten*.\n\n- Pay.\n```\nOut.", "It costs ten. - Pay. Out."),
        ("```{tip} Pay\nearly.\n```", "Pay early."),
        ("````{admonition} Fees\n```{tip}\nPay.\n```\n```sh\n:a: 1\n```\n````\nOut.", "Fees: Pay. :a: 1 Out."),
        (":::{note}\n:name: x\nPay.\n:::", "Pay."),
        ("```{toctree}\n:hidden:\n\nfees\nhours\n```\nOut.", "Out."),
        ("```{figure} pool.png\n:alt: x\nThe old pool.\n```", "The old pool."),
        ("```{code-cell} python\n:tags: [hide]\n#| echo: false\n# pay\n```", "# pay"),
        ("```{toctree}\nfees", "fees"),
        (":::{toctree}\n:hidden:\n\nfees\n:::\n\n:::{figure} pool.png\n---\nname: x\n---\nOld.\n:::", "Old."),
        ("```{tip}\n---\nclass: x\ntags:\n  - y\n---\nPay.\n```\n\n```{tip}\n---\nIt is so.\n```", "Pay. It is so."),
        ("```{code-cell}\n---\ntags: [x]\n---\n# pay\n```", "# pay"),
        ("````{list-table}\n* - ````md\n    {a}`b`\n    ````\n````\n\n{ref}`open-hours`.", "* - md {a}b  open hours."),
        ("~~~md\n> [!NOTE]\n```{note}\n[a]{.b}\n~~~", "> [!NOTE] ```{note} [a]{.b}"),
    ],
)  # fmt: skip
def test_what_a_flavour_adds_is_no_text(written: str, said: str, tmp_path: Path) -> None:
    assert " ".join(read(tmp_path, written)).replace("`", "") == said.replace("`", "")
    assert as_markdown(written).count("\n") == written.count("\n"), "what stands in which line does not move"


def test_the_title_of_a_callout_heads_no_section(tmp_path: Path) -> None:
    """What stood behind a callout was told as a part of it."""
    text = "## Fees\n\nTen.\n\n::: {.callout-tip collapse=true}\n\n## Pay early\nIt is less.\n:::\n\nFive for children."
    assert read(tmp_path, text) == ["Fees: Ten. Pay early: It is less. Five for children."]
    (_, columns) = read(tmp_path, "Ten.\n\n::: {.column}\n## Fees\nFive.\n:::")
    assert columns == "Fees: Five."


def test_documents_of_quarto_and_r_markdown_are_read(tmp_path: Path) -> None:
    text = "---\ntitle: Tides\n---\n\n```{r}\n#| echo: false\nplot(tides)\n```\n\nThey *rise*.\n"
    for name in ("a.qmd", "b.Rmd"):
        (tmp_path / name).write_text(text)
    found = [(passage.citation, passage.title, passage.text) for passage in read_documents(tmp_path)]
    assert found == [(f"{name}, line 7", "Tides", "plot(tides) They rise.") for name in ("a.qmd", "b.Rmd")]


def test_an_md_file_that_imports_components_is_read_as_mdx(tmp_path: Path) -> None:
    """Sites read all Markdown so; its imports were passages, and the text within components was code."""
    imports = "import A from '@site/a'; import {B} from 'b'\nimport \"./a.css\"\n\n"
    text = f"{imports}<Tabs>\n  <Tab label='Linux'>\n\n    Run *it*.\n\n  </Tab>\n</Tabs>"
    assert read(tmp_path, text) == ["Linux: Run it."]
    told = "We import wine from 'Elm'.\n\n```js\n\nimport a from 'b'\n```\n\nSee <Tabs>."
    assert read(tmp_path, told) == ["We import wine from 'Elm'. import a from 'b' See <Tabs>."]
