"""If these failed, passages that lack a half would be read as if they sufficed, or a question be asked for ever."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import raisf
from raisf.evaluation.identity import describe
from raisf.programs.events import DoneEvent, GrowingTrace, StepEvent, SufficiencyEvent
from raisf.programs.ra_isf import RAISF
from raisf.programs.rendering import render
from raisf.programs.trace import Step
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


def scripted(*, suffice: bool, follow_ups: list[str] | None = None, silent: bool = False) -> ScriptedLM:
    """Nothing is known; the root and its parts have two relevant passages each; silent: nobody can read the root's."""
    left = list(follow_ups or [])

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        if "passage" in fields:
            return {"verdict": "relevant" if int(fields["passage"].split()[-1]) <= 2 else "irrelevant"}
        if "facts" in fields:
            more = left.pop(0) if left and fields["question"] == "root" else "none"
            return {"follow_up": more, "answer": "composed"}
        if "passages" in fields:
            sure = suffice or fields["question"] != "root"
            verdict = "sufficient" if sure else "insufficient"
            read = "Unknown." if silent and fields["question"] == "root" else f"A({fields['question']})"
            return {"verdict": verdict, "evidence": "passage 1", "answer": read}
        return {"verdict": "unknown", "sub_questions": ["who?", "where is #1?"]}

    return ScriptedLM(answer)


def test_relevant_passages_that_suffice_are_read_and_that_costs_one_call(ask: Any, shelf: Any) -> None:
    plain = ask(RAISF(shelf), scripted(suffice=True))
    trace = ask(RAISF(shelf, sufficiency=True), scripted(suffice=True))
    assert trace.root.route == "passages" and trace.root.answer == plain.root.answer == "A(root)"
    assert trace.cost.lm_calls == plain.cost.lm_calls + 1
    assert trace.root.sufficient.verdict == "sufficient" and "sufficient" not in plain.root.model_dump()


def test_where_they_do_not_suffice_the_question_is_broken_down_and_they_are_composed_with_the_answers(
    ask: Any, shelf: Any
) -> None:
    trace = ask(RAISF(shelf, sufficiency=True, max_depth=1), lm := scripted(suffice=False))
    assert trace.root.route == "decomposed" and trace.root.answer == "composed"
    (composed,) = [call["facts"] for call in lm.calls if "facts" in call]
    assert composed == [
        "Title 1 | passage 1",
        "Title 2 | passage 2",
        "who? = A(who?)",
        "where is A(who?)? = A(where is A(who?)?)",
    ]
    off = ask(RAISF(shelf, sufficiency=True, use_decomposition=False), scripted(suffice=False))
    assert off.root.route == "no_passages" and "do not suffice" in off.root.reason


def test_who_insists_breaks_down_what_the_reader_leaves_open_and_nothing_else(ask: Any, shelf: Any) -> None:
    plain = ask(RAISF(shelf, max_depth=1), scripted(suffice=True, silent=True))
    assert (plain.root.route, plain.root.answer) == ("passages", "unknown")
    insisting = ask(RAISF(shelf, max_depth=1, insist=True), lm := scripted(suffice=True, silent=True))
    assert (insisting.root.route, insisting.root.answer) == ("decomposed", "composed")
    assert sum("passages" in call and call["question"] == "root" for call in lm.calls) == 1
    read = ask(RAISF(shelf, insist=True), scripted(suffice=True))
    assert (read.root.answer, read.cost.lm_calls) == (
        "A(root)",
        ask(RAISF(shelf), scripted(suffice=True)).cost.lm_calls,
    )
    for options in ({"max_depth": 0}, {"use_decomposition": False}):  # where there is nothing below to ask
        ended = ask(RAISF(shelf, insist=True, **options), scripted(suffice=True, silent=True))
        assert (ended.root.route, ended.root.answer) == ("passages", "unknown")


def parted(parts: list[str], answers: dict[str, str]) -> ScriptedLM:
    """The root has these parts, all else one; passage 1 is relevant; what has no answer here is read as "unknown"."""

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        question = fields["question"]
        if "passage" in fields:
            return {"verdict": "relevant" if fields["passage"].endswith("passage 1") else "irrelevant"}
        if "facts" in fields:
            return {"answer": answers.get("composed", "unknown")}
        if "passages" in fields:
            return {"evidence": "", "answer": answers.get(question, "unknown")}
        return {"verdict": "unknown", "sub_questions": parts if question == "root" else [question]}

    return ScriptedLM(answer)


