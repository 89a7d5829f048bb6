"""What a result was made from, so that it can be made again: LM, index, seeds, versions, command, date."""

import datetime
import itertools
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf import __version__

if TYPE_CHECKING:
    import dspy

    from raisf.experiments.opening import LMChoice

# Of the libraries whose version can change a result.
LIBRARIES = ("dspy", "torch", "transformers", "colbert-ai", "bm25s")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"(://[^?#\s]*)[?#][^\s'\"]*")


def provenance(
    programs: "Sequence[dspy.Module]", test: str, answers: Iterable[Path], command: str = ""
) -> dict[str, Any]:
    """The facts of a report, by name; None for what does not hold.

    Args:
        programs: That answered.
        test: What the questions are.
        answers: The records' files: the last one written dates the result, so that showing it again changes nothing.
        command: What was called.
    """
    return {
        "test": test,
        "language model": ", ".join(_models(programs)) or None,
        "index": ", ".join(_indexes(programs)) or None,
        "seed": ", ".join(map(str, _seeds(programs))) or None,
        "answered": answered(answers),
        "command": without_credentials(command) or None,
        "raisf": __version__,
        "versions": versions(),
    }


def spoken_to(lm: "LMChoice") -> str:
    """Which language model is asked, and what decides its answers besides.

    Raises:
        InputError: As `LMChoice.open`.
    """
    precision = getattr(lm.open(), "precision", None)
    most = f"{lm.max_tokens} tokens an answer at most" if lm.max_tokens else None
    told = [lm.spec, most, f"temperature {lm.temperature or 0:g}", precision and f"in {precision}"]
    return ", ".join(filter(None, told))


def versions() -> str:
    """Python's version and the libraries', in a line."""
    return ", ".join([f"python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES)])


def answered(answers: Iterable[Path]) -> str | None:
    """When the last answer was written, in UTC."""
    latest = max((path.stat().st_mtime for path in answers if path.is_file()), default=None)
    if latest is None:
        return None
    return datetime.datetime.fromtimestamp(latest, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def without_credentials(text: str) -> str:
    """A text without the user names, passwords and queries of its URLs."""
    return _QUERY.sub(r"\1", _CREDENTIALS.sub("", text))


def _models(programs: "Sequence[dspy.Module]") -> list[str]:
    from raisf.evaluation.local_lms import lms_of

    return list(dict.fromkeys(str(lm.model) for program in programs for lm in lms_of(program) if lm is not None))


def _indexes(programs: "Sequence[dspy.Module]") -> list[str]:
    """The folders or addresses that are searched, or what finds there, each once."""
    from raisf.evaluation.seen import retrievers_of
    from raisf.retrieval.passage import found_by

    found: dict[Any, str] = {}
    for one in itertools.chain.from_iterable(map(retrievers_of, programs)):
        path = getattr(one, "path", None)
        name = without_credentials(str(path or getattr(one, "url", None) or found_by(one)))
        found.setdefault(Path(str(path)).resolve() if path else name, name)  # artifacts each have a way to it
    return list(found.values())


def _seeds(programs: "Sequence[dspy.Module]") -> list[Any]:
    reports: list[Mapping[str, Any]] = [getattr(program, "compile_report", None) or {} for program in programs]
    return list(dict.fromkeys(seed for report in reports if (seed := report.get("seed")) is not None))
