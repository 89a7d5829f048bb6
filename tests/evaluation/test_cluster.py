"""Chunks over nodes: what a node takes along is asked again elsewhere, once; without Ray itself."""

import pickle
import threading
from types import SimpleNamespace
from typing import Any

import cloudpickle
import dspy
import pytest
from dspy.lm15 import Message, Request, Response, Usage

from raisf.evaluation.cluster import _Cluster, answer
from raisf.evaluation.runner import ask_all, asked_by, evaluate
from raisf.utils.errors import LMError, RaisfError


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raisf.evaluation.cluster.REST_SECONDS", 0.0)


def test_another_threads_questions_stay_here() -> None:
    """They went to a cluster that was somebody else's."""
    found: list[Any] = []

    def ask_beside() -> None:
        ask_all(Echo(), [dspy.Example(question="mine").with_inputs("question")], found.append)

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("asked elsewhere")

    with asked_by(refuse):
        beside = threading.Thread(target=ask_beside)
        beside.start()
        beside.join()
    assert [outcome.prediction.answer for outcome in found] == ["mine"]


class Echo(dspy.Module):
    """Says the question; some questions end its process."""

    def forward(self, question: str) -> dspy.Prediction:
        if question == "bad":
            raise ValueError("a question's own fault")
        if question == "down":
            raise LMError("the endpoint is down")
        return dspy.Prediction(answer=question)


class RayError(Exception):
    pass


class RayTaskError(RayError):
    cause: Any = None


class Ray:
    """What is used of Ray; tasks run when they are waited for. `dies` says which task numbers are lost with a node."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, nodes: int, dies: dict[int, bool]) -> None:
        self.alive, self.dies, self.tasks, self.started, self.cancelled = (
            [f"n{at}" for at in range(nodes)],
            dies,
            {},
            0,
            [],
        )

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "Alive": True, "Resources": {"CPU": 1}} for name in self.alive]

    def put(self, value: Any) -> bytes:
        return cloudpickle.dumps(value)

    def remote(self, **options: Any) -> Any:
        return lambda function: function

    def wait(self, running: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
        return running[:1], running[1:]

    def get(self, task: Any) -> Any:
        node, packed, rows, threads = self.tasks[task]
        if task in self.dies:
            if self.dies[task]:
                self.alive.remove(node)
            raise RayError("the worker died")
        return pickle.loads(pickle.dumps(answer(pickle.loads(packed), rows, threads)))

    def cancel(self, task: Any, force: bool) -> None:
        self.cancelled.append(task)


def over(ray: Ray) -> Any:
    cluster = _Cluster(ray, None)

    def start(node: str, packed: bytes, rows: Any, threads: int, resources: Any) -> Any:
        assert resources == {}  # nothing computes in the process
        ray.started += 1
        ray.tasks[ray.started] = node, packed, rows, threads
        return ray.started

    cluster._start = start  # type: ignore[method-assign]
    return asked_by(cluster.ask)


def examples(*names: str) -> list[dspy.Example]:
    return [dspy.Example(question=name, answer=name) for name in names]


@pytest.mark.parametrize("dies", [{}, {2: True}, {1: True, 2: False}], ids=["none", "a node", "a node and a process"])
def test_every_question_is_kept_once(dies: dict[int, bool], tmp_path: Any) -> None:
    asked = examples(*(f"q{at}" for at in range(50)), "bad")
    ray = Ray(3, dies)
    with over(ray):
        report = evaluate(Echo(), asked, tmp_path / "r.jsonl", progress=False)
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 51
    here = evaluate(Echo(), asked, progress=False)
    assert (report.em, report.errors, report.em.n) == (here.em, here.errors, 51)
    assert len(ray.alive) == 3 - sum(dies.values())


class Echoing:
    """An engine that can be sent to a node; it writes nothing but an answer."""

    def complete(self, request: Request) -> Response:
        text = "[[ ## answer ## ]]\nright\n\n[[ ## completed ## ]]"
        return Response(None, request.model, Message.assistant(text), "stop", Usage(input_tokens=1, output_tokens=1))


class Asking(dspy.Module):
    """A module of the user's own, which tells no trace."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=self.ask(question=question).answer)


def test_what_a_module_costs_on_a_node_is_what_it_costs_here() -> None:
    """It cost nothing there."""
    program = Asking()
    program.set_lm(dspy.LM("echo", engine=Echoing(), cache=False))
    costs = [evaluate(program, examples("a", "b"), progress=False).cost]
    with over(Ray(2, {})):
        costs.append(evaluate(program, examples("a", "b"), progress=False).cost)
    assert all(cost.pop("seconds") > 0 for cost in costs)
    assert costs[0] == costs[1] and costs[0]["lm_calls"] == 1 and costs[0]["prompt_tokens"] > 0


def test_without_a_node_the_run_ends_and_goes_on_later(tmp_path: Any) -> None:
    asked = examples(*(f"q{at}" for at in range(10)))
    with over(Ray(2, {2: True, 3: True})), pytest.raises(RaisfError, match=r"no node left.*keeps the answers so far"):
        evaluate(Echo(), asked, tmp_path / "r.jsonl", progress=False)
    with over(Ray(1, {})):
        assert evaluate(Echo(), asked, tmp_path / "r.jsonl", progress=False).em.value == 1
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 10


def test_a_question_that_takes_every_process_down_ends_the_run() -> None:
    with over(Ray(1, dict.fromkeys(range(1, 9), False))), pytest.raises(RaisfError, match="end every process"):
        evaluate(Echo(), examples("a", "b"), progress=False)


def test_an_endpoint_that_is_down_ends_the_run_as_here_and_what_was_answered_is_kept(tmp_path: Any) -> None:
    asked = [dspy.Example(id=f"{at}", question="down" if at > 3 else f"q{at}", answer="x") for at in range(60)]
    with over(Ray(2, {})), pytest.raises(LMError, match="10 questions in a row"):
        evaluate(Echo(), asked, tmp_path / "r.jsonl", progress=False, threads=1)
    kept = (tmp_path / "r.jsonl").read_text()
    assert all(f'"q{at}"' in kept for at in range(4))
    few = [dspy.Example(id=f"{at}", question="down" if at > 3 else f"q{at}", answer="x") for at in range(24)]
    with over(Ray(4, {})), pytest.raises(LMError, match="10 questions in a row"):  # three questions a chunk
        evaluate(Echo(), few, progress=False, threads=1)


def test_what_cannot_travel_is_asked_here(caplog: pytest.LogCaptureFixture) -> None:
    program = Echo()
    program.lock = __import__("threading").Lock()
    ray = Ray(2, {})
    with over(ray):
        assert evaluate(program, examples("a"), progress=False).em.value == 1
    assert ray.started == 0 and "cannot be sent" in caplog.text
