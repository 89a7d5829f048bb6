"""`program.stream(question)`: what a page, a terminal and a client see while a question is answered."""

import asyncio
import io
import threading
import time
from typing import Any

import dspy
import pytest
from rich.console import Console

from raisf.lm.connect import connect
from raisf.lm.local import engine
from raisf.programs.baselines.direct import Direct
from raisf.programs.events import (
    ROOT,
    AnswerEvent,
    DoneEvent,
    GrowingTrace,
    JudgementEvent,
    PassagesEvent,
    QuestionEvent,
)
from raisf.programs.live import live_module, stream
from raisf.programs.ra_isf import RAISF
from raisf.programs.registry import PROGRAMS, build, searches
from raisf.programs.rendering import render
from raisf.programs.trace import Node, Trace
from raisf.utils.errors import InputError, LMError
from tests.scripted import ScriptedLM


def bare(node: Node) -> dict[str, Any]:
    """A node without its times."""
    return {**node.model_dump(exclude={"sub_questions", "seconds"}), "subs": [bare(sub) for sub in node.sub_questions]}


def streamed(program: dspy.Module, question: str = "root") -> tuple[list[Any], Trace]:
    """All events of a question, and the tree that they add up to, before repeated work is folded."""
    growing, events = GrowingTrace("x"), []
    for event in program.stream(question):
        events.append(event)
        if not isinstance(event, DoneEvent):
            growing.add(event)
    return events, growing.trace


def tree(scripted: Any, plan: Any, shelf: Any, **options: Any) -> RAISF:
    program = RAISF(shelf, k=3, **options)
    plans = {"root": plan(subs=["left side", "right of #1"]), "left": plan(know=True), "right": plan(relevant=2)}
    program.set_lm(scripted(**plans))
    return program


def test_a_tree_that_grows_shows_no_answer_of_what_is_under_way(scripted: Any, plan: Any, shelf: Any) -> None:
    growing, drawn = GrowingTrace("ra-isf"), list[str]()
    for event in tree(scripted, plan, shelf).stream("root"):
        growing.add(event)
        console = Console(file=io.StringIO(), width=100)
        console.print(render(growing.trace))
        drawn.append(console.file.getvalue())  # type: ignore[attr-defined]
    assert not any("unknown" in one for one in drawn[:-1])
    assert any("left side →   ..." in one for one in drawn) and "root → A(root)" in drawn[-1]


def test_the_events_of_a_tree_add_up_to_its_trace(scripted: Any, plan: Any, shelf: Any) -> None:
    events, grown = streamed(tree(scripted, plan, shelf))
    done = events[-1]
    assert isinstance(done, DoneEvent) and done.trace is not None
    assert bare(grown.root) == bare(done.trace.root)
    assert grown.cost == done.trace.cost.model_copy(update={"seconds": grown.cost.seconds})
    assert done.answer == done.trace.root.answer


def test_a_listed_sub_question_waits_and_is_told_again_with_its_reference_filled_in(
    plan: Any, read: Any, shelf: Any
) -> None:
    """The first sub-question is held back until the stream has told of the second: a late look sees it filled in."""
    listed = threading.Event()
    plans = {"root": plan(subs=["left side", "right of #1"]), "left": plan(know=True), "right": plan(relevant=2)}

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        if fields["question"] == "left side":
            assert listed.wait(60)
        return read(plans, fields)

    program = RAISF(shelf, k=3)
    program.set_lm(ScriptedLM(answer))
    events = []
    for event in program.stream("root"):
        events.append(event)
        if isinstance(event, QuestionEvent) and event.node == "0.2":
            listed.set()
    told = [event for event in events if isinstance(event, QuestionEvent) and event.node == "0.2"]
    assert told[0].question == "right of #1" and told[0].waits_for == [1] and not told[0].begun
    assert told[-1].question == "right of A(left side)" and told[-1].begun
    assert isinstance(events[0], QuestionEvent) and events[0].node == ROOT and events[0].begun


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"skr-knn", "replug"}))
def test_every_program_streams_what_its_trace_says(name: str, scripted: Any, plan: Any, shelf: Any) -> None:
    program = build(name, shelf) if searches(PROGRAMS[name]) else build(name)
    program.set_lm(scripted(root=plan(subs=["one", "two"], relevant=1)))
    events, grown = streamed(program)
    assert isinstance(events[-1], DoneEvent) and events[-1].trace is not None
    assert bare(grown.root)["question"] == "root" and grown.root.answer == events[-1].answer
    assert [len(step.passages) for step in grown.root.steps] == [
        len(step.passages) for step in events[-1].trace.root.steps
    ]


def test_events_come_while_the_program_still_works(shelf: Any) -> None:
    """The reader's judgement is held back until the stream has told of the first ones."""
    told = threading.Event()

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("passage", "").endswith("3"):
            assert told.wait(60)
        return {"verdict": "unknown" if "passage" not in fields else "relevant", "evidence": "e", "answer": "a"}

    program = RAISF(shelf, k=3)
    program.set_lm(ScriptedLM(answer))
    kinds = []
    for event in program.stream("root"):
        kinds.append(event.type)
        judged = (
            [passage.judgement is not None for passage in event.passages] if isinstance(event, PassagesEvent) else []
        )
        if isinstance(event, JudgementEvent) or any(judged):  # whoever looks late is told of both at once
            told.set()
    assert kinds[0] == "question"
    assert kinds.index("judgement") < kinds.index("answer") < kinds.index("done")


