"""RA-ISF as a DSPy program: everything a newcomer needs, by one import.

    import raisf
    lm = raisf.connect("pocket")
    program = raisf.RAISF(raisf.open_index("indexes/mine"), k=5, max_depth=3)
    program.set_lm(lm)
    program(question="...").answer

A name is imported from its package when it is first used, so that `import raisf` costs nothing.
"""

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("raisf runs on Linux and macOS; on Windows use WSL")

# Type checkers read these imports, and so does `_homes`: what stands here is all that `raisf` has.
if TYPE_CHECKING:
    from raisf.data.datasets.files import write_dataset
    from raisf.data.questions import load_questions
    from raisf.data.world.files import write_world
    from raisf.evaluation.runner import evaluate
    from raisf.experiments.comparing import compare
    from raisf.lm.connect import connect
    from raisf.lm.finetune.training import Training
    from raisf.optimize.artifact import load, save
    from raisf.optimize.compile import compile
    from raisf.optimize.confidence import fit_confidence
    from raisf.optimize.optimizers.calibrate import Calibrate, calibrate
    from raisf.optimize.optimizers.few_shot import BootstrapJudges, LabeledJudges, RandomSearch
    from raisf.optimize.optimizers.finetune import FinetuneJudges
    from raisf.optimize.optimizers.fit_skr import FitSKR
    from raisf.optimize.optimizers.gepa import GEPA
    from raisf.optimize.optimizers.lsr import TuneRetriever, Tuning, tune_retriever
    from raisf.optimize.optimizers.mipro import MIPRO
    from raisf.optimize.optimizers.outcome import OutcomeJudges
    from raisf.optimize.optimizers.probe import ProbeJudges
    from raisf.optimize.optimizers.selection import answer_accuracy, answer_exact_match
    from raisf.optimize.optimizers.together import Together
    from raisf.programs.baselines.blendfilter import BlendFilter
    from raisf.programs.baselines.cot import CoT
    from raisf.programs.baselines.cot_rag import CoTRAG
    from raisf.programs.baselines.direct import Direct
    from raisf.programs.baselines.ircot import IRCoT
    from raisf.programs.baselines.iter_retgen import IterRetGen
    from raisf.programs.baselines.least_to_most import LeastToMost
    from raisf.programs.baselines.rag import RAG
    from raisf.programs.baselines.react import ReAct
    from raisf.programs.baselines.replug import REPLUG
    from raisf.programs.baselines.self_ask import SelfAsk
    from raisf.programs.baselines.self_rag import SelfRAG
    from raisf.programs.baselines.skr import SKR
    from raisf.programs.program import Program
    from raisf.programs.ra_isf import RAISF
    from raisf.programs.tracing import trace_with
    from raisf.retrieval.adapting import as_retriever
    from raisf.retrieval.engines.bm25 import BM25
    from raisf.retrieval.engines.colbert import ColBERT
    from raisf.retrieval.engines.dense import Dense
    from raisf.retrieval.engines.hybrid import Hybrid
    from raisf.retrieval.index import add_to_index, build_index, index, open_index, remove_from_index
    from raisf.retrieval.passage import Passage
    from raisf.retrieval.serving.remote import RemoteIndex
    from raisf.utils.errors import InputError, LMError, RaisfError

__version__ = "0.2.0.dev0"

__all__ = [
    "BM25",
    "GEPA",
    "MIPRO",
    "RAG",
    "RAISF",
    "REPLUG",
    "SKR",
    "BlendFilter",
    "BootstrapJudges",
    "Calibrate",
    "CoT",
    "CoTRAG",
    "ColBERT",
    "Dense",
    "Direct",
    "FinetuneJudges",
    "FitSKR",
    "Hybrid",
    "IRCoT",
    "InputError",
    "IterRetGen",
    "LMError",
    "LabeledJudges",
    "LeastToMost",
    "OutcomeJudges",
    "Passage",
    "ProbeJudges",
    "Program",
    "RaisfError",
    "RandomSearch",
    "ReAct",
    "RemoteIndex",
    "SelfAsk",
    "SelfRAG",
    "Together",
    "Training",
    "TuneRetriever",
    "Tuning",
    "add_to_index",
    "answer_accuracy",
    "answer_exact_match",
    "as_retriever",
    "build_index",
    "calibrate",
    "compare",
    "compile",
    "connect",
    "evaluate",
    "fit_confidence",
    "index",
    "load",
    "load_questions",
    "open_index",
    "remove_from_index",
    "save",
    "trace_with",
    "tune_retriever",
    "write_dataset",
    "write_world",
]


@functools.cache
def _homes() -> dict[str, str]:
    """By name the module that it lives in: the imports above, as they stand."""
    import ast
    import inspect

    tree = ast.parse(inspect.getsource(sys.modules[__name__]))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.name: node.module for node in found if (node.module or "").startswith("raisf.") for name in node.names}  # type: ignore[return-value]


def __getattr__(name: str) -> Any:
    home = None if name.startswith("_") else _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'raisf' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value  # so that __getattr__ is asked only once
    if home.startswith("raisf.programs."):
        program = importlib.import_module("raisf.programs.program").Program
        # compiled.save(folder) is what a DSPy user writes; what writes folders is above the programs.
        program.write_folder = program.write_folder or (lambda made, folder: __getattr__("save")(made, folder))
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
