"""A question that leans on earlier turns, and the module that makes it stand alone."""

import asyncio
from typing import Any

import dspy
import pytest

from raisf.lm.adapter import CompactAdapter
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.least_to_most import LeastToMost
from raisf.programs.conversation import LONGEST_TURN, MOST_TURNS, Conversation, Turn
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


def answer(fields: dict[str, Any]) -> dict[str, Any]:
    return {"standalone": "Where was Ada Hill born?", "answer": f"A({fields.get('question')})"}


def test_earlier_turns_are_read_and_the_question_rewritten() -> None:
    program = Direct()
    program.set_lm(lm := ScriptedLM(answer))
    turns = [Turn("user", "Who is the mayor of Velm?"), Turn("assistant", "Ada Hill")]
    said = Conversation(program)(question="Where was she born?", turns=turns)
    assert said.standalone == "Where was Ada Hill born?" and said.answer == "A(Where was Ada Hill born?)"
    assert lm.calls[0]["turns"] == ["user: Who is the mayor of Velm?", "assistant: Ada Hill"]


def test_it_is_awaited_like_any_module() -> None:
    program = Direct()
    program.set_lm(ScriptedLM(answer))
    turns = [Turn("user", "Who is the mayor of Velm?"), Turn("assistant", "Ada Hill")]
    said = asyncio.run(Conversation(program).acall(question="Where was she born?", turns=turns))
    assert said.standalone == "Where was Ada Hill born?" and said.answer == "A(Where was Ada Hill born?)"


def test_the_first_question_costs_no_call() -> None:
    program = Direct()
    program.set_lm(lm := ScriptedLM(answer))
    assert Conversation(program)(question="Who?").standalone == "Who?" and len(lm.calls) == 1


def test_what_cannot_be_read_leaves_the_question_as_it_is() -> None:
    program = Direct()
    program.set_lm(ScriptedLM(lambda fields: "rubbish" if "turns" in fields else {"answer": "x"}))
    assert Conversation(program).standalone("And she?", [Turn("user", "Who?")]) == "And she?"


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("I cannot rewrite this.", "Where was she born?"),
        ("unknown", "Where was she born?"),
        *(
            (said, "Where was she born?")
            for said in ("No rewriting needed.", "Same question.", "She was born in Velm.")
        ),
        ("Where was Ada Hill born", "Where was Ada Hill born"),
        ("x" * 30_000, "Where was she born?"),
        ("**Where was Ada Hill born?**", "Where was Ada Hill born?"),
        ("Standalone question: Where was Ada Hill born?", "Where was Ada Hill born?"),
        ("The standalone question is: Where was Ada Hill born?", "Where was Ada Hill born?"),
        ("Rewritten question: Where was Ada Hill born?", "Where was Ada Hill born?"),
        ("user: Where was Ada Hill born?", "Where was Ada Hill born?"),
        ('Where was Ada Hill born? Explanation: I replaced "she".', "Where was Ada Hill born?"),
        ("Here it is.\n\nWhere was Ada Hill born?\n\n(Note: she is the mayor.)", "Where was Ada Hill born?"),
        ("Who wrote\nthe book that won in 1990?", "Who wrote the book that won in 1990?"),
        ("What is Saturn V? I want to know how tall it is.", "What is Saturn V? I want to know how tall it is."),
        ("**Where was Ada Hill born?**\n\nI took her name.", "Where was Ada Hill born?"),
        ("\u8c01\u662f\u5e02\u957f\uff1f\n\nI took her name.", "\u8c01\u662f\u5e02\u957f\uff1f"),
        ("The user asks where: Velm?", "The user asks where: Velm?"),
    ],
)
def test_only_a_question_takes_the_place_of_the_question(said: str, asked: str) -> None:
    """A refusal was asked, searched and answered in its place; one too long was told to be the user's."""
    program = Direct()
    program.set_lm(ScriptedLM(lambda fields: {"standalone": said, "answer": "x"}))
    turns = [Turn("user", "Who is the mayor of Velm?"), Turn("assistant", "Ada Hill")]
    assert Conversation(program)(question="Where was she born?", turns=turns).standalone == asked


def test_a_wish_is_reworded_like_a_question() -> None:
    program = Direct()
    program.set_lm(ScriptedLM(lambda fields: {"standalone": "I would like to know where Ada Hill was born."}))
    turns = [Turn("user", "Who is the mayor of Velm?"), Turn("assistant", "Ada Hill")]
    said = Conversation(program).standalone("I would like to know where she was born.", turns)
    assert said == "I would like to know where Ada Hill was born."


def test_a_long_conversation_is_cut() -> None:
    program = Direct()
    program.set_lm(lm := ScriptedLM(answer))
    Conversation(program).standalone("And?", [Turn("user", f"{n} " + "x" * 5_000) for n in range(50)])
    said = lm.calls[0]["turns"]
    assert len(said) == MOST_TURNS and said[-1].startswith("user: 49 ") and len(said[-1]) < LONGEST_TURN + 30


def test_a_pocket_model_is_not_asked_for_what_it_cannot_do() -> None:
    from raisf.lm.adapter import adapter_named

    program = Direct()
    lm = ScriptedLM(answer)
    lm.adapter = adapter_named("pocket")
    program.set_lm(lm)
    assert Conversation(program).standalone("And she?", [Turn("user", "Who?")]) == "And she?" and not lm.calls


