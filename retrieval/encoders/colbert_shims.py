"""Every correction that colbert-ai 0.2.22 needs on the libraries of today, in one place.

Each function says what goes wrong without it; tests/retrieval/test_colbert_shims.py shows that it still does, so an
update of colbert-ai that mends one makes a test fail, and the function can go.
"""

import contextlib
import functools
import importlib
import importlib.util
import logging
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from raisf.lm.local.soundness import check_weights
from raisf.utils.cache import cache_folder
from raisf.utils.errors import RaisfError
from raisf.utils.leftovers import alone

logger = logging.getLogger(__name__)
_lock, _compiling = threading.Lock(), threading.Lock()
_PLACE = "TORCH_EXTENSIONS_DIR"
_COMPILING = "loading PLAID's C++ extensions (the first time they are compiled: minutes)"


def colbert() -> ModuleType:
    """The colbert package, imported once with every correction applied."""
    with _lock:
        return _colbert()


PARTS = (
    "modeling.checkpoint",
    "modeling.tokenization",
    "indexing.codecs.residual",
    "indexing.utils",
    "infra",
    "search.index_storage",
)
"""What of colbert-ai is used."""


@functools.cache
def _colbert() -> ModuleType:
    allow_missing_git()
    with kept_start_method(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = import_parts()
    finish_models()
    postpone_compiling()
    stay_quiet()
    search_on_cpu()
    return package


def import_parts() -> ModuleType:
    """`import colbert` imports its trainer and indexer: peft, faiss and what they bring, 300 modules for no search.

    So the package stands there without having run its own `__init__`, which `_Package` runs for who wants its names.
    """
    if "colbert" not in sys.modules and (spec := importlib.util.find_spec("colbert")) is not None:
        sys.modules["colbert"] = importlib.util.module_from_spec(spec)
        sys.modules["colbert"].__class__ = _Package
    for part in PARTS:
        importlib.import_module(f"colbert.{part}")
    return sys.modules["colbert"]


class _Package(ModuleType):
    """Runs its `__init__` when a name is asked for that no part of it has set: `from colbert import Searcher`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None and self.__spec__.loader is not None
        with kept_start_method():
            self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def allow_missing_git() -> None:
    """`import colbert` imports GitPython, which raises where no git program is installed."""
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")


class kept_start_method:
    """`import colbert` sets the start method of multiprocessing to "spawn" for the whole process: set it back."""

    def __enter__(self) -> None:
        self.method = multiprocessing.get_start_method(allow_none=True)

    def __exit__(self, *error: object) -> None:
        multiprocessing.set_start_method(self.method, force=True)


def finish_models() -> None:
    """Its model class never calls `post_init`, so transformers 5 misses `all_tied_weights_keys` and cannot load it.

    It does not ask, either, what was missing among the weights, in whose place there are random ones, and computes in
    half precision where they are saved so, which no autocast widens again.
    """
    from colbert.modeling import base_colbert

    make = base_colbert.class_factory

    def class_factory(name_or_path: str) -> type:
        base: Any = make(name_or_path)

        class Finished(base):
            def __init__(self, config: Any, colbert_config: Any):
                super().__init__(config, colbert_config)
                self.post_init()

            @classmethod
            def from_pretrained(cls, name_or_path: str, colbert_config: Any) -> Any:
                transformers: Any = super(base, cls)  # past colbert-ai's own, which does not tell what was read
                model, loaded = transformers.from_pretrained(
                    name_or_path,
                    colbert_config=colbert_config,
                    dtype="float32",
                    trust_remote_code=False,
                    output_loading_info=True,
                )
                check_weights(model, loaded, Path(name_or_path))
                return model

        return Finished

    base_colbert.class_factory = class_factory


def postpone_compiling() -> None:
    """A checkpoint compiles a C++ extension when it is loaded, though only PLAID searches with it: wait for PLAID."""
    from colbert.modeling.colbert import ColBERT

    ColBERT.loaded_extensions = True


@contextlib.contextmanager
def own_extensions() -> Iterator[None]:
    """Where PyTorch keeps compiled extensions it waits for ever for a process that was killed while it compiled.

    Its mark is a file, which outlives the process. Ours are kept apart, one process at a time goes there, and so a mark
    that it finds is a dead one's.
    """
    folder = cache_folder() / "torch_extensions" / f"py{sys.version_info.major}{sys.version_info.minor}"
    before = os.environ.get(_PLACE)
    with alone(folder / "raisf.lock"):
        for mark in folder.glob("*/lock"):
            mark.unlink()
        os.environ[_PLACE] = str(folder)
        try:
            yield
        finally:
            del os.environ[_PLACE]
            if before is not None:
                os.environ[_PLACE] = before


def compile_extensions() -> None:
    """Compiles (once per machine, some minutes) or loads the four C++ extensions that PLAID searches with.

    Raises:
        RaisfError: There is no C++ compiler, or it fails.
    """
    colbert()
    with _compiling:
        _compile()


@functools.cache
def _compile() -> None:
    from colbert.modeling.colbert import ColBERT
    from colbert.search.index_storage import IndexScorer
    from colbert.search.strided_tensor import StridedTensor

    from raisf.utils.display import console

    del ColBERT.loaded_extensions
    try:
        with console(stderr=True).status(_COMPILING), own_extensions():
            for owner in (ColBERT, IndexScorer, StridedTensor):
                owner.try_load_torch_extensions(False)
    except (RuntimeError, OSError, ImportError) as error:
        raise RaisfError(
            "PLAID search needs a C++ compiler (g++) once, to compile colbert-ai's extensions, and that failed: "
            f"{str(error).strip().splitlines()[-1]}; install one, or build the index with search='exact'"
        ) from error
    finally:
        ColBERT.loaded_extensions = True


def stay_quiet() -> None:
    """It reports by printing to standard output, where `--json` prints, and by progress bars of single steps."""
    import tqdm

    def log(*words: object, condition: bool = True, pad: bool = False) -> None:
        logger.debug(" ".join(str(word) for word in words).strip())

    silent = SimpleNamespace(tqdm=functools.partial(tqdm.tqdm, disable=True))
    for module in [module for name, module in sys.modules.items() if name.startswith("colbert.")]:
        if hasattr(module, "print_message"):
            vars(module)["print_message"] = log
        if vars(module).get("tqdm") is tqdm:
            vars(module)["tqdm"] = silent


def search_on_cpu() -> None:
    """With a GPU in sight it compiles CUDA kernels, which needs nvcc; the model itself still runs on the GPU."""
    from colbert.infra.config.settings import RunSettings

    RunSettings.total_visible_gpus = 0


def without_amp(checkpoint: Any) -> Any:
    """A checkpoint runs under an autocast of its own: on a GPU that makes float16 of any precision, else it warns."""
    checkpoint.amp_manager.activated = False
    return checkpoint
