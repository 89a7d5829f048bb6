"""Programs as experiments run them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raisf.utils.errors import InputError

# RA-ISF compiled: how, and with which strategy; and the program that learns from the training questions besides.
COMPILED: dict[str, tuple[str, str | None]] = {
    "prompts": ("prompts", None),
    "prompts-random": ("prompts", "random"),
    "weights": ("weights", None),
    "both": ("both", None),
    "outcome": ("outcome", None),
    "probe": ("probe", None),
    "weights-all": ("weights", None),  # the answerers' too, where "weights" are the judges'
}
LEARNT = (*COMPILED, "skr-knn")
# A step of `Setting.then`: the judges' thresholds, fitted on the dev split for right answers.
THRESHOLDS = ("thresholds", {"aim": "answer"})
# Options of RA-ISF that decide which judges it has; it is compiled with them.
JUDGE_OPTIONS = ("know", "relevance", "sufficiency", "decomposition")
# RA-ISF's predictors by judge.
PREDICTORS = {"know": "know", "relevance": "relevant", "decomposition": "decompose"}
# The judges' bases beside the answering LM's own in RA-ISF's Table 3, where the pocket Llama answers.
SMALLER = ("pocket-tiny", "pocket-t5")


@dataclass(frozen=True)
class Setting:
    """A program as an experiment runs it.

    Attributes:
        program: A name of the registry, or one of `COMPILED`.
        options: Its constructor's.
        engine: The index's: "colbert", "bm25" or "dense"; the workspace's if not given.
        base: Whose weights the judges are, for "weights": the workspace's if not given.
        training: What else `compile` is told, for "weights".
        sampling: Options of the LM that answers; the workspace's own if empty.
        few_shot: Whether its predictors show demonstrations, as many at most as the judges of RA-ISF's prompts; where
            there are none to show, it cannot be run.
        tuned: Whether the index is a dense one, tuned to the LM (LSR).
        rows: Examples a judge, from twice as many training questions; None: as the workspace says, from all questions.
        then: What is compiled further, one after the other: each a `how` of `raisf.compile` and its options.
    """

    program: str
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: str | None = None
    base: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    few_shot: bool = False
    tuned: bool = False
    rows: int | None = None
    then: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    @property
    def system(self) -> str:
        """The program's name in the registry."""
        return "ra-isf" if self.program in COMPILED else self.program

    @property
    def learns(self) -> bool:
        """Whether training or dev questions decide on it."""
        return self.program in LEARNT or self.few_shot or self.tuned or bool(self.then)


def labels_in(parts: Sequence[str], rows: Collection[str]) -> list[str]:
    """The labels of rows in a list that was cut at every comma, those within labels too.

    Raises:
        InputError: A part belongs to no label.
    """
    found: list[str] = []
    while parts:
        tries = (", ".join(parts[:count]) for count in range(len(parts), 0, -1))
        label = next((one for one in tries if one in rows), None)
        if label is None:
            raise InputError(f"--only: no row {parts[0]!r}; choose of {'; '.join(rows)} (with commas between them)")
        found.append(label)
        parts = parts[label.count(", ") + 1 :]
    return found
