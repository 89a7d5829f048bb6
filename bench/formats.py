"""Which format serves a signature better: DSPy's chat form, the compact form as text, or that in the model's template.

    python -m bench.formats --questions dev.jsonl [--lm smollm2] [--n 20] [--shots 0 3] [--json]

Questions are HotpotQA's, whose paragraphs come along: relevance is judged on a supporting and another paragraph of
each, answers are read from the supporting ones, or given from memory. Shown examples are the file's last questions.
In the template each example is a turn of a conversation, and the reply is begun with the first output's name.
A judge's figure is the AUROC of its probability, or of its verdict where it only writes one; an answerer's its token
F1; then the share of replies that could be read.
"""

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dspy

from raisf.data.questions import load_questions
from raisf.data.rows import read_rows
from raisf.data.schemas import paragraphs
from raisf.evaluation.judges import auroc
from raisf.evaluation.metrics import token_f1
from raisf.lm.adapter import CompactAdapter
from raisf.lm.connect import adapter_for, connect
from raisf.signatures.answers import DirectAnswer, GroundedAnswer, PassageAnswer
from raisf.signatures.judges import PassageRelevance
from raisf.utils.display import DataTable, console

FORMATS = ("chat", "compact", "template")


class InTemplate(CompactAdapter):
    """The compact form as turns of a conversation in the chat template of a local LM; the reply is begun for it."""

    def __init__(self, lm: Any):
        super().__init__()
        self._tokenizer = lm.base_engine.text.tokenizer

    def prompt(self, signature: Any, inputs: dict[str, Any], demos: list[Any] = []) -> str:  # noqa: B006
        """The conversation as text, up to what the model is to go on with."""
        turns: list[dict[str, str]] = []
        for values in (*demos, inputs):
            asked, _, begun = super().prompt(signature, values).rpartition("\n")
            reply = begun + self.completion(signature, values).rstrip() if values is not inputs else begun
            turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": reply}]
        *before, last = turns
        return self._tokenizer.apply_chat_template(before, tokenize=False, add_generation_prompt=True) + last["content"]


def cases(path: str) -> list[dict[str, Any]]:
    """Questions with their answers, supporting paragraphs, and one paragraph that supports nothing."""
    found = []
    for row, example in zip(read_rows(path), load_questions(path), strict=True):
        texts = {title: f"{title} | {text}" for title, text in paragraphs(row)}
        gold = [texts[title] for title in example.gold_titles if title in texts]
        other = next((text for title, text in texts.items() if title not in example.gold_titles), None)
        if gold and other:
            evidence = " ".join(example.get("gold_sentences") or []) or "none"
            found.append({"question": example.question, "answers": example.answers, "gold": gold, "other": other})
            found[-1]["evidence"] = evidence
    return found


def rows(signature: Any, case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a signature is asked about a case, and what it should say."""
    if signature is PassageRelevance:
        for passage, verdict in ((case["gold"][0], "relevant"), (case["other"], "irrelevant")):
            yield {"question": case["question"], "passage": passage, "verdict": verdict}
    else:
        read = {"passages": case["gold"], "evidence": case["evidence"]} if "passages" in signature.input_fields else {}
        yield {"question": case["question"], **read, "answer": case["answers"][0], "answers": case["answers"]}


def measure(lm: Any, signature: Any, asked: list[dict[str, Any]], shown: list[dict[str, Any]]) -> tuple[float, float]:
    """The signature's figure, and the share of replies that could be read."""
    predictor = dspy.Predict(signature)
    predictor.demos = [dspy.Example(**row) for row in shown]

    def ask(row: dict[str, Any]) -> Any:
        with dspy.context(lm=lm, adapter=adapter_for(lm)):
            try:
                return predictor(**{name: row[name] for name in signature.input_fields})
            except Exception:  # a reply that cannot be read, in whichever way its format says so
                return None

    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(ask, asked))
    scores, gold = [], []
    for row, said in zip(asked, replies, strict=True):
        if signature is PassageRelevance:
            sure = (said.get("probabilities") or {}).get("relevant") if said else 0.5
            scores.append(float(said.verdict == "relevant") if said and sure is None else float(sure or 0))
            gold.append(row["verdict"] == "relevant")
        else:
            scores.append(token_f1(str(said.answer), row["answers"]) if said else 0.0)
    figure = auroc(gold, scores) if gold else sum(scores) / len(scores)
    return float(figure), sum(said is not None for said in replies) / len(asked)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.formats", description=__doc__)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--lm", default="smollm2")
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--shots", type=int, nargs="+", default=[0, 3])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = cases(given.questions)
    asked, last = found[: given.n], found[-max([1, *given.shots]) :]
    table, out = DataTable("signature", "examples", *FORMATS, title=f"{given.lm}, {given.n} questions"), []
    for signature in (PassageRelevance, GroundedAnswer, PassageAnswer, DirectAnswer):
        for shots in given.shots:
            shown = [row for case in last[:shots] for row in rows(signature, case)][: shots + shots % 2]
            cells = []
            for form in FORMATS:
                lm: Any = connect(given.lm, adapter="chat" if form == "chat" else "compact", max_tokens=100)
                if form == "template":
                    lm.adapter = InTemplate(lm)
                figure, read = measure(lm, signature, [row for case in asked for row in rows(signature, case)], shown)
                out.append([signature.__name__, shots, form, round(figure, 3), round(read, 3)])
                cells.append(f"{figure:.2f}, read {read:.0%}")
                if not given.json:
                    console(stderr=True).print(*map(str, out[-1]))
            table.add_row(signature.__name__, str(shots), *cells)
    print(json.dumps(out)) if given.json else console().print(table)


if __name__ == "__main__":
    main()
