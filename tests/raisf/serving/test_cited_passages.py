"""Which passages an answer cites: those that it was made from, on the page as over the APIs."""

from typing import Any, cast

import dspy
import pytest

from raisf.programs.baselines.self_rag import SelfRAG
from raisf.programs.events import DoneEvent
from raisf.programs.ra_isf import RAISF
from raisf.programs.trace import Cost, JudgedPassage, Judgement, Node, Route, Trace
from raisf.retrieval.passage import Passage
from raisf.serving.sources import cited_passages
from tests.raisf.serving.page_script import run_in_node
from tests.scripted import ScriptedLM

SEA = "In which sea does the river that flows through Bulgorton end?"
PARTS = ["Which river flows through Bulgorton?", "Into which sea does #1 flow?"]


def searched(query: str, k: int) -> list[Passage]:
    return [Passage(query, "The Funzol River.", "Rivers")]


def cited(trace: Trace | None) -> list[str]:
    """The ids, which the page finds likewise."""
    assert trace is not None
    found = [passage.pid for passage in cited_passages(DoneEvent(answer="", trace=trace))]
    tree = trace.root.model_dump_json()
    assert run_in_node(f"console.log(JSON.stringify(citedIn({tree}).map((one) => one.pid)))", "citedIn") == found
    return found


def asked(says: dict[str, Any], **options: Any) -> Trace:
    """RA-ISF's tree: all passages are relevant, and `says` has what is said of the question itself."""

    def say(fields: dict[str, Any]) -> dict[str, Any]:
        if "facts" in fields:
            return {"answer": says["composed"]}
        itself = fields["question"] == SEA
        if "passages" in fields:
            return {
                "answer": says.get("read", "Funzol River") if itself else says.get("parts", "Funzol River"),
                "evidence": "",
                "verdict": "insufficient" if itself else "sufficient",
            }
        if "passage" in fields:
            return {"verdict": "relevant"}
        known = "know" if itself and says.get("known") else "unknown"
        return {"verdict": known, "sub_questions": PARTS, "answer": "Pasmur Sea"}

    with dspy.context(lm=ScriptedLM(say)):
        *_, done = RAISF(cast(Any, searched), **options).stream(SEA)
    assert isinstance(done, DoneEvent) and done.trace is not None
    return done.trace


@pytest.mark.parametrize("options", [{"sufficiency": True}, {"insist": True, "max_depth": 1}])
def test_what_is_composed_from_the_passages_at_hand_cites_them(options: dict[str, Any]) -> None:
    """It cited nothing, while its reason said from how many passages it came."""
    trace = asked({"composed": "Pasmur Sea", "read": "unknown", "parts": "unknown"}, **options)
    assert trace.root.route == "decomposed" and "0 of 2 sub-answers and 1 of 1 passages" in trace.root.reason
    assert cited(trace) == [SEA]


def test_a_composed_answer_cites_its_parts_too() -> None:
    assert cited(asked({"composed": "Pasmur Sea"}, sufficiency=True))[:2] == [SEA, PARTS[0]]


@pytest.mark.parametrize(("known", "route"), [(True, "direct"), (False, "decomposed")])
def test_what_had_no_part_in_the_answer_is_not_cited(known: bool, route: str) -> None:
    """The parts of a chain were, though the answer came from memory in the end, or there was none."""
    says = {"composed": "unknown", "known": known, "read": "unknown"}
    trace = asked(says, decomposition="chains", insist=True, max_depth=1)
    assert trace.root.route == route and any(sub.passages for sub in trace.root.sub_questions)
    assert (trace.root.answer == "unknown") == (not known) and cited(trace) == []


@pytest.mark.parametrize("relevant", [{"Board"}, {"Club", "Board"}, {"Club"}, set()])
def test_an_answer_from_one_passage_alone_cites_that_one(relevant: set[str]) -> None:
    """It cited what was judged relevant, and that may be another passage."""
    club, board = Passage("1", "The club has a pool.", "Club"), Passage("2", "Ada Hill leads the club.", "Board")

    def say(fields: dict[str, Any]) -> dict[str, Any]:
        title = str(fields.get("passage")).split(" | ")[0]
        verdict = "relevant" if title in relevant else "irrelevant"
        answer = "Ada Hill" if "Ada Hill" in str(fields.get("passages")) else "unknown"
        return {
            "retrieve": "yes",
            "verdict": verdict,
            "support": "fully",
            "usefulness": "5",
            "answer": answer,
            "evidence": "",
        }

    with dspy.context(lm=ScriptedLM(say)):
        trace = SelfRAG(lambda query, k: [club, board], evidence=False)(question="Who leads the club?").trace
    assert trace.root.from_passage == 2 and cited(trace) == ["2"]


def node(question: str, route: Route, answer: str, *below: Node, **passages: str | None) -> Node:
    """A node with passages, and what was judged of each."""
    judged = {pid: Judgement(verdict=verdict) if verdict else None for pid, verdict in passages.items()}
    found = [JudgedPassage(pid=pid, title="", text="", judgement=one) for pid, one in judged.items()]
    return Node(question=question, sub_questions=list(below), passages=found).end(route, "", answer)


@pytest.mark.parametrize(
    ("root", "pids"),
    [
        (node("Q", "passages", "A", node("P", "passages", "B", p=None), q="relevant", r="irrelevant"), ["q"]),
        (node("Q", "passages", "A", q=None, r=None), ["q", "r"]),
        (node("Q", "acted", "A", q=None), ["q"]),
        (node("Q", "withheld", "unknown", q="relevant"), []),
        (node("Q", "decomposed", "A", node("P", "direct", "B", p=None), q=None, r="irrelevant"), []),
        (node("Q", "decomposed", "A", node("P", "passages", "B", p=None), node("P", "duplicate", "B")), ["p"]),
        (
            node(
                "Q",
                "decomposed",
                "A",
                node("R", "decomposed", "unknown", node("Who is P?", "passages", "B", p=None)),
                node("S", "decomposed", "C", node("who is P", "duplicate", "B")),
            ),
            ["p"],
        ),
        (node("Q", "decomposed", "A", node("q?", "duplicate", "A")), []),
    ],
)
def test_each_way_cites_its_own(root: Node, pids: list[str]) -> None:
    assert cited(Trace(system="ra-isf", root=root, cost=Cost())) == pids
