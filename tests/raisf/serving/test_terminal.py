"""`raisf ask --live`, `raisf chat`, and `raisf serve` as a process."""

import io
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
import torch
from rich.console import Console

from raisf import cli
from raisf.commands.live import ask_live
from raisf.commands.options import ProgramChoice
from raisf.commands.result import INTERRUPTED
from raisf.lm.local import engine
from raisf.programs.baselines.rag import RAG
from raisf.programs.conversation import Conversation
from raisf.serving.app import make_app
from raisf.serving.limits import Limits
from raisf.serving.server import AppServer
from raisf.serving.service import Service
from raisf.utils.errors import InputError


def test_the_tree_is_shown_while_it_grows_and_taken_away(service: Service, ask: Any) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, height=30)
    prediction = ask_live(service.served["ra-isf"].program, ask.sea, screen)
    assert prediction.answer == "Pasmur Sea" and prediction.trace.root.sub_questions
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "knows it?" in shown and "Funzol River" in shown


def test_a_tree_longer_than_the_terminal_shows_its_end(service: Service, ask: Any) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=80, height=8)
    assert ask_live(service.served["ra-isf"].program, ask.sea, screen).answer == "Pasmur Sea"


def test_ask_live_prints_the_same_result(service: Service, ask: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(ProgramChoice, "open", lambda self, lm: service.served["ra-isf"].program)
    assert cli.main(["ask", ask.sea, "--live", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "Pasmur Sea"


def test_chat_reads_a_question_a_line_and_remembers_them(service: Service, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(ProgramChoice, "open", lambda self, lm: service.served["ra-isf"].program)
    monkeypatch.setattr("sys.stdin", io.StringIO("Which river flows through Bulgorton?\nDoes it fail?\nAnd where?\n"))
    # A script that pairs its questions with these answers would otherwise give the third one to the second question.
    assert cli.main(["chat"]) == 1
    told = capsys.readouterr()
    first, failed, last = (line.split("\t") for line in told.out.splitlines())
    assert first == ["Which river flows through Bulgorton?", "Funzol River"] and last == ["And where?", "Pasmur Sea"]
    assert failed[0] == "Does it fail?" and "the endpoint is down" in failed[1]
    assert "asked as it stands" not in told.err
    assert "asked as: Where does the Funzol River end?" in told.err and "the endpoint is down" in told.err


def test_chat_tells_a_script_all_that_ask_does(service: Service, monkeypatch: Any, capsys: Any) -> None:
    """It gave the answers alone, without confidence, citations and trees."""
    monkeypatch.setattr(ProgramChoice, "open", lambda self, lm: service.served["ra-isf"].program)
    monkeypatch.setattr("sys.stdin", io.StringIO("Which river flows through Bulgorton?\n"))
    assert cli.main(["chat", "--json"]) == 0
    (chatted,) = json.loads(capsys.readouterr().out)["answers"]
    assert cli.main(["ask", "Which river flows through Bulgorton?", "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert chatted.keys() == {"question", "asked_as", *asked}
    assert {name: chatted[name] for name in asked if name != "trace"} == {
        name: value for name, value in asked.items() if name != "trace"
    }
    assert chatted["trace"]["root"]["answer"] == "Funzol River"


def test_ctrl_c_while_chat_waits_for_a_line_keeps_the_answers(service: Service, monkeypatch: Any, capsys: Any) -> None:
    def lines() -> Iterator[str]:
        yield "Which river flows through Bulgorton?\n"
        raise KeyboardInterrupt

    class Pipe(io.StringIO):
        given = lines()

        def __iter__(self) -> Any:
            return self.given

    monkeypatch.setattr(ProgramChoice, "open", lambda self, lm: service.served["ra-isf"].program)
    monkeypatch.setattr("sys.stdin", Pipe())
    assert cli.main(["chat", "--json"]) == INTERRUPTED
    (chatted,) = json.loads(capsys.readouterr().out)["answers"]
    assert chatted["answer"] == "Funzol River"


def test_a_server_that_is_told_to_stop_answers_what_has_come_in(
    start: Any, service: Service, script: Any, ask: Any
) -> None:
    with start(service) as server:
        server._server.config.timeout_graceful_shutdown = 60
        response = ask.post(f"{server.url}/ask", {"question": "slow Bulgorton?"})
        events = ask.events(response)
        next(events)
        assert script.begun.wait(60)
        server.stop()
        threading.Timer(0.2, script.let_go.set).start()
        assert [*events][-1]["type"] == "done"


def test_what_cannot_be_served_is_said_in_a_line(tmp_path: Any, rivers: Any, capsys: Any) -> None:
    conversation = Conversation(RAG())
    conversation.rewrite.demos = [dspy.Example(turns=["user: Hi"], question="Who?", standalone="Who is it?")]
    conversation.save(compiled := str(tmp_path / "conversation.json"))
    pocket = [str(rivers.path), "--program", "rag", "--lm", "pocket", "--conversation", compiled]
    for words, told in (
        (["serve", "--host", "0.0.0.0", str(rivers.path)], "--api-key-file"),
        (["serve", str(tmp_path / "none")], "none"),
        (["serve", *pocket], "takes each question as it stands"),
        (["serve", str(rivers.path), "--index", str(rivers.path)], "give each index as a target"),
        (["serve", str(rivers.path), f"index={rivers.path}", "--program", "rag"], "the same name"),
    ):
        assert cli.main([*words, "--port", "0"]) == 2
        assert told in capsys.readouterr().err
    assert cli.main(["mcp", *pocket]) == 2, "MCP's questions have no earlier turns"
    assert "--conversation" in capsys.readouterr().err


def test_an_lm_in_the_process_is_read_before_it_is_served_and_not_in_the_first_questions_time(
    rivers: Any, monkeypatch: Any, capsys: Any
) -> None:
    served = list[Any]()
    opened = ProgramChoice.open
    monkeypatch.setattr(ProgramChoice, "open", lambda self, lm: (served.append(opened(self, lm)), served[-1])[1])
    monkeypatch.setattr("signal.signal", lambda *given: None)
    monkeypatch.setattr(engine, "_engines", {})

    def serve(server: AppServer) -> None:
        assert served[0].get_lm().base_engine._model is not None

    monkeypatch.setattr(AppServer, "serve", serve)
    assert cli.main(["serve", str(rivers.path), "--program", "rag", "--lm", "pocket", "--port", "0"]) == 0

    for code, error in [(2, InputError("the weights are damaged")), (1, torch.OutOfMemoryError("out of memory"))]:
        monkeypatch.setattr(engine.InferenceEngine, "load", lambda self, error=error: (_ for _ in ()).throw(error))
        assert cli.main(["serve", str(rivers.path), "--program", "rag", "--lm", "pocket", "--port", "0"]) == code
        assert "serving" not in (told := capsys.readouterr().err.splitlines()[-1]) and str(error) in told


@pytest.mark.parametrize(("before", "kept"), [(1_000_000, 3), (2, 2), (None, 0)])
def test_a_service_keeps_few_replies_in_memory_and_all_on_the_disk_as_it_was_set(
    before: int | None, kept: int, rivers: Any, own_cache: None, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr("raisf.commands.served.REPLIES", 3)
    monkeypatch.setattr(AppServer, "serve", lambda self: None)
    monkeypatch.setattr("signal.signal", lambda *given: None)
    dspy.configure_cache(True, before is not None, str(tmp_path / "cache"), 1 << 25, before or 1)
    disk = dspy.cache.disk_cache
    assert cli.main(["serve", str(rivers.path), "--program", "rag", "--lm", "openai/x", "--port", "0"]) == 0
    for number in range(9):
        dspy.cache.put({"number": number}, f"reply {number}")
    assert len(dspy.cache.memory_cache) == kept and dspy.cache.disk_cache is disk
    assert [dspy.cache.get({"number": number}) for number in range(9)] == [f"reply {number}" for number in range(9)]


@pytest.mark.slow
def test_the_process_serves_and_ends_in_order(rivers: Any, ask: Any) -> None:
    command = [sys.executable, "-m", "raisf.cli", "serve", str(rivers.path), "--lm", "pocket", "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    (url,) = re.findall(r"http://[\d.:]+", next(line for line in server.stderr if "serving" in line))
    assert ask(url, "Where does the Funzol River end?")[-1]["type"] == "done"
    server.send_signal(signal.SIGTERM)
    told, log = server.communicate(timeout=120)
    assert server.returncode == 0 and json.loads(told)["programs"] == "ra-isf" and '"answered"' in log


def test_programs_are_named_after_what_they_are_asked_over(
    rivers: Any, service: Service, monkeypatch: Any, capsys: Any, tmp_path: Path
) -> None:
    """Neither the page nor a client was answered where a folder's name is no UTF-8."""
    (latin := tmp_path / "caf\udce9").symlink_to(rivers.path)
    monkeypatch.setattr(AppServer, "serve", lambda self: None)
    monkeypatch.setattr("signal.signal", lambda *given: None)
    monkeypatch.setattr(ProgramChoice, "open", lambda self, lm: service.served["rag"].program)
    index = str(rivers.path)
    for words, names in (
        ([index, "--lm", "pocket"], "ra-isf"),
        ([index, "--program", "rag,mine=direct"], "rag, mine"),
        ([index, f"other={index}", "--program", "rag"], "rag@index, rag@other"),
        ([index, str(latin), "--program", "rag"], "rag@index, rag@caf?"),
        (["--program", "direct"], "direct"),
    ):
        assert cli.main(["serve", *words, "--port", "0", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["programs"] == names


@pytest.mark.parametrize("told", [True, False])
def test_what_the_command_line_says_of_clients_holds_for_them(
    told: bool, rivers: Any, service: Service, monkeypatch: Any, tmp_path: Path
) -> None:
    made, servers, read = list[Any](), list[Any](), list[Path]()
    monkeypatch.setattr("raisf.serving.app.make_app", lambda *given: (made.append(given), make_app(*given))[1])
    monkeypatch.setattr(AppServer, "serve", lambda self: servers.append(self))
    monkeypatch.setattr(Conversation, "take_rewriting", lambda self, path: read.append(path))
    monkeypatch.setattr("signal.signal", lambda *given: None)
    monkeypatch.setattr(ProgramChoice, "open", lambda self, lm: service.served["rag"].program)
    limits = "--concurrency 3 --rate 7 --question-seconds 9 --max-calls 5 --log-questions --allow-host raisf.example"
    folder, compiled = tmp_path, tmp_path / "conversation.json"
    words = [*limits.split(), "--documents", str(folder), "--conversation", str(compiled)] if told else []
    assert cli.main(["serve", str(rivers.path), "--program", "rag", "--port", "0", *words]) == 0
    ((opened, access, documents),), (server,) = made, servers
    assert opened.limits == (Limits(3, 7, 9.0, 5) if told else Limits())
    assert opened.log_questions == told and documents == (folder if told else None)
    assert read == ([compiled] if told else [])
    # Where no proxy was told of, any client could give another's address, and so have a rate of its own.
    assert ("raisf.example" in access.hosts) == server._server.config.proxy_headers == told
