"""If these failed, an LM that rewrites instructions would be told something that gold does not say."""

from typing import Any

import dspy
import pytest

from raisf.optimize.demonstrations import Rows
from raisf.optimize.judges.feedback import Feedback
from raisf.programs.ra_isf import RAISF

QUESTION, SUB = "Who rules the home of Ada?", "Where does Ada live?"


@pytest.fixture
def program() -> RAISF:
    return RAISF()


@pytest.fixture
def feedback(program: RAISF) -> Feedback:
    return feedback_on(program)


def feedback_on(program: RAISF) -> Feedback:
    example = dspy.Example(
        question=QUESTION,
        answer="Bo",
        gold_pids=["a", "b"],
        sub_questions=[SUB, "Who rules #1?"],
        sub_answers=["Ulm", "Bo"],
        hops=2,
    )
    simple = dspy.Example(question="Who is Cy?", answer="a smith", hops=1)
    judged = [("Ada lives in Ulm.", "relevant"), ("Ada is tall.", "irrelevant")]
    rows = Rows(
        of={
            "know": [
                dspy.Example(question=SUB, verdict="unknown"),
                dspy.Example(question="Who is Cy?", verdict="know"),
            ],
            "relevant": [dspy.Example(question=SUB, passage=text, verdict=verdict) for text, verdict in judged],
        }
    )
    return Feedback(program, [example, simple], rows)


END = dspy.Prediction(answer="Ulm")
WHOLE = dspy.Example(question=QUESTION, answer="Bo")


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "right", "told"),
    [
        ("know", {"question": SUB}, {"verdict": "unknown"}, True, "Right"),
        ("know", {"question": SUB}, {"verdict": "know"}, False, "the answer from memory is not 'Ulm'"),
        ("know", {"question": "Who is Cy?"}, {"verdict": "unknown"}, False, "from memory gives the right answer"),
        ("relevant", {"question": SUB, "passage": "Ada lives in Ulm."}, {"verdict": "relevant"}, True, "Right"),
        (
            "relevant",
            {"question": SUB, "passage": "Ada lives in Ulm."},
            {"verdict": "irrelevant"},
            False,
            "judged irrelevant, but this is the gold passage and gives the answer, 'Ulm'",
        ),
        (
            "relevant",
            {"question": SUB, "passage": "Ada is tall."},
            {"verdict": "relevant"},
            False,
            "the gold passage, which was among those retrieved, is 'Ada lives in Ulm.'",
        ),
        ("decompose", {"question": QUESTION}, {"sub_questions": [SUB, "Who rules #1?"]}, True, "Right"),
        ("decompose", {"question": QUESTION}, {"sub_questions": ["Who?"]}, False, "then 'Who rules #1?'"),
        ("decompose", {"question": "Who is Cy?"}, {"sub_questions": ["Who?"]}, None, "an earlier judge erred"),
        ("answer_directly", {"question": SUB}, {"answer": "Bonn"}, False, "had better be judged unknown"),
        (
            "answer_from",
            {"question": SUB, "passages": ["Ada lives in Ulm."]},
            {"answer": "Bonn"},
            False,
            "The gold passage was among those given: 'Ada lives in Ulm.'",
        ),
        (
            "answer_from",
            {"question": SUB, "passages": ["Ada is tall."]},
            {"answer": "x"},
            None,
            "not among those given",
        ),
        ("compose", {"question": QUESTION, "facts": ["... = Bo"]}, {"answer": "Ulm"}, False, "The facts hold it"),
        ("know", {"question": "Never seen?"}, {"verdict": "know"}, None, "answered 'Ulm'; right is 'Bo'"),
    ],
)
def test_each_step_is_told_what_gold_says_of_it(program, feedback, name, inputs, outputs, right, told) -> None:
    predictor = dict(program.named_predictors())[name]
    remark = feedback.on(name, predictor, inputs, dspy.Prediction(**outputs), WHOLE, END, 0.0)
    assert remark.right is right
    assert told in remark.text


def test_a_simple_question_that_is_split_before_any_judge_is_the_decomposers_own_fault() -> None:
    """An earlier judge was blamed, and with chains there is none: the LM was told to change nothing."""
    program = RAISF(decomposition="chains")
    for listed, right, told in ((["Who?", "Where is #1?"], False, "list it alone"), (["Who is Cy?"], None, "erred")):
        said, asked = dspy.Prediction(sub_questions=listed), {"question": "Who is Cy?"}
        remark = feedback_on(program).on("decompose", program.decompose, asked, said, WHOLE, END, 0.0)
        assert remark.right is right and told in remark.text


def test_a_run_is_held_to_what_its_own_question_says_where_others_have_the_same_words(program: RAISF) -> None:
    """Right answers were called wrong: those of the first question were asked for, and the parts of the last."""
    words, of_which = "Who is the author of Legacy?", ["Who is the author of #1?", "Which Legacy is the newest?"]
    books = [
        dspy.Example(question=words, answer="Ada", sub_questions=of_which),
        dspy.Example(question=words, answer="Bob", sub_questions=of_which[::-1]),
        dspy.Example(question=words, answer="Cy", hops=1),
        dspy.Example(
            question="Where is that author born?",
            answer="Ulm",
            sub_questions=[words, "Where?"],
            sub_answers=["Di", "Ulm"],
        ),
    ]
    feedback = Feedback(program, books, Rows())

    def right(name: str, example: dspy.Example, **gave: Any) -> bool | None:
        predictor = dict(program.named_predictors())[name]
        return feedback.on(name, predictor, {"question": words}, dspy.Prediction(**gave), example, END, 1.0).right

    answers = ["Ada", "Bob", "Cy", "Di"]
    held = [[right("answer_directly", book, answer=answer) for answer in answers] for book in books]
    assert held == [[answer == own for answer in answers] for own in answers]
    parted = [right("decompose", book, sub_questions=list(book.sub_questions)) for book in books[:2]]
    assert parted == [True, True] and right("decompose", books[2], sub_questions=of_which) is None
    assert all(right("answer_directly", WHOLE, answer=answer) for answer in answers), "asked by a run of others"


def test_of_another_program_only_the_end_is_told() -> None:
    program, gave = dspy.Predict("number -> verdict"), dspy.Prediction(verdict="x")
    feedback = Feedback(program, [], Rows())
    remark = feedback.on("judge", program, {"number": 3}, gave, WHOLE, END, 0.0)
    assert remark.right is None and "right is 'Bo'" in remark.text
    # Right is what the metric says; a module of the user's own may give a plain text.
    for ended in (END, "Ulm"):
        remark = feedback.on("judge", program, {"number": 3}, gave, WHOLE, ended, 1.0)
        assert remark.text == "In the end the program answered 'Ulm', which is right."
