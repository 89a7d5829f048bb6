"""The papers' own figures, as they print them, to be shown beside ours: percent, by what our tables call the rows.

Sources: Liu et al. 2024, arXiv 2403.06840 (RA-ISF); Wang et al. 2024, arXiv 2402.11129 (BlendFilter), whose tables
are numbered as where the one that tells systems apart comes first; in copies where it comes last they are one lower.
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


def _blendfilter(hotpotqa: float, *others: float) -> dict[str, float]:
    """Of its sets, which it has in another order; F1 has no third, and some tables have the first alone."""
    return dict(zip(("hotpotqa", "2wiki", "strategyqa"), (hotpotqa, *others), strict=False))


# RA-ISF, Table 1: exact match; accuracy for StrategyQA. On TriviaQA Llama2-13B's direct, rag and self-rag are equal to
# those of Self-RAG's own Table 2, which counts an answer that contains a gold one.
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
    "direct": _sets(29.2, 67.3, 22.1, None, None),
    "rag": _sets(31.7, 64.2, 32.2, None, None),
    "least-to-most": _sets(32.5, 68.8, 30.2, None, None),
    "RA-ISF": _sets(40.2, 76.1, 46.5, None, None),
    "no self-knowledge": _sets(37.9, 72.3, 40.1, None, None),
    "no relevance": _sets(35.8, 70.3, 34.7, None, None),
    "no decomposition": _sets(34.6, 71.5, 34.9, None, None),
}
# RA-ISF, Table 3: GPT-3.5 answers, the judges are the row's. The last is "GPT-3" in the table, ChatGPT in appendix F.
TABLE_3: Figures = {
    "the paper's Llama2-7B": _sets(40.2, 76.1, 46.5, 75.9, 36.1),
    "the paper's T5-780M": _sets(39.6, 74.8, 45.8, 74.7, 35.3),
    "the paper's GPT-3.5": _sets(42.3, 76.8, 47.7, 76.5, 36.9),
}
# RA-ISF, Table 4: not percent but a question's retrievals and sub-questions, the question itself among them.
TABLE_4: dict[str, Figures] = {
    "GPT-3.5": {
        "retrievals": _sets(2.8, 2.6, None, 3.2, None),
        "questions": _sets(4.5, 4.1, None, 5.1, None),
    },
    "Llama2-13B": {
        "retrievals": _sets(3.4, 2.9, None, 3.6, None),
        "questions": _sets(5.3, 4.0, None, 6.8, None),
    },
}
# RA-ISF, Table 5: agreement with people, and with GPT-4.
TABLE_5: Figures = {
    "know": {"GPT-4": 97.0},
    "relevance": {"people": 93.5, "GPT-4": 95.0},
    "decomposition": {"people": 89.5, "GPT-4": 87.0},
}
# RA-ISF, Table 6: test questions.
TABLE_6 = _sets(7830, 17210, 7405, 1780, 2935)
# RA-ISF, Table 7: GPT-3.5; the share of the test questions that each module settles, by what our routes are called.
TABLE_7: Figures = {
    "direct": _sets(65.8, 71.1, 24.3, 52.1, 31.5),
    "passages": _sets(21.5, 16.5, 32.8, 24.7, 38.3),
    "decomposed": _sets(12.7, 12.4, 42.9, 23.2, 30.2),
}
# The same table: how many of these are right. No copy at hand lets one read HotpotQA's two that are missing (2,682
# together, by Tables 1 and 6); of StrategyQA's two are read so that they add up to these.
TABLE_7_CORRECT: Figures = {
    "direct": _sets(2018, 9586, 761, 732, 308),
    "passages": _sets(705, 1809, None, 337, 373),
    "decomposed": _sets(425, 1702, None, 282, 379),
}
# The two as the share that is right of what a module settles.
TABLE_7_RIGHT: Figures = {
    route: {name: round(1e4 * count / (TABLE_7[route][name] * TABLE_6[name]), 1) for name, count in counts.items()}
    for route, counts in TABLE_7_CORRECT.items()
}
# BlendFilter, Tables 2 to 4 (GPT-3.5-turbo-instruct, Vicuna 1.5-13b, Qwen-7b): exact match; accuracy for StrategyQA.
BLENDFILTER_MAIN: dict[str, Figures] = {
    "GPT-3.5": {
        "direct": _blendfilter(30.4, 28.2, 64.8),
        "cot": _blendfilter(30.2, 30.0, 70.0),
        "rag": _blendfilter(41.2, 31.8, 63.4),
        "cot-rag": _blendfilter(43.4, 31.8, 61.6),
        "react": _blendfilter(36.0, 37.4, 65.8),
        "self-ask": _blendfilter(36.4, 33.4, 63.8),
        "iter-retgen": _blendfilter(45.0, 32.8, 69.2),
        "blendfilter": _blendfilter(50.8, 40.4, 74.4),
    },
    "Vicuna-13B": {
        "direct": _blendfilter(20.2, 24.6, 60.4),
        "cot": _blendfilter(22.8, 19.0, 66.0),
        "rag": _blendfilter(33.6, 21.0, 62.4),
        "cot-rag": _blendfilter(36.2, 20.6, 64.6),
        "react": _blendfilter(33.2, 21.6, 58.8),
        "self-ask": _blendfilter(36.1, 25.0, 61.8),  # no share of 500; the table's gain over it says 36.1 too
        "iter-retgen": _blendfilter(36.6, 25.2, 66.8),
        "blendfilter": _blendfilter(39.6, 28.6, 67.2),
    },
    "Qwen-7B": {
        "direct": _blendfilter(14.4, 18.2, 63.0),
        "cot": _blendfilter(15.0, 18.0, 65.8),
        "rag": _blendfilter(18.0, 8.4, 57.2),
        "cot-rag": _blendfilter(20.6, 21.0, 60.4),
        "react": _blendfilter(14.2, 15.8, 59.2),
        "self-ask": _blendfilter(20.6, 10.6, 59.6),
        "iter-retgen": _blendfilter(24.4, 20.0, 61.2),
        "blendfilter": _blendfilter(31.4, 24.0, 65.6),
    },
}
# The same tables: token F1, of which StrategyQA has none.
BLENDFILTER_MAIN_F1: dict[str, Figures] = {
    "GPT-3.5": {
        "direct": _blendfilter(41.0, 31.8),
        "cot": _blendfilter(43.2, 40.3),
        "rag": _blendfilter(53.7, 37.1),
        "cot-rag": _blendfilter(55.8, 39.6),
        "react": _blendfilter(47.5, 45.0),
        "self-ask": _blendfilter(48.1, 41.6),
        "iter-retgen": _blendfilter(57.2, 43.6),
        "blendfilter": _blendfilter(62.4, 47.0),
    },
    "Vicuna-13B": {
        "direct": _blendfilter(26.7, 28.8),
        "cot": _blendfilter(34.4, 27.9),
        "rag": _blendfilter(44.3, 28.4),
        "cot-rag": _blendfilter(48.8, 30.2),
        "react": _blendfilter(46.3, 32.3),
        "self-ask": _blendfilter(46.9, 37.6),
        "iter-retgen": _blendfilter(48.4, 35.5),
        "blendfilter": _blendfilter(52.7, 37.8),
    },
    "Qwen-7B": {
        "direct": _blendfilter(23.8, 24.4),
        "cot": _blendfilter(24.5, 24.6),
        "rag": _blendfilter(31.0, 20.0),
        "cot-rag": _blendfilter(30.5, 29.2),
        "react": _blendfilter(23.9, 24.1),
        "self-ask": _blendfilter(30.7, 15.4),
        "iter-retgen": _blendfilter(36.4, 29.7),
        "blendfilter": _blendfilter(44.2, 31.2),
    },
}
# BlendFilter, Table 5: GPT-3.5-turbo-instruct with BM25 on HotpotQA.
BLENDFILTER_BM25: Figures = {
    "direct": _blendfilter(30.4),
    "cot": _blendfilter(30.2),
    "rag": _blendfilter(34.2),
    "cot-rag": _blendfilter(34.8),
    "react": _blendfilter(28.0),
    "self-ask": _blendfilter(29.0),
    "iter-retgen": _blendfilter(35.6),
    "blendfilter": _blendfilter(42.0),
}
BLENDFILTER_BM25_F1: Figures = {
    "direct": _blendfilter(41.0),
    "cot": _blendfilter(43.2),
    "rag": _blendfilter(46.2),
    "cot-rag": _blendfilter(47.0),
    "react": _blendfilter(37.1),
    "self-ask": _blendfilter(39.3),
    "iter-retgen": _blendfilter(48.8),
    "blendfilter": _blendfilter(54.7),
}
# BlendFilter, Table 6: GPT-3.5-turbo-instruct on HotpotQA, without each query, with ColBERTv2 and with BM25.
BLENDFILTER_QUERIES: Figures = {
    "blendfilter": _blendfilter(50.8),
    "without q": _blendfilter(47.6),
    "without q_ex": _blendfilter(44.2),
    "without q_in": _blendfilter(49.6),
    "blendfilter, BM25": _blendfilter(42.0),
    "without q, BM25": _blendfilter(41.0),
    "without q_ex, BM25": _blendfilter(38.8),
    "without q_in, BM25": _blendfilter(39.8),
}
BLENDFILTER_QUERIES_F1: Figures = {
    "blendfilter": _blendfilter(62.4),
    "without q": _blendfilter(60.4),
    "without q_ex": _blendfilter(56.5),
    "without q_in": _blendfilter(61.3),
    "blendfilter, BM25": _blendfilter(54.7),
    "without q, BM25": _blendfilter(53.2),
    "without q_ex, BM25": _blendfilter(50.6),
    "without q_in, BM25": _blendfilter(51.4),
}


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
