"""Gold labels in languages without spaces between words, and with quotation marks of their own."""

from typing import Any

import dspy
import pytest

from raisf.optimize.judges.judge_data import relevance_examples
from raisf.retrieval.passage import Passage
from tests.shelf import Shelf


@pytest.mark.parametrize(
    ("answer", "holding", "other"),
    [
        ("兰花", "绍兴的市花是兰花。", "鲁迅出生于浙江绍兴。"),
        ("กรุงเทพ", "เมืองหลวงคือกรุงเทพและ", "ช้างเป็นสัตว์"),
        ("Graz", "Sie wohnt in \u201eGraz\u201c.", "Sie wohnt in Grazbach."),
    ],
)
def test_a_gold_passage_holds_the_answer(answer: str, holding: str, other: str) -> None:
    """Of one title's passages all were relevant, of two titles' none, and the judge had nothing to learn from."""

    def verdicts(*titles: str) -> list[str]:
        passages = [Passage("1", other, titles[0]), Passage("2", holding, titles[-1])]
        asked = dspy.Example(question="Q?", answer=answer, gold_titles=[*titles]).with_inputs("question")
        shelf: Any = Shelf(lambda query: passages)
        return [row.verdict for row in relevance_examples([asked], shelf, 2)]

    assert verdicts("A") == verdicts("A", "B") == ["irrelevant", "relevant"]
