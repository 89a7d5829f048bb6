"""RA-ISF as a DSPy program: everything a newcomer needs, by one import.

    import raisf
    lm = raisf.connect("pocket")
    program = raisf.RAISF(raisf.open_index("indexes/mine"), k=5, max_depth=3)
    program.set_lm(lm)
    program(question="...").answer

A name is imported from its room when it is first used, so that `import raisf` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data.benchmark_files import write_dataset
    from data.errors import InputError, LMError, RaisfError
    from data.questions import load_questions
    from data.world_files import write_world
    from evaluation.runner import evaluate
    from lm.connect import connect
    from lm.training import Training
    from optimize.artifact import load, save
    from optimize.calibrate import calibrate
    from optimize.compile import compile
    from optimize.lsr import Tuning, tune_retriever
    from optimize.selection import answer_exact_match
    from programs.baselines.direct import Direct
    from programs.baselines.rag import RAG
    from programs.ra_isf import RAISF
    from retrieval.bm25 import BM25
    from retrieval.colbert import ColBERT
    from retrieval.dense import Dense
    from retrieval.hybrid import Hybrid
    from retrieval.index import add_to_index, build_index, open_index, remove_from_index
    from retrieval.passage import Passage
    from retrieval.remote import RemoteIndex

__version__ = "0.1.0"

__all__ = [
    "BM25",
    "RAG",
    "RAISF",
    "ColBERT",
    "Dense",
    "Direct",
    "Hybrid",
    "InputError",
    "LMError",
    "Passage",
    "RaisfError",
    "RemoteIndex",
    "Training",
    "Tuning",
    "add_to_index",
    "answer_exact_match",
    "build_index",
    "calibrate",
    "compile",
    "connect",
    "evaluate",
    "load",
    "load_questions",
    "open_index",
    "remove_from_index",
    "save",
    "tune_retriever",
    "write_dataset",
    "write_world",
]

# The room and module where each name lives.
_HOMES = {
    "BM25": "retrieval.bm25",
    "RAG": "programs.baselines.rag",
    "RAISF": "programs.ra_isf",
    "ColBERT": "retrieval.colbert",
    "Dense": "retrieval.dense",
    "Direct": "programs.baselines.direct",
    "Hybrid": "retrieval.hybrid",
    "InputError": "data.errors",
    "LMError": "data.errors",
    "Passage": "retrieval.passage",
    "RaisfError": "data.errors",
    "RemoteIndex": "retrieval.remote",
    "add_to_index": "retrieval.index",
    "answer_exact_match": "optimize.selection",
    "build_index": "retrieval.index",
    "calibrate": "optimize.calibrate",
    "compile": "optimize.compile",
    "Training": "lm.training",
    "Tuning": "optimize.lsr",
    "connect": "lm.connect",
    "evaluate": "evaluation.runner",
    "load": "optimize.artifact",
    "load_questions": "data.questions",
    "open_index": "retrieval.index",
    "remove_from_index": "retrieval.index",
    "save": "optimize.artifact",
    "write_dataset": "data.benchmark_files",
    "tune_retriever": "optimize.lsr",
    "write_world": "data.world_files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'raisf' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # so that __getattr__ is asked only once
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
