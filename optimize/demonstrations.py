"""Demonstrations for predictors: the judges' from gold, as many of each verdict; the others' from right runs."""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from raisf.evaluation.examples import gold_answers
from raisf.optimize.copying import copy_of
from raisf.optimize.judges.drafts import with_drafts
from raisf.optimize.judges.judge_data import (
    VERDICTS,
    balanced,
    decomposition_examples,
    passage_examples,
    with_verdict,
)
from raisf.optimize.judges.labels import Labels, know_labels
from raisf.optimize.judges.predictor_roles import JUDGE_ROLES, JUDGED, reasoned_role, role_of
from raisf.optimize.runs import marked
from raisf.optimize.traces import traced_rows
from raisf.optimize.within import owners
from raisf.programs.program import Program
from raisf.retrieval.adapting import searched
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import (
    AnswerTruth,
    Decomposition,
    ListwiseRelevance,
    PassageRelevance,
    PassagesSufficiency,
    SelfKnowledge,
)
from raisf.utils.errors import InputError
from raisf.utils.journal import Journal
from raisf.utils.sampling import up_to

logger = logging.getLogger(__name__)

# Training questions that the judges' rows are worked out from. A few demonstrations are drawn from them, so more would
# only cost LM calls; the paper's 1,000 are for training weights.
JUDGE_QUESTIONS = 200
# Questions a wanted demonstration that bootstrapping may try: a program that is right on fewer has little to show.
ATTEMPTS = 10
# Of these, how many are asked before the right ones are counted: where all fail, the LM is given up.
AT_ONCE = 10

_SWITCHES = {
    SelfKnowledge: "use_know",
    AnswerTruth: "use_know",
    PassageRelevance: "use_relevance",
    ListwiseRelevance: "use_relevance",
    PassagesSufficiency: "sufficiency",
    Decomposition: "use_decomposition",
}


@dataclass(slots=True)
class Rows:
    """What demonstrations are drawn from.

    Attributes:
        of: By predictor's name, the rows of right behaviour.
        judge: By predictor's name, the judge whose verdicts are balanced when its rows are drawn (`VERDICTS`).
        missing: By predictor's name, why it has no rows although it could have.
        unlabelled: By predictor's name, how many questions have no label, and why.
    """

    of: dict[str, list[dspy.Example]] = field(default_factory=dict)
    judge: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unlabelled: dict[str, str] = field(default_factory=dict)


def collect_rows(
    program: dspy.Module,
    trainset: Sequence[dspy.Example],
    *,
    labels: Labels,
    threads: int,
    strict: bool,
    journal: Journal | None = None,
    only_ours: bool = False,
    taught: Mapping[str, Sequence[dspy.Example]] | None = None,
    most: int | None = None,
) -> Rows:
    """Rows for each predictor whose right behaviour follows from gold, told by its fields and the program it is of.

    Args:
        program: With its LMs and its retriever; or a module that contains such a program.
        trainset: Questions with gold; see `raisf.optimize.judges.judge_data`.
        labels: See `know_labels`.
        threads: Questions asked at a time.
        strict: Raise where a judge's verdicts cannot be had, unless `taught` speaks of others alone; else say so in
            `missing`.
        journal: Keeps the labels that the LM gave.
        only_ours: Pass over predictors that belong to no program of ours: one with a judge's fields may do something
            else in a module of the user's own.
        taught: By judge, rows that take the place of gold's (`raisf.optimize.judges.judge_rows`).
        most: Rows a predictor that will be drawn; passages are searched for no more than that takes. None: for all.

    Raises:
        InputError: A judge has rows of one verdict only or none (if strict), or no predictor has any.
        LMError: The LM failed on ten questions in a row, or most of its replies cannot be read.
    """
    rows, taught = Rows(), taught or {}
    owner_of, roles = owners(program), {name: role_of(one) for name, one in program.named_predictors()}
    judging = {id(owner_of[name]) for name, role in roles.items() if role in JUDGED and _in_use(owner_of[name], role)}
    # A module of the user's own may be asked something else than questions: then gold says nothing of its predictors.
    answered = all("question" in example and gold_answers(example) for example in trainset)
    for name, predictor in program.named_predictors() if answered else ():
        owner, role = owner_of[name], roles[name]
        reasoned = reasoned_role(predictor)
        if reasoned in JUDGE_ROLES and isinstance(owner, Program) and _in_use(owner, reasoned):
            rows.missing[name] = "it reasons before its answer, and gold has no reasonings"
        if not _in_use(owner, role) or (only_ours and not isinstance(owner, Program)):
            continue
        if role is Decomposition:
            if found := list(taught.get("decomposition") or decomposition_examples(trainset)):
                rows.of[name] = found
            else:
                rows.missing[name] = "no question has several gold sub_questions"
        elif role is DirectAnswer and id(owner) not in judging:
            rows.of[name] = [dspy.Example(question=e.question, answer=gold_answers(e)[0]) for e in trainset]
        elif role in JUDGED:
            judge = rows.judge[name] = JUDGED[role]
            given = taught.get(judge, ())
            try:
                if role in (SelfKnowledge, AnswerTruth):
                    found, told = _knowledge(owner, role, trainset, given, labels, threads, journal)
                    rows.unlabelled |= {name: told} if told else {}
                else:
                    found = _of_form(role, given) if given else _relevance(owner, role, trainset, most)
                balanced(found, judge, 2, random.Random(0))
                rows.of[name] = found
            except InputError as error:
                if strict and (not taught or judge in taught):
                    raise InputError(f"{error}; strategy 'bootstrap' does without such examples") from error
                rows.missing[name] = str(error)
    if strict and not rows.of:
        raise InputError("no predictor of this program can be shown what is right by gold alone: choose 'bootstrap'")
    return rows


