"""Demonstrations for predictors from gold: the judges', as many of each verdict, and the answerer's from memory."""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from raisf.evaluation.examples import gold_answers
from raisf.lm.reading import has_value
from raisf.optimize.copying import copy_of
from raisf.optimize.judges.answer_data import recall_rows
from raisf.optimize.judges.drafts import with_drafts
from raisf.optimize.judges.judge_data import decomposition_examples, passage_examples, steps_asked
from raisf.optimize.judges.labels import Labels, know_labels
from raisf.optimize.judges.predictor_roles import JUDGE_ROLES, JUDGED, decomposes_first, reasoned_role, role_of
from raisf.optimize.judges.weighed import balanced
from raisf.optimize.within import owned, owners
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

# Training questions that the judges' rows are worked out from. A few demonstrations are drawn from them, so more would
# only cost LM calls; the paper's 1,000 are for training weights.
JUDGE_QUESTIONS = 200

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
        judge: By predictor's name, the judge whose verdicts are balanced when its rows are drawn.
        missing: By predictor's name, why it has no rows although it could have.
        unlabelled: By predictor's name, how many questions have no label, and why.
    """

    of: dict[str, list[dspy.Example]] = field(default_factory=dict)
    judge: dict[str, str] = field(default_factory=dict)
    missing: dict[str, InputError] = field(default_factory=dict)
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
    names: Collection[str] | None = None,
) -> Rows:
    """Rows for each predictor whose right behaviour follows from gold, told by its fields and the program it is of.

    Args:
        program: With its LMs and its retriever; or a module that contains such a program.
        trainset: Questions with gold; see `raisf.optimize.judges.judge_data`.
        labels: See `know_labels`. A judge of drafts learns by gold answers whether they are true.
        threads: Questions asked at a time.
        strict: Raise where a judge's verdicts cannot be had, unless `taught` speaks of others alone; else say so in
            `missing`.
        journal: Keeps the labels that the LM gave.
        only_ours: Pass over predictors that belong to no program of ours: one with a judge's fields may do something
            else in a module of the user's own.
        taught: By judge, rows that take the place of gold's (`raisf.optimize.judges.judge_rows`).
        most: Rows a predictor that will be drawn; passages are searched for no more than that takes. None: for all.
        names: The predictors that learn: labels and searches for others would be in vain. None: all.

    Raises:
        InputError: A judge has rows of one verdict only or none (if strict).
        LMError: The LM failed on ten questions in a row, or most of its replies cannot be read.
    """
    rows, taught, ours = Rows(), taught or {}, owned(program)
    owner_of, roles = owners(program), {name: role_of(one) for name, one in program.named_predictors()}
    judging = {id(owner_of[name]) for name, role in roles.items() if role in JUDGED and _in_use(owner_of[name], role)}
    wanted = roles.keys() if names is None else {*names, *_told_by(names, roles, owner_of)}
    trainset = answered(trainset)
    for name, predictor in program.named_predictors() if trainset else ():
        owner, role = owner_of[name], roles[name]
        reasoned = reasoned_role(predictor)
        if reasoned in JUDGE_ROLES and name in ours and _in_use(owner, reasoned):
            rows.missing[name] = InputError("it reasons before its answer, and gold has no reasonings")
        strange = only_ours and name not in ours
        if not _in_use(owner, role) or strange or name not in wanted:
            continue
        if role is Decomposition:
            if found := _decompositions(owner, trainset, taught.get("decomposition", ())):
                rows.of[name] = found
            else:
                rows.missing[name] = InputError("no question has several gold sub_questions")
        elif role is DirectAnswer and id(owner) not in judging:
            rows.of[name] = recall_rows(trainset, None)
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
                    besides = f"{error.besides}; strategy 'bootstrap' does without such examples"
                    raise InputError(error.text, besides) from error
                rows.missing[name] = error
    return rows


def _told_by(names: Collection[str], roles: Mapping[str, Any], owner_of: Mapping[str, Any]) -> Iterator[str]:
    """The judges of knowledge whose rows tell answerers by heart, of those that learn, what is known."""
    by_heart = {id(owner_of[name]) for name in names if roles.get(name) is DirectAnswer}
    yield from (name for name, role in roles.items() if JUDGED.get(role) == "know" and id(owner_of[name]) in by_heart)


def answered(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    """The questions of which gold says something; a module of the user's own may be asked something else."""
    return [example for example in examples if "question" in example and gold_answers(example)]


def judges(program: dspy.Module) -> list[str]:
    """The names of our programs' predictors that judge or decompose, as far as the switches let them be asked."""
    roles = {name: role_of(predictor) for name, predictor in program.named_predictors()}
    ours = owned(program)
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
        predictor.demos = [only_fields(predictor, row) for row in drawn]
    return copy


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


def _decompositions(
    owner: dspy.Module, trainset: Sequence[dspy.Example], given: Sequence[dspy.Example]
) -> list[dspy.Example]:
    """The given rows, with those of gold that are to be left whole, of which the former say nothing; or all of gold."""
    found = decomposition_examples(trainset, simple=decomposes_first(owner))
    if not given:
        return found
    whole = [row for row in found if len(row.sub_questions) == 1]
    left = {row.question for row in whole}
    return [*whole, *(row for row in given if row.question not in left)]


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
        found = with_drafts(found, answerer, threads, journal, None if given else steps_asked(trainset))
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


def only_fields(predictor: Any, demo: Any) -> dspy.Example:
    """A demonstration without what is no field: a row's verdict for balancing, a local LM's probabilities."""
    fields = predictor.signature.fields.items()
    return dspy.Example({key: demo[key] for key, field in fields if has_value(demo, key, field.annotation)})
