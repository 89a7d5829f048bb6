"""What decides on programs that are compiled further: the base that a probe reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import raisf
from raisf.experiments.opening import LMChoice
from raisf.experiments.real import RealWorkspace
from raisf.experiments.real_rows import ROWS

BORN = [{"question": "Where was Ada born?", "answer": "Ulm"}]


def test_probes_beside_given_weights_are_of_the_base_that_was_asked_for(
    data: Callable[..., Path], tmp_path: Path
) -> None:
    """Those of one base were shown as the next one's."""
    folder, artifact = data("hotpotqa", test=BORN), tmp_path / "artifact"
    program = raisf.RAISF()
    program.set_lm(raisf.connect("pocket"))
    raisf.save(program, artifact)

    def path(label: str, base: str | None) -> Path:
        options: dict[str, Any] = {"lm": LMChoice("pocket"), "engine": "bm25", "base": base}
        space = RealWorkspace(tmp_path / "out", folder, given={"weights-all": artifact}, **options)
        return space.learning.path_of(ROWS[label])

    bases = (None, "pocket", "pocket-tiny")
    assert len({path("probes", base) for base in bases}) == 3
    assert len({path("prompts-judges", base) for base in bases}) == 1, "no base has a part in it"