def test_a_model_that_continues_text_rewrites_only_where_it_was_shown_how() -> None:
    program, turns = Direct(), [Turn("user", "Who is the mayor of Velm?"), Turn("assistant", "Ada Hill")]
    lm = ScriptedLM(answer)
    lm.adapter = CompactAdapter()
    program.set_lm(lm)
    conversation = Conversation(program)
    assert conversation.standalone("And she?", turns) == "And she?" and not lm.calls
    conversation.rewrite.demos = [dspy.Example(turns=["user: Hi"], question="Who?", standalone="Who is it?")]
    assert "Where was Ada Hill born?" in conversation.standalone("And she?", turns) and len(lm.calls) == 1


def test_an_lm_of_one_judge_alone_rewrites_nothing() -> None:
    program, turns = RAISF(), [Turn("user", "Who is the mayor of Velm?"), Turn("assistant", "Ada Hill")]
    judge, lm = ScriptedLM(answer), ScriptedLM(answer)
    judge.model = "scripted/judge"
    program.set_lm(lm)
    program.know.lm = judge
    assert Conversation(program).standalone("And she?", turns) == "Where was Ada Hill born?"
    assert len(lm.calls) == 1 and not judge.calls
    for one in (program.know, program.relevant, program.decompose):  # as many as answer
        one.lm = judge
    assert Conversation(program).standalone("And she?", turns) == "Where was Ada Hill born?" and not judge.calls
    lm.calls.clear()
    with dspy.context(lm=lm):
        program.set_lm(None)  # type: ignore[arg-type]
        program.know.lm = judge
        assert Conversation(program).standalone("And she?", turns) == "Where was Ada Hill born?"
    assert len(lm.calls) == 1 and not judge.calls


def test_of_lms_that_one_predictor_asks_each_one_without_an_adapter_rewrites() -> None:
    program, turns = LeastToMost(), [Turn("user", "Who is the mayor of Velm?"), Turn("assistant", "Ada Hill")]
    for (name, predictor), lora in zip(program.named_predictors(), ["lora", None, "lora"], strict=True):
        predictor.lm = ScriptedLM(answer)
        predictor.lm.model, predictor.lm.lora = f"scripted/{name}", lora
    assert Conversation(program).standalone("And she?", turns) == "Where was Ada Hill born?"
    assert [len(predictor.lm.calls) for predictor in program.predictors()] == [0, 1, 0]


def test_what_repeats_an_earlier_turn_is_no_question() -> None:
    program = Direct()
    program.set_lm(ScriptedLM(lambda fields: {"standalone": "Ada Hill.", "answer": "x"}))
    turns = [Turn("user", "Who is the mayor of Velm?"), Turn("assistant", "ada hill")]
    assert Conversation(program).standalone("Where was she born?", turns) == "Where was she born?"


def test_what_was_asked_before_the_last_question_may_be_asked_again() -> None:
    program = Direct()
    program.set_lm(ScriptedLM(answer))
    born = [Turn("user", "Where was Ada Hill born?"), Turn("assistant", "unknown")]
    turns = [*born, Turn("user", "What did Ada Hill write?"), Turn("assistant", "plays")]
    assert Conversation(program).standalone("And her birthplace?", turns) == "Where was Ada Hill born?"
    assert Conversation(program).standalone("What did she write?", born) == "What did she write?"


def test_half_a_surrogate_pair_is_an_error_in_a_question_and_replaced_in_a_turn() -> None:
    program = Direct()
    program.set_lm(lm := ScriptedLM(answer))
    conversation = Conversation(program)
    with pytest.raises(InputError, match="not valid Unicode"):
        conversation.standalone("a \ud800", [Turn("user", "b")])
    assert conversation.standalone("Where?", [Turn("user", "b \ud800")]) and lm.calls[0]["turns"] == ["user: b ?"]


def test_it_compiles_like_the_others(tmp_path: Any) -> None:
    lm = ScriptedLM(answer)
    module = Conversation(Direct())
    module.set_lm(lm)
    rows = [
        dspy.Example(
            turns=[Turn("user", "Who is the mayor of Velm?")],
            question="Where was she born?",
            answer="A(Where was Ada Hill born?)",
        ).with_inputs("turns", "question")
    ]
    compiled = dspy.BootstrapFewShot(
        metric=lambda gold, said, trace=None: gold.answer == said.answer, max_labeled_demos=0
    ).compile(module, trainset=rows)
    (demo,) = compiled.rewrite.demos
    assert demo.standalone == "Where was Ada Hill born?"
    compiled.save(str(tmp_path / "conversation.json"))
    again = Conversation(Direct())
    again.take_rewriting(tmp_path / "conversation.json")
    assert again.rewrite.demos[0]["standalone"] == "Where was Ada Hill born?" and again.rewrite.lm is None
    for text in ("[]", "{}", '{"rewrite": 5}', '{"rewrite": {"demos": 5}}'):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(InputError, match="no saved conversation"):
            again.take_rewriting(tmp_path / "other.json")


def test_a_vote_over_answers_is_one_over_answers() -> None:
    """dspy.majority votes on a prediction's last field, and that was the question."""
    said = [dspy.Prediction(answer=answer) for answer in ("A", "B", "B")]
    for number, prediction in enumerate(said):
        module = Conversation(dspy.Predict("question -> answer"))
        module.program = lambda question, prediction=prediction: prediction  # type: ignore[assignment]
        assert module(question=f"Who {number}?").standalone == f"Who {number}?"
    assert list(said[0].keys()) == ["standalone", "answer"] and dspy.majority(said).answer == "B"