def test_leaving_the_stream_stops_the_question(shelf: Any) -> None:
    release, begun = threading.Event(), threading.Event()

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        assert release.wait(60)
        return {"verdict": "unknown", "sub_questions": ["a", "b"], "answer": "a"}

    lm = ScriptedLM(answer)
    program = RAISF(shelf)
    program.set_lm(lm)
    events = program.stream("root")
    next(events)
    assert begun.wait(60)
    events.close()  # type: ignore[attr-defined]
    release.set()
    ends = time.monotonic() + 60
    while any(thread.name == "raisf-question" for thread in threading.enumerate()):
        assert time.monotonic() < ends
        time.sleep(0.01)
    assert len(lm.calls) == 1


def test_stopping_closes_an_endpoints_connection(faulty: Any) -> None:
    with faulty.serve(1.0, kinds=["silent"]) as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url, timeout=600))
        events = program.stream("Who?")
        next(events)
        while not endpoint.seen:
            time.sleep(0.01)
        events.close()  # type: ignore[attr-defined]
        ends = time.monotonic() + 60
        while any(thread.name == "raisf-question" for thread in threading.enumerate()):
            assert time.monotonic() < ends  # it waits for a call that would take ten minutes
            time.sleep(0.01)


def test_coroutines_stream_too_and_cancelling_them_stops(scripted: Any, plan: Any, shelf: Any) -> None:
    program = tree(scripted, plan, shelf)

    async def all_of_it() -> list[Any]:
        return [event async for event in program.astream("root")]

    events = asyncio.run(all_of_it())
    assert isinstance(events[-1], DoneEvent) and sum(isinstance(event, AnswerEvent) for event in events) >= 3


def test_errors_are_raised_where_the_loop_stands(shelf: Any) -> None:
    program = RAISF(shelf)
    program.set_lm(ScriptedLM(lambda fields: {"answer": "x"}))
    with pytest.raises(InputError, match="empty"):
        list(program.stream("  "))

    def broken(fields: dict[str, Any]) -> dict[str, Any]:
        raise LMError("down")

    program.set_lm(ScriptedLM(broken))
    with pytest.raises(LMError, match="down"):
        list(program.stream("root"))


def test_a_request_may_lower_a_budget_and_never_raise_it(shelf: Any) -> None:
    program = RAISF(shelf, max_calls=5)
    program.set_lm(ScriptedLM(lambda fields: {"verdict": "unknown", "sub_questions": ["a b", "c d"], "answer": "x"}))
    for given, limit in ((2, 2), (50, 5), (None, 5)):
        events = list(stream(program.live("root", max_calls=given)))
        assert events[-1].trace.cost.lm_calls == limit


def test_a_module_of_the_users_own_streams_its_answer() -> None:
    class Mine(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=question.upper())

    events = list(stream(live_module(Mine(), "who?")))
    assert [event.type for event in events if event.type != "cost"] == ["question", "answer", "done"]
    assert events[-1].answer == "WHO?" and events[-1].trace is None


def test_the_calls_of_a_module_of_the_users_own_are_counted() -> None:
    """The service's cost, its metrics and its log said "0 LM calls"."""

    class Twice(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = dspy.Predict("question -> answer"), dspy.Predict("question -> answer")

        def forward(self, question: str) -> dspy.Prediction:
            return self.second(question=self.first(question=question).answer)

    module = Twice()
    module.set_lm(ScriptedLM(lambda fields: {"answer": "Oslo"}))
    costs = [event.cost for event in stream(live_module(module, "who?")) if event.type == "cost"]
    assert costs[-1].lm_calls == 2 and costs[-1].prompt_tokens > 0


def test_the_calls_of_a_module_that_asks_in_threads_are_counted_with_their_tokens() -> None:
    class Sides(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ask = dspy.Predict("question -> answer")

        def forward(self, question: str) -> dspy.Prediction:
            sides = [(self.ask, dspy.Example(question=question + end).with_inputs("question")) for end in "!?"]
            return dspy.Parallel(num_threads=2, disable_progress_bar=True)(sides)[0]

    module = Sides()
    module.set_lm(ScriptedLM(lambda fields: {"answer": "Oslo"}))
    with dspy.track_usage() as usage:
        *_, cost = [event.cost for event in stream(live_module(module, "who")) if event.type == "cost"]
    assert (cost.lm_calls, cost.unmetered_calls) == (2, 0) and cost.prompt_tokens > 0
    assert len(usage.usage_data["scripted/lm"]) == 2


def test_a_question_is_answered_with_the_settings_that_held_where_it_was_asked() -> None:
    """It was checked with one LM and answered by another, where its events were read outside of the context."""
    with dspy.context(lm=ScriptedLM(lambda fields: {"answer": "asked for"})):
        events = Direct().stream("who?")
    with dspy.context(lm=ScriptedLM(lambda fields: {"answer": "another"})):
        assert [event.answer for event in events if event.type == "done"] == ["asked for"]


@pytest.mark.slow
def test_weights_are_read_in_no_questions_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first question of a process ended as "unknown": reading them took longer than its seconds."""
    load = engine.InferenceEngine.load

    def slowly(self: engine.InferenceEngine) -> None:
        if self._model is None:
            time.sleep(3)
        load(self)

    monkeypatch.setattr(engine.InferenceEngine, "load", slowly)
    program = Direct(max_seconds=3)
    for ask in (lambda: program(question="Who?").trace, lambda: list(program.stream("Who?"))[-1].trace):
        monkeypatch.setattr(engine, "_engines", {})
        program.set_lm(connect("pocket"))
        trace = ask()
        assert trace.root.route != "budget" and trace.cost.seconds < 3


def test_a_question_whose_thread_could_not_start_gives_its_place_back(
    shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service whose system gave no more threads counted it as under way for ever."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    program, ended = RAISF(shelf), list[str]()
    program.set_lm(ScriptedLM({}))
    live = program.live("Who?")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        live.start(lambda: None)
    live.when_ended(lambda: ended.append("over"))
    assert ended == ["over"]