CHAIN = ["who?", "where is #1?"]


def test_a_chain_is_answered_before_anything_is_read(ask: Any, shelf: Any) -> None:
    lm = parted(CHAIN, {"who?": "Ann", "where is Ann?": "Rome", "composed": "Rome", "root": "a guess"})
    trace = ask(RAISF(shelf, decomposition="chains", max_depth=1), lm)
    assert (trace.root.route, trace.root.answer, trace.root.reason) == ("decomposed", "Rome", "from 2 of 2 sub-answers")
    assert trace.root.know is None and not trace.root.passages
    assert [sub.answer for sub in trace.root.sub_questions] == ["Ann", "Rome"]
    assert [call["question"] for call in lm.calls if "passages" in call] == ["who?", "where is Ann?"]
    assert sum("facts" in call for call in lm.calls) == 1  # the draft that was looked at is the answer


@pytest.mark.parametrize("parts", [["root"], ["who?", "where?"], ["who?", "where is #1?", "when?"], []])
@pytest.mark.parametrize("insist", [True, False])
@pytest.mark.parametrize("answers", [{"root": "Rome"}, {"who?": "Ann", "composed": "Rome"}])
def test_what_is_no_chain_goes_the_usual_way_and_the_list_is_asked_for_once(
    ask: Any, shelf: Any, parts: list[str], insist: bool, answers: dict[str, str]
) -> None:
    usual = ask(RAISF(shelf, max_depth=1, insist=insist), parted(parts, answers))
    chains = ask(RAISF(shelf, decomposition="chains", max_depth=1, insist=insist), lm := parted(parts, answers))
    assert without_seconds(chains.root) == without_seconds(usual.root)
    assert chains.cost.lm_calls - usual.cost.lm_calls == (
        usual.root.route == "passages"
    )  # else it was asked for anyway
    assert sum(call == {"question": "root"} for call in lm.calls) == 2  # the judge of knowledge, and the list


def without_seconds(node: Any) -> dict[str, Any]:
    below = [without_seconds(sub) for sub in node.sub_questions]
    return node.model_dump(exclude={"seconds", "sub_questions"}) | {"sub_questions": below}


def test_where_a_chain_gives_no_answer_the_question_is_read_and_nothing_asked_twice(ask: Any, shelf: Any) -> None:
    options = {"decomposition": "chains", "insist": True, "max_depth": 1}
    trace = ask(RAISF(shelf, **options), lm := parted(CHAIN, {"who?": "Ann", "root": "Rome"}))
    assert (trace.root.route, trace.root.answer) == ("passages", "Rome")
    assert [sub.answer for sub in trace.root.sub_questions] == ["Ann", "unknown"]  # told, as they were asked
    told = [repr(sorted(call.items())) for call in lm.calls if len(call) > 1]  # the others: two judges of the question
    assert len(told) == len(set(told)) and sum(call == {"question": "root"} for call in lm.calls) == 2
    lost = ask(RAISF(shelf, **options), lm := parted(CHAIN, {"who?": "Ann"}))
    assert (lost.root.route, lost.root.answer) == ("decomposed", "unknown")
    assert [call["facts"] for call in lm.calls if "facts" in call][-1] == [
        "Title 1 | passage 1",
        "who? = Ann",
        "where is Ann? = unknown",
    ]  # the composer has the last word, with what was read
    guessed = ask(RAISF(shelf, **options), parted(CHAIN, {"composed": "a guess", "root": "Rome"}))
    assert (guessed.root.route, guessed.root.answer) == ("passages", "Rome")  # no part was answered: nothing to compose


def test_a_chain_whose_part_is_the_question_itself_does_not_begin_anew(ask: Any, shelf: Any) -> None:
    lm = parted(["root", "where is #1?"], {"root": "Rome"})
    trace = ask(RAISF(shelf, decomposition="chains", max_depth=2), lm)
    assert trace.root.sub_questions[0].route == "cycle" and trace.root.answer == "Rome"


def test_at_the_lowest_depth_and_without_decomposition_no_chain_is_looked_for(ask: Any, shelf: Any) -> None:
    for options in ({"max_depth": 0}, {"use_decomposition": False}):
        program = RAISF(shelf, decomposition="chains", **options)
        trace = ask(program, lm := parted(CHAIN, {"root": "Rome", "composed": "no"}))
        assert (trace.root.route, trace.root.answer) == ("passages", "Rome")
        assert not trace.root.sub_questions and trace.cost.lm_calls == len(lm.calls) == 7  # nobody was asked for parts


