"""The experiments' names and titles, in the order of the papers; without dspy, for which no `--help` is to wait."""

from collections.abc import Mapping

RAISF: Mapping[str, str] = {
    "table1": "All systems",
    "table2": "RA-ISF without each of its modules",
    "fig2": "How deep sub-questions may go",
    "table3": "Whose weights the judges are",
    "table4": "Retrievals and sub-questions",
    "table5": "Each judge alone",
    "fig3": "How many passages are retrieved",
    "fig4": "How many passages, by kind of question",
    "table7": "What each module settles",
}
BLENDFILTER: Mapping[str, str] = {
    "blendfilter-main": "BlendFilter and its baselines",
    "blendfilter-bm25": "BlendFilter over BM25",
    "blendfilter-queries": "BlendFilter without each of its queries",
    "blendfilter-retrieval": "What is read from, against gold",
    "blendfilter-k": "How many passages a query",
    "blendfilter-sampling": "Answers sampled instead of greedy",
    "blendfilter-cases": "Questions that BlendFilter's filter decides",
}
OURS: Mapping[str, str] = {
    "judges": "Every judge, and every way of compiling it",
    "data-efficiency": "How many rows the judges need, by way of compiling",
}
TITLES: Mapping[str, str] = {**RAISF, **BLENDFILTER, **OURS}
