"""The names of the experiments, and which of them each option of `raisf experiment` is for."""

from collections.abc import Mapping
from typing import Any

from raisf.experiments import titles
from raisf.utils.errors import InputError

PAPERS = (*titles.RAISF, *titles.BLENDFILTER)
REAL, SIZED = "real", "data-efficiency"
NAMES = tuple(titles.TITLES)
VARIANTS, OF_ONE = ("weights", "prompts", "zero-shot"), ("table2", "fig2", "fig3", "fig4", "all")
OF_RAISF = ("table1", "table2", "fig2", "table4", "table5", "fig3", "fig4", "table7", "blendfilter-retrieval")
ONLY_FOR = {
    "--bases": ("table3", "all"),
    "--sizes": (SIZED,),
    "--ways": (SIZED,),
    "--program": (REAL, *OF_RAISF),
    "--no-judges": (REAL,),
    "--page": (REAL, SIZED),
    "--variant": OF_ONE,
    "--zero-shot": ("table1", "blendfilter-main", "all"),
}
NOT_FOR = {"--rows": (SIZED,), "--teacher": (SIZED,), "--only": ("all", SIZED)}
INSTEAD = {"--rows": "--sizes", "--bases": "--base"}


def listed() -> str:
    """The names with their titles, a line each, for the help."""
    groups = {
        "RA-ISF's tables and figures": titles.RAISF,
        "BlendFilter's": titles.BLENDFILTER,
        "what is from no paper": {**titles.OURS, REAL: "Systems, judges and ways of compiling on real text"},
    }
    lines = (
        (f"names of {of}:", *(f"  {name:<22} {title}" for name, title in one.items())) for of, one in groups.items()
    )
    return "\n".join(line for group in lines for line in group)


def check_told(name: str, told: Mapping[str, Any]) -> None:
    """Tells of an option that the experiment does not have, as nobody is to think that it did something."""
    for one in (one for one, was in told.items() if was):
        # Those that show one RA-ISF have no few-shot rows: who asks for zero-shot there asks for another RA-ISF.
        instead = {**INSTEAD, "--zero-shot": "--variant zero-shot" if name in OF_ONE else "--only"}.get(one)
        if one == "--zero-shot" and name.startswith("blendfilter-") and name != "blendfilter-main":
            raise InputError(f"{one} is not for {name}, whose rows are all zero-shot: leave it out")
        remedy = f"leave it out{f', or give {instead}' if instead else ''}"
        if name in NOT_FOR.get(one, ()):
            raise InputError(f"{one} is not for {name}: {remedy}")
        if name not in (having := ONLY_FOR.get(one, (name,))):
            raise InputError(f"{one} is for {', '.join(having)}, not for {name}: {remedy}")