@pytest.mark.parametrize("suffice", [True, False])
def test_whoever_watches_is_told_whether_they_suffice(ask: Any, shelf: Any, suffice: bool) -> None:
    program = RAISF(shelf, sufficiency=True, max_depth=0)
    program.set_lm(scripted(suffice=suffice))
    growing, kinds = GrowingTrace("ra-isf"), []
    for event in program.stream("root"):
        kinds.append(event.type)
        if not isinstance(event, DoneEvent):
            growing.add(event)
        if isinstance(event, SufficiencyEvent):
            assert event.node == "0" and (event.judgement.verdict == "sufficient") is suffice
    assert kinds.count("sufficiency") == 1 and kinds.index("sufficiency") < kinds.index("answer")
    assert growing.trace.root.sufficient == ask(program, scripted(suffice=suffice)).root.sufficient
    screen = Console(file=io.StringIO(), width=80)
    screen.print(render(growing.trace))
    assert f"do these suffice? {'yes' if suffice else 'no'}" in screen.file.getvalue()  # type: ignore[attr-defined]


def test_a_step_that_is_told_again_takes_its_own_place_alone() -> None:
    growing = GrowingTrace("ircot")
    for number, told in ((1, "a"), (2, "b"), (3, "c"), (2, "B")):
        growing.add(StepEvent(node="0", number=number, step=Step(generation=told)))
    assert [step.generation for step in growing.trace.root.steps] == ["a", "B", "c"]


def test_steps_are_asked_one_by_one_in_view_of_the_answers_until_they_suffice(ask: Any, shelf: Any) -> None:
    lm = scripted(suffice=False, follow_ups=["who?", "where?"])
    program = RAISF(shelf, use_relevance=False, decomposition="stepwise", max_depth=1)
    trace = ask(program, lm)
    assert [sub.question for sub in trace.root.sub_questions] == ["who?", "where?"]
    assert [sub.depth for sub in trace.root.sub_questions] == [1, 1]
    asked = [call["facts"] for call in lm.calls if "facts" in call and call["question"] == "root"]
    assert [len(facts) for facts in asked] == [0, 1, 2, 2]  # twice a question, "none", and the composer
    assert asked[-1] == ["who? = unknown", "where? = unknown"]
    assert trace.root.answer == "composed"


def test_steps_end_at_one_that_was_asked_before_and_at_ten(ask: Any, shelf: Any) -> None:
    again = RAISF(shelf, use_relevance=False, decomposition="stepwise", max_depth=0)
    assert len(ask(again, scripted(suffice=False, follow_ups=["who?", "Who"])).root.sub_questions) == 1
    many = [f"what about {number}?" for number in range(30)]
    assert len(ask(again, scripted(suffice=False, follow_ups=many)).root.sub_questions) == 10
    none = ask(again, scripted(suffice=False)).root
    assert none.route == "no_sub_questions" and none.readable


def test_steps_that_cannot_be_read_are_no_sub_questions(ask: Any, shelf: Any) -> None:
    lm = ScriptedLM(lambda fields: "mumble" if "facts" in fields else {"verdict": "unknown"})
    root = ask(RAISF(shelf, use_relevance=False, decomposition="stepwise"), lm).root
    assert root.route == "no_sub_questions" and not root.readable


def test_the_pocket_llama_takes_steps_and_judges_sufficiency() -> None:
    program = RAISF(use_relevance=False, use_know=True, know_threshold=0.9, decomposition="stepwise", max_depth=1)
    program.set_lm(raisf.connect("pocket"))
    root = program(question="Where was the founder of Velm born?").trace.root
    assert root.sub_questions and root.route == "decomposed"


def test_programs_without_them_are_what_they_were(tmp_path: Path) -> None:
    assert (
        not {"sufficiency", "sufficiency_threshold", "decomposition", "predictor sufficient"} & describe(RAISF()).keys()
    )
    made = RAISF(sufficiency=True, decomposition="stepwise")
    made.set_lm(raisf.connect("pocket"))
    raisf.save(made, tmp_path / "a")
    opened: Any = raisf.load(tmp_path / "a")
    assert opened.sufficiency and opened.decomposition == "stepwise"
    assert opened.sufficient.lm is not None and "follow_up" in opened.decompose.signature.output_fields


@pytest.mark.parametrize(("option", "value"), [("decomposition", "never"), ("sufficiency_threshold", 2)])
def test_an_option_that_cannot_be_used_is_named(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=option):
        RAISF(**{option: value})
