"""docs/serving.md: what it shows works."""

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[3] / "docs/serving.md").read_text("utf-8")


@pytest.fixture
def service(make: Any) -> Any:
    """The programs under the names that the page's command gives them."""
    service = make()
    compiled = dataclasses.replace(service.served.pop("ra-isf"), name="smollm2")
    service.served = {"smollm2": compiled, **service.served}
    return service


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_curl_commands_are_answered(server: Any) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 4
    for command in commands:
        shown = command.replace("http://127.0.0.1:8080", server.url).replace("curl ", "curl --fail --noproxy '*' ")
        run = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr
        assert any(word in run.stdout for word in ("Pasmur Sea", "Port", "rag")) and '"error"' not in run.stdout


def test_the_python_runs_as_it_stands(server: Any, service: Any, capsys: Any) -> None:
    names: dict[str, Any] = {"program": service.served["smollm2"].program}
    for block in blocks("python"):
        exec(compile(block.replace("http://127.0.0.1:8080", server.url), "docs/serving.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "0.1 Funzol River" in printed and "0 Pasmur Sea" in printed and "direct" in printed
