"""What a user whose endpoint fails now and then is promised: answers, and where there is none, an error by name."""

import json
import zlib
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.lm15 import Message, ProviderError, Request

from raisf.evaluation.runner import evaluate
from raisf.lm.connect import connect
from raisf.lm.endpoint import EndpointLM
from raisf.programs.baselines.direct import Direct
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Passage
from raisf.utils.errors import LMError
from tests.shelf import Shelf

GARBAGE = ["html", "broken json", "not utf-8", "null", "null content", "no choices", "number", "error"]
QUICK = [*GARBAGE, "empty", "wrong fields", "null fields", "prose", "cut", "reset", "500", "huge"]


def five(query: str) -> list[Passage]:
    return [Passage(str(n), f"passage {n} of {zlib.crc32(query.encode())}") for n in range(5)]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits a hundredth of what a user would wait."""
    monkeypatch.setattr("raisf.lm.transport.BUSY_SECONDS", 0.01)
    monkeypatch.setattr("raisf.lm.transport.GARBAGE_SECONDS", 0.01)


def once(kind: str, faulty: Any) -> Any:
    """An endpoint whose first reply is wrong."""
    return faulty.serve(1.0, kinds=[kind])


@pytest.mark.parametrize("kind", [*GARBAGE, "reset", "500"])
def test_what_is_no_answer_is_asked_for_again(faulty: Any, kind: str) -> None:
    with once(kind, faulty) as endpoint:
        draw = endpoint.draw

        def first_only(*request: Any) -> str | None:
            endpoint.rate = 1.0 if not endpoint.seen else 0.0
            return draw(*request)

        endpoint.draw = first_only
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        assert program(question="Who?").answer.startswith("answer ")
        assert len(endpoint.seen) == 2 and endpoint.faults == {kind: 1}


@pytest.mark.parametrize("kind", ["html", "broken json", "not utf-8", "null", "error", "reset", "500"])
def test_an_endpoint_that_never_answers_is_an_error_by_name_after_bounded_tries(faulty: Any, kind: str) -> None:
    with faulty.serve(1.0, kinds=[kind]) as endpoint:
        program = RAISF(Shelf(five))
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        with pytest.raises(LMError, match=f"openai/x at {endpoint.url} "):
            program(question="Who?")
        assert len(endpoint.seen) == 4


def test_a_refusal_is_not_asked_for_again(faulty: Any) -> None:
    with faulty.serve() as endpoint:
        faulty.BUSY["400"] = (400, None)
        endpoint.rate, endpoint.kinds = 1.0, ["400"]
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        with pytest.raises(LMError, match="refuses the request"):
            program(question="Who?")
        assert len(endpoint.seen) == 1


LONG = "This model's maximum context length is 100 tokens."


@pytest.mark.parametrize(
    ("complaint", "told"),
    [
        ({"object": "error", "message": "no model x", "code": 400}, r"refuses the request \(HTTP 400: no model x"),
        ({"detail": "Not Found"}, r"refuses the request \(HTTP 400: Not Found\)"),
        ({"error": "no model x"}, r"refuses the request \(HTTP 400: no model x\)"),
        ({"object": "error", "message": LONG, "code": 400}, "cannot read so much"),
        ({"error": {"message": LONG, "type": "BadRequestError", "code": 400}}, "cannot read so much"),
        ({"error": {"message": "the request exceeds the available context size"}}, "cannot read so much"),
    ],
)
@pytest.mark.parametrize("bare", [{}, {"adapter": "compact", "completions": True}])
def test_a_refusal_is_told_in_the_servers_words(
    faulty: Any, monkeypatch: pytest.MonkeyPatch, complaint: Any, told: str, bare: Any
) -> None:
    """Of another form than OpenAI's nothing was told, and of a long prompt that the model's name may be wrong."""
    monkeypatch.setattr(
        faulty.Handler, "do_POST", lambda self: self._send(json.dumps(complaint).encode(), 400, {"connection": "close"})
    )
    with faulty.serve() as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url, **bare))
        with pytest.raises(LMError, match=told):
            program(question="Who?")


@pytest.mark.parametrize("asked", ["chat", "streamed", "completions"])
@pytest.mark.parametrize(
    ("kind", "told", "tries"), [("moved", "to https://elsewhere.example/v1", 1), ("huge", "longer", 4)]
)
def test_what_sends_elsewhere_or_does_not_end_is_no_reply(
    faulty: Any, monkeypatch: pytest.MonkeyPatch, kind: str, told: str, tries: int, asked: str
) -> None:
    """What came with a redirection was read as the answer, and a reply without end filled the memory."""
    monkeypatch.setattr("raisf.lm.replies.MOST_BYTES", 100_000)
    with faulty.serve(1.0, kinds=[kind]) as endpoint:
        bare: dict[str, Any] = {"adapter": "compact", "completions": True} if asked == "completions" else {}
        program, lm = Direct(), connect("openai/x", api_base=endpoint.url, **bare)
        program.set_lm(lm)
        with pytest.raises((LMError, ProviderError), match=told) as failed:
            if asked == "streamed":
                assert isinstance(lm, EndpointLM)
                list(lm.endpoint.stream(Request(model=lm.model, messages=(Message.user("Who?"),))))
            program(question="Who?")
        assert len(endpoint.seen) == tries and "secret" not in str(failed.value)


def test_one_failed_call_does_not_cost_the_question(faulty: Any) -> None:
    """The judges' defaults hold for it, as for an unreadable reply, and the trace counts it."""
    with faulty.serve(kinds=["500"]) as endpoint:
        draw = endpoint.draw

        def third_fails(path: str, headers: Any, body: Any) -> str | None:
            endpoint.rate = 1.0 if "passage 3" in str(body["messages"][-1]) else 0.0
            return draw(path, headers, body)

        endpoint.draw = third_fails
        program = RAISF(Shelf(five), max_depth=0)
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        for number in range(40):
            prediction = program(question=f"Who {number}?")
            if prediction.trace.failed:
                break
        assert prediction.trace.failed == 1 and prediction.answer.startswith("answer ")
        assert not prediction.trace.root.passages[3].judgement.readable


