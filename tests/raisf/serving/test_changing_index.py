"""An index that changes while it is served: the next question is asked of what it has become."""

import gc
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.programs.baselines.rag import RAG
from raisf.programs.conversation import Conversation
from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import add_to_index, build_index, open_folder, open_index, remove_from_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving import watcher
from raisf.retrieval.serving.server import IndexServer
from raisf.serving.indexes import IndexesWatched
from raisf.serving.limits import Limits
from raisf.serving.service import Served, Service
from raisf.serving.sources import sum_of
from tests.raisf.serving.conftest import until
from tests.scripted import ScriptedLM


class Own(dspy.Module):
    """A program of the user's own, which may wait before it searches."""

    def __init__(self, retriever: Any, wait: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__()
        self.retriever, self.wait = retriever, wait

    def forward(self, question: str) -> dspy.Prediction:
        self.wait({"question": question})
        return dspy.Prediction(answer=", ".join(one.title for one in self.retriever("town hall", 5)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    passages = [Passage("a", "The old town hall stands in Velm.", "Old", metadata={"year": 1900})]
    build_index(passages, tmp_path / "index", "bm25", progress=False)
    return tmp_path / "index"


def _programs(folder: Path, script: Any) -> Service:
    served = {}
    for name, retriever in (("rag", open_folder(folder)), ("late", open_folder(folder).where("year > 1950"))):
        program = RAG(retriever, k=3)
        program.set_lm(ScriptedLM(script))
        served[name] = Served(name, program, conversation=Conversation(program))
    served["own"] = Served("own", Own(open_folder(folder), script))
    return Service(served, Limits(rate=0))


@pytest.fixture
def service(folder: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(watcher, "REFRESH", 0.02)
    service = _programs(folder, script)
    with IndexesWatched(service):
        yield service


def add(folder: Path, text: str, year: int) -> None:
    add_to_index(folder, [Passage(str(year), text, "New", metadata={"year": year})], progress=False)


def titles(done: dict[str, Any]) -> set[str]:
    return {passage["title"] for passage in done["trace"]["root"]["passages"]}


def test_the_next_question_finds_what_was_added(service: Service, folder: Path, start: Any, ask: Any) -> None:
    with start(service) as server:
        assert titles(ask(server.url, "Where is the town hall?", program="rag")[-1]) == {"Old"}
        add(folder, "The new town hall stands in Oltrey, on the square.", 2000)
        until(lambda: titles(ask(server.url, "Where is the town hall?", program="rag")[-1]) == {"Old", "New"})
        # A filter holds for what was added too, and programs over one folder share what was opened.
        assert titles(ask(server.url, "Where is the town hall?", program="late")[-1]) == {"New"}
        assert "New" in ask(server.url, "Where?", program="own")[-1]["answer"]
        assert service.served["own"].program.retriever is service.served["rag"].program.retriever
        with urllib.request.urlopen(f"{server.url}/source?program=late&pid=2000") as told:
            assert "square" in json.load(told)["passage"]["text"]


def test_the_source_of_an_earlier_answer_is_what_it_was_read_from(
    tmp_path: Path, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "REFRESH", 0.02)
    (tmp_path / "docs").mkdir()

    def write(*parts: str) -> Index:
        text = "".join(f"## Part {part}\n\nNo more of {part}.\n\n" for part in parts)
        (tmp_path / "docs" / "a.md").write_text(f"# Parts\n\n{text}")
        return build_index(tmp_path / "docs", tmp_path / "index", "bm25", progress=False)

    def source(pid: str, read: dict[str, str] | None = None) -> dict[str, str]:
        sent = {"pid": pid, **({"sum": sum_of(read["text"])} if read else {})}
        with urllib.request.urlopen(f"{server.url}/source?{urllib.parse.urlencode(sent)}") as told:
            return json.load(told)["passage"]

    service = Service({"rag": Served("rag", RAG(write("one", "two", "three"), k=3))}, Limits(rate=0))
    with IndexesWatched(service), start(service) as server:
        second, third = source("a.md#2"), source("a.md#3")
        write("one", "new", "and", "two", "three")
        until(lambda: source("a.md#2") != second)
        assert source("a.md#2", second) == {**source("a.md#4"), "text": second["text"]}
        write("one", "two")
        until(lambda: source("a.md#2") == second)
        for gone in (third, {**second, "text": "Of another version."}):
            with pytest.raises(urllib.error.HTTPError, match="404") as error:
                source(gone["pid"], gone)
            assert "has changed since this answer" in error.value.read().decode()


def test_what_an_index_was_is_held_no_longer(service: Service, folder: Path) -> None:
    old = weakref.ref(service.served["rag"].program.retriever)
    add(folder, "The new town hall stands in Oltrey.", 2000)
    until(lambda: (gc.collect(), old() is None)[1])
    for served in service.served.values():
        assert served.conversation is None or served.conversation.program is served.program


def test_a_question_under_way_ends_on_what_it_began_with(
    service: Service, folder: Path, start: Any, script: Any, ask: Any
) -> None:
    with start(service) as server:
        before = service.served["own"].program
        events = ask.events(ask.post(f"{server.url}/ask", {"question": "slow?", "program": "own"}))
        assert script.begun.wait(60)
        add(folder, "The new town hall stands in Oltrey.", 2000)
        until(lambda: service.served["own"].program is not before)
        script.let_go.set()
        assert [*events][-1]["answer"] == "Old"
        assert set(ask(server.url, "Where?", program="own")[-1]["answer"].split(", ")) == {"Old", "New"}


def test_a_program_opened_before_a_change_follows_it_though_another_was_opened_after(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "REFRESH", 0.02)
    before = RAG(open_folder(folder), k=3)
    add(folder, "The new town hall stands in Oltrey.", 2000)
    both = {"before": before, "after": RAG(open_folder(folder), k=3)}
    service = Service({name: Served(name, program) for name, program in both.items()}, Limits(rate=0))
    with IndexesWatched(service):
        until(lambda: len(service.served["before"].retriever("town hall", 5)) == 2)


def test_a_change_of_one_index_leaves_programs_over_another_theirs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "REFRESH", 0.02)
    other = build_index([Passage("x", "A town hall.", "Other")], folder.with_name("other"), "bm25", progress=False)
    both = {"one": RAG(open_folder(folder), k=3), "other": RAG(other, k=3)}
    service = Service({name: Served(name, program) for name, program in both.items()}, Limits(rate=0))
    with IndexesWatched(service):
        add(folder, "The new town hall stands in Oltrey.", 2000)
        until(lambda: len(service.served["one"].retriever("town hall", 5)) == 2)
        assert service.served["other"].program is both["other"]


def test_what_cannot_be_opened_changes_nothing(
    service: Service, folder: Path, start: Any, ask: Any, caplog: Any
) -> None:
    (folder / "manifest.json").write_text("{")
    until(lambda: "serving the old" in caplog.text)
    with start(service) as server:
        assert titles(ask(server.url, "Where is the town hall?", program="rag")[-1]) == {"Old"}


def test_an_index_that_is_gone_is_told_once_and_served_as_it_was(
    service: Service, folder: Path, start: Any, ask: Any, caplog: Any
) -> None:
    with start(service) as server:
        assert titles(ask(server.url, "Where is the town hall?", program="rag")[-1]) == {"Old"}
        moved = folder.rename(folder.with_name("moved"))
        until(lambda: f"{folder} is no longer there: serving what it was" in caplog.text)
        assert titles(ask(server.url, "Where is it, the town hall?", program="rag")[-1]) == {"Old"}
        moved.rename(folder)
        add(folder, "The new town hall stands in Oltrey, on the square.", 2000)
        until(lambda: titles(ask(server.url, "Where is the town hall?", program="rag")[-1]) == {"Old", "New"})
    assert caplog.text.count("is no longer there") == 1


def test_a_filter_that_a_change_has_left_without_passages_is_told(service: Service, folder: Path, caplog: Any) -> None:
    add(folder, "The new town hall stands in Oltrey.", 2000)
    until(lambda: len(service.served["late"].retriever.passages) == 1)
    assert "--where" not in caplog.text
    remove_from_index(folder, "year = 2000")
    until(lambda: not service.served["late"].retriever.passages)
    until(lambda: "satisfies --where 'year > 1950' now: nothing is found there" in caplog.text)


@contextmanager
def index_server(folder: Path, port: int = 0) -> Iterator[IndexServer]:
    with IndexServer(open_folder(folder), port=port, reopen=lambda: open_folder(folder)) as server:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()


def served_from(url: str, script: Any) -> Service:
    served = {"rag": Served("rag", RAG(open_index(url), k=3)), "late": Served("late", Own(None, script))}
    served["rag"].program.set_lm(ScriptedLM(script))
    served["late"].program.retriever = open_index(url).where("year > 1950 or year < 1950")
    return Service(served, Limits(rate=0))


def found(url: str, ask: Any, program: str) -> set[str]:
    try:
        done = ask(url, "Where is the town hall?", program=program)[-1]
    except urllib.error.HTTPError as error:
        assert "has changed since it was opened" in error.read().decode()
        return set()
    if done["type"] == "error":  # between the server's change and the next look at it
        assert "has changed since it was opened" in done["message"]
        return set()
    return titles(done) if program == "rag" else set(done["answer"].split(", "))


def test_an_index_server_that_changes_or_is_gone_for_a_moment_is_followed(
    folder: Path, start: Any, ask: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "REFRESH", 0.02)
    with index_server(folder) as searched:
        service, url = served_from(searched.url, script), searched.url
        with IndexesWatched(service), start(service) as server:
            assert found(server.url, ask, "rag") == found(server.url, ask, "late") == {"Old"}
            add(folder, "The new town hall stands in Oltrey, on the square.", 2000)
            for program in service.served:
                until(lambda program=program: found(server.url, ask, program) == {"Old", "New"})
            opened = service.served["rag"].program.retriever
            assert service.served["late"].program.retriever.index is opened
            searched.stop()
            until(lambda: opened.served_now() is None)
            time.sleep(0.1)  # some looks at what does not answer
            add(folder, "The third town hall stands in Harn.", 2010)
            searched.close()
            with index_server(folder, int(url.rpartition(":")[2])):
                until(lambda: service.served["rag"].program.retriever is not opened)
                assert len(service.served["rag"].program.retriever("town hall", 5)) == 3
                assert found(server.url, ask, "late") == {"Old", "New"}


def test_a_link_that_leads_to_another_index_is_followed(folder: Path, script: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(watcher, "REFRESH", 0.02)
    current, other = folder.with_name("current"), folder.with_name("other")
    build_index(
        [Passage("b", "The town hall was sold.", "Sold", metadata={"year": 2020})], other, "bm25", progress=False
    )
    current.symlink_to(folder)
    service = _programs(current, script)
    with IndexesWatched(service):
        (link := folder.with_name("link")).symlink_to(other)
        link.replace(current)
        until(lambda: service.served["rag"].program.retriever("town hall", 1)[0].title == "Sold")
