"""The papers' own figures, as they print them, to be shown beside ours: percent, by what our tables call the rows.

Sources: Liu et al. 2024, arXiv 2403.06840 (RA-ISF); Wang et al. 2024, arXiv 2402.11129 (BlendFilter).
"""

Figures = dict[str, dict[str, float]]

FEW_SHOT = ", few-shot"
"""What the label of a program's row with demonstrations ends in."""
SETS = {
    "nq": "NQ",
    "triviaqa": "TriviaQA",
    "hotpotqa": "HotpotQA",
    "strategyqa": "StrategyQA",
    "2wiki": "2WikiMultihopQA",
}


def _sets(*values: float | None) -> dict[str, float]:
    return {name: value for name, value in zip(SETS, values, strict=True) if value is not None}


# RA-ISF, Table 1: exact match; accuracy for StrategyQA.
TABLE_1: dict[str, Figures] = {
    "GPT-3.5": {
        "direct": _sets(29.2, 67.3, 22.1, 65.2, 23.6),
        "least-to-most": _sets(32.5, 68.8, 30.2, 68.5, 31.3),
        "ircot": _sets(32.9, 66.8, 33.7, 67.9, 31.1),
        "rag": _sets(31.7, 64.2, 32.2, 64.7, 28.4),
        "skr-knn": _sets(33.8, 67.5, 34.2, 70.1, 32.5),
        "iter-retgen": _sets(None, None, 45.2, 72.3, 34.8),
        "ra-isf, weights": _sets(40.2, 76.1, 46.5, 75.9, 36.1),
    },
    "Llama2-13B": {
        "direct": _sets(17.4, 38.5, 14.0, 52.2, 13.3),
        "least-to-most": _sets(22.8, 45.2, 15.8, 60.5, 20.1),
        "ircot": _sets(23.4, 48.3, 17.1, 59.1, 21.9),
        "rag": _sets(21.6, 47.0, 17.6, 60.8, 22.4),
        "skr-knn": _sets(20.8, 55.4, 18.9, 61.6, 23.2),
        "replug, tuned index": _sets(23.8, 58.6, 21.8, 62.9, 25.7),
        "self-rag": _sets(28.4, 69.3, 25.4, 67.2, 30.2),
        "ra-isf, weights": _sets(31.3, 71.4, 28.9, 66.7, 31.7),
    },
}
# RA-ISF, Table 2: GPT-3.5.
TABLE_2: Figures = {
    "RA-ISF": _sets(40.2, 76.1, 46.5, None, None),
    "no self-knowledge": _sets(37.9, 72.3, 40.1, None, None),
    "no relevance": _sets(35.8, 70.3, 34.7, None, None),
    "no decomposition": _sets(34.6, 71.5, 34.9, None, None),
}
# RA-ISF, Table 3: GPT-3.5 answers, the judges are the row's.
TABLE_3: Figures = {
    "the paper's Llama2-7B": _sets(40.2, 76.1, 46.5, 75.9, 36.1),
    "the paper's T5-780M": _sets(39.6, 74.8, 45.8, 74.7, 35.3),
    "the paper's GPT-3.5 itself": _sets(42.3, 76.8, 47.7, 76.5, 36.9),
}
# RA-ISF, Table 4: GPT-3.5; not percent but a question's retrievals and sub-questions, the question itself among them.
TABLE_4: Figures = {
    "retrievals": _sets(2.8, 2.6, None, 3.2, None),
    "questions": _sets(4.5, 4.1, None, 5.1, None),
}
# RA-ISF, Table 5: agreement with people, and with GPT-4.
TABLE_5: Figures = {
    "know": {"GPT-4": 97.0},
    "relevance": {"people": 93.5, "GPT-4": 95.0},
    "decomposition": {"people": 89.5, "GPT-4": 87.0},
}
# RA-ISF, Tables 6 and 7 together: of the answers given from memory, how many are right. The one figure of a route.
TABLE_7_DIRECT: Figures = {"right": _sets(39.0, 78.0, 42.0, 79.0, 33.0)}
# BlendFilter, Table 2, GPT-3.5-turbo-instruct: exact match; accuracy for StrategyQA.
BLENDFILTER_MAIN: Figures = {
    "direct": {"hotpotqa": 30.4, "2wiki": 28.2, "strategyqa": 64.8},
    "cot": {"hotpotqa": 30.2, "2wiki": 30.0, "strategyqa": 70.0},
    "rag": {"hotpotqa": 41.2, "2wiki": 31.8, "strategyqa": 63.4},
    "cot-rag": {"hotpotqa": 43.4, "2wiki": 31.8, "strategyqa": 61.6},
    "react": {"hotpotqa": 36.0, "2wiki": 37.4, "strategyqa": 65.8},
    "self-ask": {"hotpotqa": 36.4, "2wiki": 33.4, "strategyqa": 63.8},
    "iter-retgen": {"hotpotqa": 45.0, "2wiki": 32.8, "strategyqa": 69.2},
    "blendfilter": {"hotpotqa": 50.8, "2wiki": 40.4, "strategyqa": 74.4},
}
# The same table: token F1, of which StrategyQA has none.
BLENDFILTER_MAIN_F1: Figures = {
    "direct": {"hotpotqa": 41.0, "2wiki": 31.8},
    "cot": {"hotpotqa": 43.2, "2wiki": 40.3},
    "rag": {"hotpotqa": 53.7, "2wiki": 37.1},
    "cot-rag": {"hotpotqa": 55.8, "2wiki": 39.6},
    "react": {"hotpotqa": 47.5, "2wiki": 45.0},
    "self-ask": {"hotpotqa": 48.1, "2wiki": 41.6},
    "iter-retgen": {"hotpotqa": 57.2, "2wiki": 43.6},
    "blendfilter": {"hotpotqa": 62.4, "2wiki": 47.0},
}
# BlendFilter, with BM25.
BLENDFILTER_BM25: Figures = {"cot-rag": {"hotpotqa": 34.8}, "blendfilter": {"hotpotqa": 42.0}}
BLENDFILTER_BM25_F1: Figures = {"cot-rag": {"hotpotqa": 47.0}, "blendfilter": {"hotpotqa": 54.7}}


