"""What a reader has to know of the rows of a table beside their figures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from raisf.evaluation.seen import seen_lines
from raisf.experiments.comparing import left_out_lines
from raisf.experiments.settings import PREDICTORS, Setting
from raisf.lm.local.weights import Precision

if TYPE_CHECKING:
    from raisf.experiments.workspace import Workspace
    from raisf.optimize.manifest import Connection

# Sentences below a table that are about some rows alone: about which, and the sentence.
OfRows = Sequence[tuple[Callable[[Setting], bool], str]]
LEARNT = (lambda row: row.learns, "What the judges have learnt is the same in all rows of RA-ISF.")
LEVEL = (lambda row: row.program in ("rag", "direct"), "RAG and direct have no depth: theirs are level lines.")
SETS = (
    lambda row: row.options.get("relevance") == "listwise",
    "listwise: the passages are judged as a set; else each alone (docs/fidelity.md).",
)
FEW_SHOT = (
    lambda row: row.few_shot,
    "Rows named few-shot show up to four demonstrations per predictor, made from training questions, whether or not "
    "they help; a program without judges or a right run to make some from has no such row.",
)
TABLE_1: OfRows = (
    (
        lambda row: row.program in ("prompts", "weights"),
        "In RA-ISF's rows prompts and weights only the judges are compiled, on the training questions.",
    ),
    (
        lambda row: row.system == "ra-isf" and row.few_shot,
        "In RA-ISF's few-shot row judges and answerers have demonstrations.",
    ),
    (
        lambda row: row.system != "ra-isf" and not row.learns,
        "The baselines' plain rows are zero-shot.",
    ),
    FEW_SHOT,
    (lambda row: row.tuned, "REPLUG's tuned index is a dense one (LSR)."),
    (
        lambda row: row.system == "self-rag",
        "The paper's Self-RAG is that system's own checkpoint, whose answers to TriviaQA count as right where they "
        "contain gold's; ours prompts the LM that answers, unless that is one.",
    ),
    (
        lambda row: row.system == "iter-retgen",
        "The paper took Iter-RetGen's figures from that system's own paper.",
    ),
)


def remarks(workspace: "Workspace", settings: Mapping[str, Setting]) -> Iterator[str]:
    """Sentences, after the rows were answered: what was not compiled here, not held out, not gained, and left out.

    Args:
        workspace: Where they were answered.
        settings: The rows, by label.
    """
    same = [label for label, setting in settings.items() if repr(setting) in workspace.unchanged]
    if same:
        yield f"On the dev split compiling made {'; '.join(same)} no better: they are as before."
    named = {one.engine for one in settings.values() if one.engine}
    if named and any(one.engine is None and workspace.searches(one) for one in settings.values()):
        own = workspace.indexes.searched or "the one of --index"
        yield f"Rows that name no retriever search with {own}{', as those that name it do' * (own in named)}."
    yield from given_lines(workspace, settings)
    yield from seen_lines({label: workspace.seen.get(repr(setting), []) for label, setting in settings.items()})
    yield from left_out_lines(workspace.left_out)
    if workspace.indexes.left_out:
        yield f"{workspace.indexes.left_out} passages that hold a question of a prompt are not in the index."


def given_lines(workspace: "Workspace", settings: Mapping[str, Setting]) -> Iterator[str]:
    """A sentence an artifact that was given: what tells it from one that is compiled here.

    Args:
        workspace: Whose artifacts.
        settings: The rows of a table, by label; what none of them is, is not told.
    """
    from raisf.optimize.manifest import read
    from raisf.programs.registry import PROGRAMS, defaults

    usual = defaults(PROGRAMS["ra-isf"]) | workspace.faithful("ra-isf")
    for program, folder in workspace.learning.given.items():
        all_rows = {label: one for label, one in settings.items() if one.program == program}
        rows = {label: one for label, one in all_rows.items() if workspace.learning.takes_given(one)}
        if not rows:
            continue
        manifest = read(folder)
        asked = [workspace.lm.spec or ""] if workspace.remote else [_asked(kept.connect) for kept in manifest.lms]
        options = {**manifest.options, **workspace.learning.formed.get(program, {})}
        varied = set[str]().union(*(row.options for row in rows.values()))
        told_of = ((name, value) for name, value in options.items() if name not in varied)
        own = [f"{name} {value}" for name, value in told_of if value != usual.get(name)]
        more = sorted(manifest.weights.keys() - PREDICTORS.values())
        told = [f"RA-ISF compiled to {program} is the artifact {folder.name}, which asks {' and '.join(asked)}"]
        if own:
            told.append(f"with {', '.join(own)}")
        if more:
            told.append(f"and weights of their own for {', '.join(more)} too, where the paper trains judges alone")
        yield f"{', '.join(told)}."
        if others := all_rows.keys() - rows.keys():
            yield f"It has other judges than {'; '.join(sorted(others))}: compiled here, for {workspace.lm.spec}."


def _asked(lm: "Connection") -> str:
    """An LM of an artifact and its own options, which hold in its rows."""
    spec, _, weights = lm.spec.partition("#")
    precision = next((one for one in get_args(Precision) if weights.endswith(one)), "")
    most = f"{lm.max_tokens} tokens an answer at most" if lm.max_tokens else ""
    warm = f"temperature {lm.temperature:g}" if lm.temperature else ""
    told = ", ".join(filter(None, [most, warm, precision]))
    return f"{spec} ({told})" if told else spec
