"""A service over scripted programs and a real index, in this process, on loopback."""

import json
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raisf.programs.baselines.rag import RAG
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.serving.app import make_app
from raisf.serving.guard import Access
from raisf.serving.limits import Limits
from raisf.serving.server import AppServer
from raisf.serving.service import Served, Service
from raisf.utils.errors import LMError
from tests.scripted import ScriptedLM

SEA = "In which sea does the river that flows through Bulgorton end?"
PASSAGES = [
    ("Bulgorton", "Bulgorton lies on the Funzol River, half a day from the coast. Its market is held on Fridays."),
    ("Funzol River", "The Funzol River rises in the Harn hills. It flows into the Pasmur Sea below Oltrey."),
    ("Meszer River", "The Meszer River flows into the Kesren Sea. No town of note lies on it."),
    ("Pasmur Sea", "The Pasmur Sea is shallow, and frozen for three months of the year."),
    ("Verlas River", "The Verlas River flows into the Kesren Sea through a wide delta."),
    ("Oltrey", "Oltrey is a port. The ferry to Bulgorton leaves twice a day, and stays in port when it storms."),
]
HOSTILE = (
    '<script>window.hacked = true</script><img src=x onerror="window.hacked = true"> **bold** [a](javascript:alert(1))'
)


class Script:
    """What the LM says. `hold` keeps back the answer to questions with "slow" until `let_go` is set."""

    def __init__(self, pause: float = 0.0) -> None:
        self.let_go, self.begun, self.pause = threading.Event(), threading.Event(), pause

    def __call__(self, fields: dict[str, Any]) -> dict[str, Any]:
        time.sleep(self.pause)
        if "turns" in fields and "slow" not in fields["question"]:
            river = "Funzol River" if "Funzol" in str(fields["turns"]) else "?"
            leans = "fail" not in fields["question"]
            return {"standalone": f"Where does the {river} end?" if leans else fields["question"]}
        question = fields["question"]
        if "slow" in question:
            self.begun.set()
            assert self.let_go.wait(60)
        if "fail" in question:
            raise LMError("the endpoint is down: start it again")
        if "endless" in question:
            error = LMError("the LM cannot read so much: ask a shorter question")
            error.too_long = True
            raise error
        return self.outputs(question, fields)

    def outputs(self, question: str, fields: dict[str, Any]) -> dict[str, Any]:
        if "passage" in fields:
            title = fields["passage"].partition(" | ")[0]
            return {"verdict": "relevant" if title in question and question != SEA else "irrelevant"}
        if "facts" in fields:
            return {"answer": "Pasmur Sea"}
        if "passages" in fields:
            river = "Which river" in question
            evidence = PASSAGES[0][1].partition(".")[0] if river else "The Funzol River flows into the Pasmur Sea."
            answer = HOSTILE if "hostile" in question else "Funzol River" if river else "Pasmur Sea"
            return {"evidence": evidence, "answer": answer}
        known = "Oltrey" in question or "number" in question or "<script>" in question
        subs = ["Which river flows through Bulgorton?", "Into which sea does the #1 flow?"] if question == SEA else []
        number = "".join(one for one in question if one.isdigit())
        answer = question if "<script>" in question else f"A{number}" if number else "Port"
        return {"verdict": "know" if known else "unknown", "sub_questions": subs, "answer": answer}


@pytest.fixture(scope="session")
def rivers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("rivers")
    passages = [
        Passage(f"r{number}", text, title, source="atlas/rivers.md", metadata={"section": title, "line": number + 1})
        for number, (title, text) in enumerate(PASSAGES)
    ]
    return build_index(passages, folder / "index", "bm25", progress=False)


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    yield script
    script.let_go.set()


@pytest.fixture
def service(rivers: Any, script: Script) -> Service:
    return make_service(rivers, script)


def make_service(rivers: Any, script: Script, limits: Limits | None = None, **options: Any) -> Service:
    served = {}
    for name, program in (("ra-isf", RAISF(rivers, k=4)), ("rag", RAG(rivers, k=3))):
        program.set_lm(ScriptedLM(script))
        served[name] = Served(name, program, "rivers")
    return Service(served, limits or Limits(rate=0), **options)


@contextmanager
def serving(service: Service, access: Access | None = None, **options: Any) -> Iterator[AppServer]:
    """The service on a free port."""
    with AppServer(make_app(service, access or Access(), **options)) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:  # a test that failed would leave it, and with it the process, running for ever
            server.stop()
            thread.join()


@pytest.fixture
def server(service: Service) -> Iterator[AppServer]:
    with serving(service) as server:
        yield server


@pytest.fixture
def start() -> Callable[..., Any]:
    return serving


@pytest.fixture
def make(rivers: Any, script: Script) -> Callable[..., Service]:
    return lambda limits=None, **options: make_service(rivers, script, limits, **options)


def post(url: str, body: Any, **headers: str) -> Any:
    """An open response."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    return urllib.request.urlopen(request, timeout=60)


def events_in(response: Any) -> Iterator[dict[str, Any]]:
    """The server-sent events of a response, as they come."""
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


@pytest.fixture
def ask() -> Callable[..., Any]:
    """`ask(url, question)`: all events; `ask.open` and `ask.events` for those who look on."""

    def ask(url: str, question: str, **more: Any) -> list[dict[str, Any]]:
        with post(f"{url}/ask", {"question": question, **more}) as response:
            return list(events_in(response))

    ask.post, ask.events, ask.sea, ask.hostile = post, events_in, SEA, HOSTILE  # type: ignore[attr-defined]
    return ask


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    (tmp_path / "atlas").mkdir()
    (tmp_path / "atlas" / "rivers.md").write_text("# Rivers\n<script>window.hacked = true</script>\n")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path


@pytest.fixture(scope="module")  # its event loop is in the way of others
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, server: Any) -> Iterator[Any]:
    page = browser.new_page()
    page.set_default_timeout(60_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda told: problems.append(told.text) if "Content Security" in told.text else None)
    outside: list[str] = []
    page.on("request", lambda request: None if request.url.startswith(server.url) else outside.append(request.url))
    page.goto(server.url)
    page.wait_for_selector("#program option", state="attached")
    yield page
    page.close()
    assert not problems and not [url for url in outside if not url.startswith(("blob:", "data:"))]


def until(condition: Callable[[], Any]) -> None:
    """Waits until something holds."""
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)
