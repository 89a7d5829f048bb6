"""If these failed, answers of an odd kind would be counted wrong, or cost an evaluation, in silence."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pandas as pd
import pytest

import raisf
from raisf.evaluation.examples import check_answered, describe_test, gold_answers
from raisf.evaluation.report import Report, summarise
from raisf.evaluation.runner import evaluate
from raisf.optimize.judges.judge_data import steps
from raisf.optimize.optimizers.selection import answer_accuracy, answer_exact_match
from raisf.programs.trace import Cost, JudgedPassage, Node, Step, Trace
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import read_jsonl


class Answers(dspy.Module):
    def __init__(self, answer: Callable[[str], Any]) -> None:
        super().__init__()
        self._answer = answer

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=self._answer(question))


def run(program: dspy.Module, examples: list[dspy.Example], out: Path | None = None) -> Report:
    return evaluate(program, examples, out, progress=False)


def test_half_a_surrogate_pair_in_an_answer_costs_no_evaluation(tmp_path: Path) -> None:
    examples = [dspy.Example(question=f"What is {n}?", answer="x").with_inputs("question") for n in range(3)]
    report = run(Answers(lambda q: f"{q} \ud83d"), examples, tmp_path / "r.jsonl")
    assert report.errors == 0 and len(list(read_jsonl(tmp_path / "r.jsonl"))) == 3
    assert {row["prediction"][-1] for row in read_jsonl(tmp_path / "r.jsonl")} == {"?"}


def test_gold_out_of_a_table_is_kept_as_json_has_it(tmp_path: Path) -> None:
    """Once the LM had answered, the record could not be written; and sets made another test of each process."""
    rows = pd.DataFrame({"question": ["a?", "b?"], "answer": ["x", "x"], "hops": [2, 3], "known": [True, False]})
    gold = {"gold_titles": {"Ulm", "Elm"}, "sub_questions": ("c?",), "sub_answers": [date(2020, 1, 2), pd.NA]}
    examples = [dspy.Example(**row, **gold, id=pd.NA).with_inputs("question") for _, row in rows.iterrows()]
    for _ in range(2):
        run(Answers(lambda q: "x"), examples, tmp_path / "r.jsonl")
    found = sorted(read_jsonl(tmp_path / "r.jsonl"), key=lambda row: row["hops"])
    assert [(row["hops"], row["gold"]["known"]) for row in found] == [(2, True), (3, False)]
    assert found[0]["gold"]["gold_titles"] == ["Elm", "Ulm"] and found[0]["gold"]["sub_answers"] == ["2020-01-02", None]
    plain = [example.copy(gold_titles=["Elm", "Ulm"], hops=int(example.hops)) for example in examples]
    assert describe_test(plain) == describe_test(examples)


@pytest.mark.parametrize(
    ("given", "told"),
    [(pd.NA, "without an id comes twice"), (np.nan, "without an id comes twice"), (0, "two questions have the id '0'")],
)
def test_questions_that_come_twice_are_told_by_the_id_that_they_have(given: Any, told: str) -> None:
    twice = [dspy.Example(question="Who?", answer="x", id=given).with_inputs("question")] * 2
    with pytest.raises(InputError, match=told):
        run(Answers(lambda q: "x"), twice)


class Awaited(dspy.Module):
    async def aforward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer="x")


def test_a_module_that_can_only_be_awaited_is_refused_at_once_and_measured_as_dspy_wraps_it() -> None:
    """It failed question by question, and the error named an attribute."""
    examples = [dspy.Example(question="What?", answer="x").with_inputs("question")]
    with pytest.raises(InputError, match="Awaited has aforward alone"):
        run(Awaited(), examples)
    with pytest.raises(InputError, match="Awaited has aforward alone"):
        raisf.compare({"a": Answers(lambda q: pytest.fail("the other was asked first")), "b": Awaited()}, examples)
    assert run(dspy.syncify(Awaited()), examples).em.value == 1


def test_an_answer_of_zero_and_gold_that_is_a_bare_text_or_a_truth_count_as_what_they_are() -> None:
    cases = [(0, {"answer": "0"}), ("Paris", {"answers": "Paris"}), ("Paris", {"answers": ("Rome", "Paris")})]
    cases += [("yes", {"answer": True}), (False, {"answer": "False"}), ("no", {"answer": False})]
    cases += [("42", {"answer": 42.0}), (np.float32(42), {"answer": "42"}), (42.0, {"answer": "42.0"})]
    cases += [(np.float32(0.1), {"answer": "0.1"}), ("0.1", {"answer": np.float32(0.1)})]
    for said, gold in cases:
        example = dspy.Example(question="Q?", **gold).with_inputs("question")
        assert run(Answers(lambda q, said=said: said), [example]).em.value == 1.0, (said, gold)
        assert answer_exact_match(example, dspy.Prediction(answer=said)) == 1.0
    letter = dspy.Example(question="Q?", answers="Paris").with_inputs("question")
    assert run(Answers(lambda q: "P"), [letter]).em.value == 0.0
    assert answer_exact_match(letter, dspy.Prediction(answer=None)) == 0.0


def test_a_question_is_scored_by_the_rule_that_its_row_names() -> None:
    plain = dspy.Example(id="q0", question="Who?", answer="Jay-Z").with_inputs("question")
    trivia = plain.copy(scoring="triviaqa").with_inputs("question")
    report = run(Answers(lambda q: "Jay Z"), [plain, trivia.copy(id="q1").with_inputs("question")])
    assert report.em.value == report.accuracy.value == 0.5
    assert describe_test([plain]) != describe_test([trivia])


def test_answers_without_a_probability_stand_above_those_that_nothing_supports() -> None:
    """RAG's grounded answers, which nothing judges, were taken for less sure than those that it made up."""

    def record(number: int, answer: str, grounded: bool | None) -> dict[str, Any]:
        node = Node(question="Q?", answer=answer, route="passages", grounded=grounded)
        trace = Trace(
            root=node, cost=Cost(lm_calls=1, prompt_tokens=9, completion_tokens=1, retrievals=1), system="rag"
        ).model_dump(mode="json")
        em = float(answer == "right")
        rest = {"f1": em, "accuracy": em, "route": "passages", "kind": None, "recall": None, "precision": None}
        counts = {"unreadable": 0, "read": 1, "cost": {}, "error": None}
        return {"id": str(number), "prediction": answer, "em": em, "trace": trace, **rest, **counts}

    made = [("right", True), ("made up", False), ("unknown", None)]
    report = summarise([record(3 * n + i, *one) for n in range(4) for i, one in enumerate(made)])
    assert report.risk is not None
    assert report.risk.right[0.2] == 1.0 and report.risk.right[1.0] == pytest.approx(1 / 3)
    untold = [record(number, "wrong", True) for number in range(4)]
    report = summarise([*untold, {**record(4, "right", True), "confidence": 0.5}])
    assert report.risk is not None and report.risk.right[0.2] == 1.0, "what has a probability stands above them"