def judges(program: dspy.Module) -> list[str]:
    """The names of our programs' predictors that judge or decompose, as far as the switches let them be asked."""
    roles = {name: role_of(predictor) for name, predictor in program.named_predictors()}
    ours = {name: owner for name, owner in owners(program).items() if isinstance(owner, Program)}
    return [name for name, role in roles.items() if role in JUDGE_ROLES and name in ours and _in_use(ours[name], role)]


def draw(program: dspy.Module, rows: Rows, n: int, rng: random.Random) -> dspy.Module:
    """A copy of the program in which every predictor that has rows shows up to n of them.

    DSPy's LabeledFewShot gives all predictors rows of one and the same set, in proportion to its verdicts, by a seed
    that cannot be set: so it is not used here.
    """
    copy = copy_of(program)
    for name, predictor in copy.named_predictors():
        if name in rows.judge and name in rows.of:
            drawn = balanced(rows.of[name], rows.judge[name], n, rng)
        elif name in rows.of:
            drawn = up_to(rows.of[name], n, rng)
        else:
            continue
        predictor.demos = [_only_fields(predictor, row) for row in drawn]
    return copy


def bootstrap_demos(
    program: dspy.Module,
    rows: Rows,
    n: int,
    rng: random.Random,
    trainset: Sequence[dspy.Example],
    metric: Callable[..., Any],
    teacher: dspy.Module | None = None,
    *,
    threads: int = 8,
    journal: Journal | None = None,
    name: str = "run",
) -> tuple[dspy.Module, int]:
    """A copy of the program whose predictors show steps of right runs, and how many runs failed.

    The runs are of the drawn program, or of `teacher` with the same draw where one is given, until n are right and each
    predictor that they ask, and that has no draw, has a step to show. A judge's demonstrations are not taken from them:
    lucky runs would confirm it in its mistakes. A judge without rows takes those of the runs' calls that can be
    balanced; who gets none keeps what it has.

    DSPy's BootstrapFewShot asks one question at a time, keeps no run for who goes on after a stop, hides those that
    failed, and takes no teacher but one of the very same predictors.

    Args:
        program: With its LMs.
        rows: What the judges' demonstrations are drawn from.
        n: Demonstrations a predictor at most.
        rng: Draws.
        trainset: Questions to run on, ATTEMPTS * n at most.
        metric: Only a run that is right to the full teaches: of a metric of shares, 0.1 would count as true.
        teacher: A program with predictors of the same names.
        threads: Runs at a time.
        journal: Keeps them.
        name: What the journal calls them.
    """
    drawn = draw(program, rows, n, rng)
    examples = [marked(example) for example in up_to(trainset, ATTEMPTS * n, rng)]
    runner = _shown(teacher, drawn) if teacher else drawn
    bare = [name for name, predictor in drawn.named_predictors() if not predictor.demos]
    of, failed = _right_steps(runner, examples, n, bare, metric, threads=threads, journal=journal, name=name)
    student, shown = copy_of(program), dict(drawn.named_predictors())
    for name, predictor in student.named_predictors():
        judge = rows.judge.get(name) or JUDGED.get(reasoned_role(predictor))
        own = _whole(predictor, of.get(name, []))
        if name in rows.of and role_of(predictor) in JUDGE_ROLES:
            predictor.demos = shown[name].demos
        elif judge is not None:
            predictor.demos = _evened(own, judge, n, rng) or shown[name].demos
        else:
            predictor.demos = up_to(own, n, rng) or shown[name].demos
    return student, failed