@pytest.mark.parametrize("own", [False, True], ids=["ours", "a module around it"])
def test_a_question_that_lost_a_call_is_an_error_of_an_evaluation_and_asked_again(
    faulty: Any, tmp_path: Path, own: bool
) -> None:
    """Its answer, without the passage that nobody judged, stood in the table for good, and no error was counted."""

    class Around(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = RAISF(Shelf(five), max_depth=0)

        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=self.inner(question=question).answer)

    def answer(fields: dict[str, str]) -> dict[str, str]:
        verdict = "relevant" if "passage" in fields else "unknown"
        return {"verdict": verdict, "evidence": "passage", "answer": "Rome"}

    with faulty.serve(kinds=["500"], answer=answer) as endpoint:
        draw = endpoint.draw

        def third_fails(path: str, headers: Any, body: Any) -> str | None:
            endpoint.rate = 1.0 if "passage 3" in str(body["messages"]) and "Where 1?" in str(body) else 0.0
            return draw(path, headers, body)

        endpoint.draw = third_fails
        program = Around() if own else RAISF(Shelf(five), max_depth=0)
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        asked = [dspy.Example(question=f"Where {number}?", answer="Rome") for number in range(3)]
        out = tmp_path / "records.jsonl"
        report = evaluate(program, asked, out, progress=False)
        assert (report.errors, round(report.em.value, 3)) == (1, 0.667)
        assert "failed (HTTP 500" in out.read_text()
        endpoint.draw, before = draw, len(endpoint.seen)
        endpoint.rate = 0.0
        report = evaluate(program, asked, out, progress=False)
        assert (report.errors, report.em.value) == (0, 1.0)
        assert all("Where 1?" in str(body) for _, _, body in endpoint.seen[before:])


def test_a_failure_never_passes_for_the_answer_unknown(faulty: Any) -> None:
    """The judge was asked, the answer was not given: no one knows what it would have been."""
    with faulty.serve(kinds=["500"]) as endpoint:
        draw = endpoint.draw

        def answers_fail(path: str, headers: Any, body: Any) -> str | None:
            endpoint.rate = 0.0 if "verdict" in str(body["messages"]) else 1.0
            return draw(path, headers, body)

        endpoint.draw = answers_fail
        program = RAISF(Shelf(five), max_depth=0)
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        with pytest.raises(LMError, match=r"failed \(HTTP 500"):
            program(question="Who?")


@pytest.mark.slow
def test_at_a_tenth_of_faults_99_of_100_questions_are_answered(faulty: Any) -> None:
    answered, named = 0, []
    with faulty.serve(0.1, seed=3, kinds=QUICK) as endpoint:
        program = RAISF(Shelf(five))
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        for number in range(200):
            try:
                answered += bool(program(question=f"Who was the {number}th?").answer)
            except LMError as error:
                named.append(str(error))
    assert answered >= 198 and answered + len(named) == 200