def test_a_title_whose_accent_is_a_letter_of_its_own_is_the_title_that_gold_names() -> None:
    class Read(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            passages = [JudgedPassage(pid="1", title="Caf\u0065\u0301 Elm", text="It opened in 1892.")]
            root = Node(question=question, passages=passages).conclude("passages", "from 1 of 1", "1892")
            return dspy.Prediction(answer="1892", trace=Trace(system="s", root=root, cost=Cost(retrievals=1)))

    report = run(Read(), [dspy.Example(question="When?", answer="1892", gold_titles=["Caf\u00e9 Elm"])])
    assert report.recall is not None and (report.recall.value, report.recall.n) == (1.0, 1)


@pytest.mark.parametrize("steps", [[], [Step(generation="So I think.")], [Step(query="who?")]])
def test_a_search_that_finds_nothing_or_keeps_nothing_has_recalled_nothing(steps: list[Step]) -> None:
    class Vain(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            root = Node(question=question, steps=steps)
            root.end("no_passages", "nothing was found", "unknown")
            return dspy.Prediction(answer="unknown", trace=Trace(system="s", root=root, cost=Cost(retrievals=1)))

    report = run(Vain(), [dspy.Example(question=f"Who is {name}?", answer="x", gold_titles=["A"]) for name in "AB"])
    assert report.recall is not None and report.precision is not None
    assert (report.recall.value, report.recall.n) == (report.precision.value, report.precision.n) == (0.0, 2)


def test_a_question_whose_parts_searched_has_no_recall_of_its_own() -> None:
    class Parts(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            root = Node(question=question, sub_questions=[Node(question="Who?")])
            root.end("decomposed", "from 1 of 1 sub-questions", "x")
            return dspy.Prediction(answer="x", trace=Trace(system="s", root=root, cost=Cost(retrievals=2)))

    report = run(Parts(), [dspy.Example(question="Who is A?", answer="x", gold_titles=["A"])])
    assert report.recall is None and report.precision is None


@pytest.mark.parametrize(
    ("raised", "told"), [(KeyError("city"), "KeyError: 'city'"), (AssertionError(), "AssertionError")]
)
def test_a_run_that_a_bug_ends_names_the_bug(raised: Exception, told: str) -> None:
    """The last words were "with: 'city'", and of an assertion "with: "."""

    def answer(question: str) -> str:
        raise raised

    examples = [dspy.Example(question="What is 1?", answer="x").with_inputs("question")]
    with pytest.raises(RaisfError, match=f"the program failed on every question, the last time with: {told}$"):
        run(Answers(answer), examples)


@pytest.mark.parametrize("field", ["gold_pids", "gold_titles", "sub_questions", "sub_titles"])
@pytest.mark.parametrize("value", ["Ada", [7], {"title": ["Ada"]}])
def test_gold_that_is_no_list_of_texts_is_refused_as_in_a_file(field: str, value: object) -> None:
    """A text was taken for a list of its letters: recall 0 whatever was found, and a judge that learnt nothing."""
    example = dspy.Example(question="Q?", answer="x", **{field: value}).with_inputs("question")
    for use in (lambda: run(Answers(lambda q: "x"), [example]), lambda: check_answered([example], "training")):
        with pytest.raises(InputError, match=rf"question 'Q\?': {field} must be a list of texts, found "):
            use()
    listed = dspy.Example(question="Q?", answer="x", **{field: ("Ada", "")}).with_inputs("question")
    assert run(Answers(lambda q: "x"), [listed]).em.value == 1.0


def test_a_question_under_another_name_is_told_of() -> None:
    example = dspy.Example(query="Q?", answer="x").with_inputs("query")
    with pytest.raises(InputError, match="a test question has no `question`, but query, answer"):
        run(Answers(lambda q: "x"), [example])


@pytest.mark.parametrize("kind", [bool, np.bool_])
def test_true_and_false_are_yes_and_no_on_both_sides(kind: type) -> None:
    """Of gold alone they were: a module with `answer: bool` that was always right scored 0, and nothing was said."""
    examples = [dspy.Example(question=f"Is {n} odd?", answer=kind(n % 2)).with_inputs("question") for n in range(4)]
    program = Answers(lambda question: kind(int(question.split()[1]) % 2))
    report = run(program, examples)
    assert report.em.value == report.accuracy.value == 1.0
    for metric in (answer_exact_match, answer_accuracy):
        said = program(question="Is 1 odd?")
        assert metric(examples[1], said) and not metric(examples[0], said)


@pytest.mark.parametrize("gap", [float("nan"), pd.NA, None])
def test_a_cell_without_a_value_is_no_gold(gap: Any, tmp_path: Path) -> None:
    """DSPy reads tables with pandas: "nan" was a gold answer, and a gap under `known` said that the LM knows it."""
    example = dspy.Example(question="Who?", answer="Ada", answers=[gap], known=gap, hops=gap, kind=gap)
    assert gold_answers(example) == ["Ada"] and steps(example)[0].known is None
    with pytest.raises(InputError, match="has no gold answer"):
        check_answered([dspy.Example(question="Who?", answer=gap)], "test")
    run(Answers(lambda _: "Ada"), [example.with_inputs("question")], tmp_path / "out.jsonl")
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    assert record["hops"] is record["kind"] is None and record["gold"] == {} and record["em"] == 1


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("known", "false", "known must be true or false, found 'false'"),
        ("scoring", "hotpot", "scoring must be squad or triviaqa, found 'hotpot'"),
    ],
)
def test_gold_that_no_rule_knows_is_refused_before_anything_is_asked(field: str, value: str, told: str) -> None:
    """A text under `known` was true; another rule than ours ended the evaluation in a KeyError, its answers paid."""
    example = dspy.Example(question="Who?", answer="Ada", **{field: value}).with_inputs("question")
    with pytest.raises(InputError, match=f"question 'Who.': {told}"):
        run(Answers(lambda _: pytest.fail("was asked")), [example])
    assert steps(dspy.Example(question="Who?", answer="Ada", known=1.0))[0].known is True  # a column with gaps