def _right_steps(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    n: int,
    bare: Sequence[str],
    metric: Callable[..., Any],
    *,
    threads: int,
    journal: Journal | None,
    name: str,
) -> tuple[dict[str, list[dspy.Example]], int]:
    """By predictor, the steps of the first n right runs, or of more, and how many runs failed.

    More where a bare predictor was asked in wrong runs alone. One that no run asks, as its program does without it, is
    not waited for: that would cost all the runs that there may be.
    """
    of: dict[str, list[dspy.Example]] = {}
    asked = set[str]()
    right = failed = 0
    for start in range(0, len(examples), AT_ONCE):
        if right >= n and all(of.get(name) for name in asked.intersection(bare)):
            break
        traced = traced_rows(
            program,
            examples[start : start + AT_ONCE],
            metric,
            threads=threads,
            progress=False,
            journal=journal,
            name=f"{name}, from {start}",
        )
        right, failed, asked = right + traced.right, failed + traced.failed, asked | traced.asked
        for predictor, steps in traced.of.items():
            of.setdefault(predictor, []).extend(steps)
    if failed and not right:
        logger.warning("of the runs that were to demonstrate %d failed and none was right: they show nothing", failed)
    if right and not any(of.values()):  # as dspy.BestOfN and dspy.Refine do
        logger.warning("the right runs were made by copies of the program, and show nothing: compile what is inside")
    return of, failed


def judges_by_drafts(program: dspy.Module) -> bool:
    """Whether the answers from memory say what is known, and no judge is asked (`raisf.programs.self_knowledge`)."""
    kind = getattr(program, "self_knowledge", "verbal")
    return getattr(program, "use_know", False) and kind in ("confidence", "consistency")


def _in_use(program: dspy.Module, role: Any) -> bool:
    if role is SelfKnowledge and judges_by_drafts(program):
        return False
    if role is PassageRelevance and getattr(program, "relevance", None) == "score":
        return False
    return getattr(program, _SWITCHES.get(role, ""), True)


def _knowledge(
    owner: dspy.Module,
    role: Any,
    trainset: Sequence[dspy.Example],
    given: Sequence[dspy.Example],
    labels: Labels,
    threads: int,
    journal: Journal | None,
) -> tuple[list[dspy.Example], str | None]:
    """Rows of what is known, the given ones or the LM's labels; and what is said of questions without a label."""
    answerers = (one for _, one in owner.named_predictors() if DirectAnswer in (role_of(one), reasoned_role(one)))
    answerer = next(answerers, None)
    found, told = list(given), None
    if not found:
        labelled = know_labels(trainset, answerer=answerer, labels=labels, threads=threads, journal=journal).checked()
        found, told = labelled.rows, labelled.told()
    if role is AnswerTruth and answerer is not None:
        found = with_drafts(found, answerer, threads, journal)
    return found, told


def _relevance(owner: Any, role: Any, trainset: Sequence[dspy.Example], rows: int | None) -> list[dspy.Example]:
    if (retriever := searched(owner)) is None:
        raise InputError("the program has no retriever: give it one before compiling (--index DIR)")
    return passage_examples(role, trainset, retriever, getattr(owner, "k", 5), rows)


def _of_form(role: Any, rows: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Rows of relevance that were collected pointwise are none for a judge of lists, nor the other way round."""
    fitting = [row for row in rows if all(name in row for name in role.input_fields)]
    if not fitting:
        form = "listwise" if role is ListwiseRelevance else "pointwise"
        raise InputError(f"the rows given are not for a {form} judge: collect them again with --relevance {form}")
    return fitting


def _evened(demos: Sequence[dspy.Example], judge: str, n: int, rng: random.Random) -> list[dspy.Example]:
    of = [[demo for demo in demos if with_verdict(demo).get("verdict") == verdict] for verdict in VERDICTS[judge]]
    size = min(n // 2, *map(len, of))
    picked = [demo for same in of for demo in rng.sample(same, size)]
    rng.shuffle(picked)
    return picked


def _whole(predictor: Any, demos: Sequence[Any]) -> list[dspy.Example]:
    """Demonstrations with all of their outputs: one that was read in part shows how not to answer."""
    outputs = predictor.signature.output_fields
    return [_only_fields(predictor, demo) for demo in demos if all(demo.get(key) is not None for key in outputs)]


def _shown(teacher: dspy.Module, drawn: dspy.Module) -> dspy.Module:
    """The teacher with the demonstrations drawn for the predictors of the same names."""
    copy, demos = copy_of(teacher), {name: predictor.demos for name, predictor in drawn.named_predictors()}
    for name, predictor in copy.named_predictors():
        predictor.demos = demos.get(name) or predictor.demos
    return copy


def _only_fields(predictor: Any, demo: Any) -> dspy.Example:
    """A demonstration without what is no field: a row's verdict for balancing, a local LM's probabilities."""
    fields = [*predictor.signature.input_fields, *predictor.signature.output_fields]
    return dspy.Example({key: demo[key] for key in fields if demo.get(key) is not None})
