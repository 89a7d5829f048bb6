"""Records as `raisf eval` leaves them, made by hand: quick, and as strange as a test wants them."""

from pathlib import Path
from typing import Any

from raisf.evaluation.records import meta_path
from raisf.utils.files import write_json, write_jsonl

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u202egnp.exe\u202c"
LONG = "long " * 4000


def passage(number: int, verdict: str | None, title: str = "") -> dict[str, Any]:
    judgement = {"verdict": verdict, "probability": 0.75, "readable": True} if verdict else None
    return {
        "pid": f"p{number}",
        "title": title or f"Title {number}",
        "text": "",
        "citation": "handbook.pdf, p. 3",
        "score": 1.5,
        "judgement": judgement,
    }


def node(question: str, answer: str, route: str = "passages", **more: Any) -> dict[str, Any]:
    plain = {"question": question, "depth": 0, "route": route, "answer": answer, "reason": "from 1 of 2 passages"}
    return plain | {"know": None, "passages": [], "steps": [], "sub_questions": [], "waits_for": [], **more}


def record(number: int, right: bool, **more: Any) -> dict[str, Any]:
    """A question of two hops, which is answered from its second passage; gold says that the first suffices."""
    question, answer = f"Which sea does river {number} reach?", "the North Sea" if right else "a lake"
    know = {"verdict": "unknown", "probability": 0.2, "readable": True}
    subs = [node(f"Where does river {number} end?", "the North Sea", evidence="It ends in the North Sea.")]
    root = node(question, answer, "decomposed" if number % 3 else "passages", know=know, sub_questions=subs)
    root["passages"] = [passage(1, "irrelevant"), passage(2, "relevant")]
    cost = {"lm_calls": 4 + number % 3, "prompt_tokens": 90, "completion_tokens": 9, "retrievals": 1, "seconds": 0.5}
    return {
        "id": f"q{number}",
        "question": question,
        "answers": ["the North Sea"],
        "kind": ("bridge", "lookup")[number % 2],
        "hops": 2,
        "gold": {"gold_pids": ["p1"], "known": True},
        "prediction": answer,
        "em": float(right),
        "f1": float(right),
        "accuracy": float(right),
        "route": root["route"],
        "k": 2,
        "recall": 1.0,
        "precision": 0.5,
        "cost": cost,
        "readable": True,
        "read": 4,
        "unreadable": int(number % 10 == 0),
        "error": None,
        "trace": {"system": "ra-isf", "root": root, "cost": cost, "read": 4, "failed": 0, "unreadable": 0},
        **more,
    }


def write_records(path: Path, records: list[dict[str, Any]]) -> Path:
    """A records' file with what says whose records they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(path, records)
    program = {"class": "raisf.programs.ra_isf.RAISF", "k": 5, "LM of know": "pocket"}
    write_json(meta_path(path), {"format": 1, "program": program, "test": {"n": len(records)}})
    return path


def write_report(folder: Path, runs: dict[str, list[dict[str, Any]]]) -> Path:
    """A report's folder as `raisf compare` leaves it, but for its tables."""
    files = {label: f"records/run-{number}.jsonl" for number, label in enumerate(runs)}
    for label, records in runs.items():
        write_records(folder / files[label], records)
    write_json(folder / "results.json", {"facts": {"language model": "pocket"}, "records": files})
    (folder / "report.html").write_text("<!doctype html><title>a report</title><h1>a report</h1>")
    return folder
