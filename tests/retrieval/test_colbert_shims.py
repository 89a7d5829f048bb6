"""Each correction in retrieval/colbert_shims.py is needed: where a test fails, colbert-ai mended it: remove that."""

import json
import os
import subprocess
import sys

import pytest

from raisf.retrieval.encoders.checkpoint import find_checkpoint

# colbert-ai as it is, in a process of its own, telling which of its faults are there.
PROBE = """
import contextlib, io, json, multiprocessing, os, sys, warnings
path, found = sys.argv[1], {}
searched, os.environ["PATH"] = os.environ["PATH"], "/nowhere"
try:
    import git
    found["allow_missing_git"] = False
except ImportError:
    found["allow_missing_git"] = True
os.environ["PATH"], os.environ["GIT_PYTHON_REFRESH"] = searched, "quiet"
warnings.simplefilter("ignore")
import colbert
found["kept_start_method"] = multiprocessing.get_start_method(allow_none=True) is not None
from colbert.infra import ColBERTConfig
from colbert.infra.config.settings import RunSettings
from colbert.modeling import base_colbert
from colbert.modeling.checkpoint import Checkpoint
found["search_on_cpu"] = "total_visible_gpus" in vars(RunSettings)
config = ColBERTConfig.load_from_checkpoint(path)
try:
    base_colbert.BaseColBERT(path, config)
    found["finish_models"] = False
except AttributeError as error:
    found["finish_models"] = "all_tied_weights_keys" in str(error)
class Compiling(Exception): pass
def compile(*args, **options): raise Compiling
import colbert.modeling.colbert as module
make = base_colbert.class_factory
def factory(name):
    class Finished(make(name)):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.post_init()
    return Finished
base_colbert.class_factory = factory
module.load = compile
with contextlib.redirect_stdout(io.StringIO()) as printed:
    try:
        Checkpoint(path, config, verbose=0)
        found["postpone_compiling"] = False
    except Compiling:
        found["postpone_compiling"] = True
    found["stay_quiet"] = bool(printed.getvalue())
    module.ColBERT.loaded_extensions = True
    checkpoint = Checkpoint(path, config, verbose=0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    checkpoint.queryFromText(["a"])
found["without_amp"] = any("autocast" in str(warning.message) for warning in caught)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def faults() -> dict[str, bool]:
    command = [sys.executable, "-c", PROBE, str(find_checkpoint("minilm").path)]
    clean = {name: value for name, value in os.environ.items() if name != "GIT_PYTHON_REFRESH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "shim",
    [
        "allow_missing_git",
        "kept_start_method",
        "finish_models",
        "postpone_compiling",
        "stay_quiet",
        "search_on_cpu",
        "without_amp",
    ],
)
def test_the_shim_is_still_needed(faults: dict[str, bool], shim: str):
    assert faults[shim], f"colbert-ai no longer needs {shim}: remove it from retrieval/colbert_shims.py, and this case"


@pytest.mark.slow
def test_a_search_imports_no_training_and_the_packages_own_names_are_there_all_the_same():
    # In a process of its own: this one has imported what other tests want.
    told = """
import multiprocessing, sys
from raisf.retrieval.encoders import colbert_shims
colbert_shims.colbert()
print([name for name in ("peft", "faiss", "colbert.trainer", "colbert.indexer") if name in sys.modules])
from colbert import Checkpoint, Searcher
import colbert
print(Searcher.__module__, colbert.Checkpoint is Checkpoint, multiprocessing.get_start_method(allow_none=True))
"""
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", "colbert.searcher True None"]


@pytest.mark.slow
def test_threads_that_open_plaid_at_once_wait_for_the_one_that_compiles():
    """All but the first raised an AttributeError."""
    told = """
from concurrent.futures import ThreadPoolExecutor
from raisf.retrieval.encoders.colbert_shims import colbert, compile_extensions
colbert()
with ThreadPoolExecutor(4) as threads:
    print([job.exception() for job in [threads.submit(compile_extensions) for _ in range(4)]])
"""
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert run.stdout == "[None, None, None, None]\n", run.stderr
