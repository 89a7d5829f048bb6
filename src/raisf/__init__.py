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
    from raisf.data.datasets.files import write_dataset
    from raisf.data.questions import load_questions
    from raisf.data.world.files import write_world
    from raisf.evaluation.runner import evaluate
    from raisf.lm.connect import connect
    from raisf.lm.finetune.training import Training
    from raisf.optimize.artifact import load, save
    from raisf.optimize.compile import compile
    from raisf.optimize.optimizers.calibrate import Calibrate, calibrate
    from raisf.optimize.optimizers.few_shot import BootstrapJudges, LabeledJudges, RandomSearch
    from raisf.optimize.optimizers.finetune import FinetuneJudges
    from raisf.optimize.optimizers.fit_skr import FitSKR
    from raisf.optimize.optimizers.gepa import GEPA
    from raisf.optimize.optimizers.lsr import TuneRetriever, Tuning, tune_retriever
    from raisf.optimize.optimizers.mipro import MIPRO
    from raisf.optimize.optimizers.selection import answer_exact_match
    from raisf.programs.baselines.direct import Direct
    from raisf.programs.baselines.rag import RAG
    from raisf.programs.ra_isf import RAISF
    from raisf.retrieval.adapting import as_retriever
    from raisf.retrieval.engines.bm25 import BM25
    from raisf.retrieval.engines.colbert import ColBERT
    from raisf.retrieval.engines.dense import Dense
    from raisf.retrieval.engines.hybrid import Hybrid
    from raisf.retrieval.index import add_to_index, build_index, index, open_index, remove_from_index
    from raisf.retrieval.passage import Passage
    from raisf.retrieval.serving.remote import RemoteIndex
    from raisf.utils.errors import InputError, LMError, RaisfError

__version__ = "0.1.0"

__all__ = [
    "BM25",
    "GEPA",
    "MIPRO",
    "RAG",
    "RAISF",
    "BootstrapJudges",
    "Calibrate",
    "ColBERT",
    "Dense",
    "Direct",
    "FinetuneJudges",
    "FitSKR",
    "Hybrid",
    "InputError",
    "LMError",
    "LabeledJudges",
    "Passage",
    "RaisfError",
    "RandomSearch",
    "RemoteIndex",
    "Training",
    "TuneRetriever",
    "Tuning",
    "add_to_index",
    "answer_exact_match",
    "as_retriever",
    "build_index",
    "calibrate",
    "compile",
    "connect",
    "evaluate",
    "index",
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
    "LabeledJudges": "raisf.optimize.optimizers.few_shot",
    "BootstrapJudges": "raisf.optimize.optimizers.few_shot",
    "RandomSearch": "raisf.optimize.optimizers.few_shot",
    "MIPRO": "raisf.optimize.optimizers.mipro",
    "GEPA": "raisf.optimize.optimizers.gepa",
    "FinetuneJudges": "raisf.optimize.optimizers.finetune",
    "FitSKR": "raisf.optimize.optimizers.fit_skr",
    "TuneRetriever": "raisf.optimize.optimizers.lsr",
    "Calibrate": "raisf.optimize.optimizers.calibrate",
    "BM25": "raisf.retrieval.engines.bm25",
    "RAG": "raisf.programs.baselines.rag",
    "RAISF": "raisf.programs.ra_isf",
    "ColBERT": "raisf.retrieval.engines.colbert",
    "Dense": "raisf.retrieval.engines.dense",
    "Direct": "raisf.programs.baselines.direct",
    "Hybrid": "raisf.retrieval.engines.hybrid",
    "InputError": "raisf.utils.errors",
    "LMError": "raisf.utils.errors",
    "Passage": "raisf.retrieval.passage",
    "RaisfError": "raisf.utils.errors",
    "RemoteIndex": "raisf.retrieval.serving.remote",
    "add_to_index": "raisf.retrieval.index",
    "as_retriever": "raisf.retrieval.adapting",
    "index": "raisf.retrieval.index",
    "answer_exact_match": "raisf.optimize.optimizers.selection",
    "build_index": "raisf.retrieval.index",
    "calibrate": "raisf.optimize.optimizers.calibrate",
    "compile": "raisf.optimize.compile",
    "Training": "raisf.lm.finetune.training",
    "Tuning": "raisf.optimize.optimizers.lsr",
    "connect": "raisf.lm.connect",
    "evaluate": "raisf.evaluation.runner",
    "load": "raisf.optimize.artifact",
    "load_questions": "raisf.data.questions",
    "open_index": "raisf.retrieval.index",
    "remove_from_index": "raisf.retrieval.index",
    "save": "raisf.optimize.artifact",
    "write_dataset": "raisf.data.datasets.files",
    "tune_retriever": "raisf.optimize.optimizers.lsr",
    "write_world": "raisf.data.world.files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'raisf' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # so that __getattr__ is asked only once
    if _HOMES[name].startswith("raisf.programs."):
        program = importlib.import_module("raisf.programs.program").Program
        # compiled.save(folder) is what a DSPy user writes; what writes folders is above the programs.
        program.write_folder = program.write_folder or (lambda made, folder: __getattr__("save")(made, folder))
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