def sets_of(figures: Figures) -> list[str]:
    """The data sets that a table of a paper has, in its order."""
    return [name for name in SETS if any(name in row for row in figures.values())]


def figure_of(figures: Figures, row: str, data: str | None, *, demonstrated: bool = False) -> float | str | None:
    """The paper's figure of a row, to stand beside ours.

    Args:
        figures: A table of the paper.
        row: The row's label.
        data: The data set ours was measured on; None where it is the closed world, of which no paper knows. Beside that
            the row's mean over the table's sets stands, marked where the row has not all of them.
        demonstrated: Whether the paper's prompts had demonstrations: a program's figure is its few-shot row's as well.

    Returns:
        None where the paper has no figure for the row on this data set.
    """
    found = figures.get(row.removesuffix(FEW_SHOT) if demonstrated else row, {})
    if data is not None:
        return found.get(data)
    if not found:
        return None
    mean, sets = round(sum(found.values()) / len(found), 2), len(sets_of(figures))
    return mean if len(found) == sets else f"{mean:.2f} ({len(found)} of {sets} sets)"


def shown_for(figures: Figures, data: str | None) -> str:
    """Which of the paper's figures `figure_of` gives, for a table's text."""
    sets = sets_of(figures)
    if data in sets:
        return f"on {SETS[data]}"
    if data is not None:
        return f"of which there is none for {SETS.get(data, data)}"
    return f"on {SETS[sets[0]]}" if len(sets) == 1 else f"the mean over its {len(sets)} sets"
