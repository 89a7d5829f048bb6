"""Traces for the terminal."""

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from raisf.programs.questions import UNKNOWN
from raisf.programs.trace import JudgedPassage, Judgement, Node, Step, Trace
from raisf.utils.display import as_text
from raisf.utils.text import counted, one_line, visible

_STYLES = {"direct": "cyan", "passages": "green", "decomposed": "blue", "acted": "green", "duplicate": "magenta"}


def render(trace: Trace) -> RenderableType:
    """The trace for a terminal: a tree a question, a line a passage or a search, the cost below.

    Long passages and queries are cut at the terminal's width.
    """
    tree = Tree(_heading(trace.root, ""), guide_style="dim")
    _grow(tree, trace.root)
    return Group(tree, _cost_line(trace))


def _grow(tree: Tree, node: Node) -> None:
    if node.know:
        knows = {"know": "yes", "unknown": "no"}.get(node.know.verdict or "", "unreadable")
        tree.add(Text(f"knows it? {knows}{_probability(node.know)}", style="dim" if node.know.readable else "red"))
    for step in node.steps:
        _grow_step(tree, step)
    if not any(step.passages for step in node.steps):  # else they stand below the searches that brought them
        for passage in node.passages:
            tree.add(_passage_line(passage))
    if node.sufficient:
        suffice = {"sufficient": "yes", "insufficient": "no"}.get(node.sufficient.verdict or "", "unreadable")
        tree.add(Text(f"do these suffice? {suffice}{_probability(node.sufficient)}", style="dim"))
    if node.evidence:
        line = Text.assemble(("“", "dim"), (visible(node.evidence), "italic"), ("”", "dim"))
        if node.cited:
            line.append(f" [{one_line(node.cited)}]", style="cyan")
        tree.add(line.append(" found afterwards" if node.found_afterwards else "", style="dim"))
    if node.grounded is False:
        tree.add(Text("the answer stands in none of the passages read", style="yellow"))
    for number, child in enumerate(node.sub_questions, 1):
        _grow(tree.add(_heading(child, f"{number}. ")), child)


def _grow_step(tree: Tree, step: Step) -> None:
    if step.generation and step.generation != step.query:
        tree.add(as_text(step.generation, "italic"))
    if step.query:
        line = Text.assemble(("searched ", "dim"), (one_line(step.query), "cyan"), no_wrap=True, overflow="ellipsis")
        branch = tree.add(line)
        for passage in step.passages:
            branch.add(_passage_line(passage))


def _heading(node: Node, number: str) -> Text:
    answer = (visible(node.answer), "yellow" if node.answer == UNKNOWN else f"bold {_STYLES.get(node.route, '')}")
    return Text.assemble(
        number, (visible(node.question), "bold"), (" → ", "dim"), answer, (f"  {one_line(node.reason)}", "dim")
    )


def _passage_line(passage: JudgedPassage) -> Text:
    judgement = passage.judgement
    mark, style = ("·", "dim") if judgement is None else ("✓", "bold green") if passage.relevant else ("✗", "red")
    line = Text.assemble((mark, style), no_wrap=True, overflow="ellipsis")
    if judgement:
        line.append(_probability(judgement) if judgement.readable else " unreadable", style="dim")
    if passage.score is not None:
        line.append(f" score {passage.score:.2f} ", style="dim")
    if passage.title:
        line.append(f" {one_line(passage.title)} ·", style="" if passage.relevant else "dim")
    if passage.citation and passage.relevant:
        line.append(f" [{one_line(passage.citation)}]", style="cyan")
    return line.append(f" {one_line(passage.text)}", style="dim")


def _probability(judgement: Judgement) -> str:
    return "" if judgement.probability is None else f" p={judgement.probability:.2f}"


def _cost_line(trace: Trace) -> Text:
    cost = trace.cost
    untold = f" ({counted(cost.unmetered_calls, 'call')} cached or uncounted)" if cost.unmetered_calls else ""
    unused = f" (+{cost.discarded_retrievals} unused)" if cost.discarded_retrievals else ""
    parts = [
        trace.system,
        counted(cost.lm_calls, "LM call"),
        f"{cost.prompt_tokens:,} + {cost.completion_tokens:,} tokens{untold}",
        f"{counted(cost.retrievals, 'retrieval')}{unused}",
        f"{cost.seconds:.2f} s",
    ]
    if trace.root.confidence is not None:
        parts.append(f"confidence {trace.root.confidence:.2f}")
    line = Text(" · ".join(parts), style="dim")
    if trace.failed:
        line.append(f" · {counted(trace.failed, 'failed call')}", style="red")
    if trace.unreadable:
        line.append(f" · {trace.unreadable} unreadable", style="red")
    return line
