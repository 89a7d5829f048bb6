"""Questions, answers and passages in languages that put no spaces between words, or write them in their own way."""

import dspy
import pytest

from raisf.programs.citations import cite
from raisf.programs.outputs import sensible
from raisf.programs.questions import fill, first_sentence, holds, is_unknown, references, sentences
from raisf.programs.trace import JudgedPassage, Node
from raisf.retrieval.corpus.splitting import split_text
from raisf.retrieval.passage import Passage
from raisf.signatures.judges import Decomposition


def cited(text: str, question: str, answer: str) -> Node:
    """A node whose reader has quoted no sentence of a passage."""
    passages = [JudgedPassage.of(Passage("p", text, source="s.txt"))]
    node = Node(question=question, answer=answer, route="passages", passages=passages)
    cite(node, None, [text])
    return node


@pytest.mark.parametrize("question", ["哪种花是#1的市花", "いつ#1で生まれた", "ใครเขียน#1", "Where was (#1) born?"])
def test_a_reference_stands_behind_a_letter_where_no_spaces_part_words(question: str) -> None:
    """The next hop asked for "#1" itself."""
    assert references(question, 2) == [1] and "Ada" in fill(question, {1: "Ada"})


@pytest.mark.parametrize("mark", ["?", "\uff1f", "\u061f"])
def test_questions_in_any_script_may_be_followed_by_what_ends_their_list(mark: str) -> None:
    """The whole list was unreadable, and the question lost."""
    said = dspy.Prediction(sub_questions=[f"A{mark}", f"#1{mark}", "No further questions."])
    assert sensible(dspy.Predict(Decomposition), said, {})


@pytest.mark.parametrize("question", ["Who fixed issue#1?", "Was heißt C#1?", "Wo ist Süd#1?", "Who sang #1000?"])
def test_what_belongs_to_a_word_is_no_reference(question: str) -> None:
    assert references(question, 2) == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("กรุงเทพมหานครเป็นเมืองหลวง", "กรุงเทพมหานคร"),
        ("ມີນະຄອນຫຼວງຄືວຽງຈັນ", "ວຽງຈັນ"),
        ("មានរាជធានីភ្នំពេញ", "ភ្នំពេញ"),
        ("宝马BMW是德国公司", "BMW"),
        ("איינשטיין נולד באולם שבגרמניה.", "אולם"),
        ("ولد نجيب محفوظ بالقاهرة عام 1911.", "القاهرة"),
        ("وبالقاهرة", "القاهرة"),
    ],
)
def test_an_answer_stands_where_no_space_parts_it_from_what_is_before_it(text: str, answer: str) -> None:
    """It "stood in none of the passages", with the confidence 0."""
    assert holds(text, [answer])


@pytest.mark.parametrize(("text", "answer"), [("المصري", "مصر"), ("قمصر", "مصر"), ("das Grazer宝", "Graz")])
def test_a_part_of_another_word_is_no_answer(text: str, answer: str) -> None:
    assert not holds(text, [answer])


@pytest.mark.parametrize("answer", ["Ja", "Nein.", "Sí", "нет", "是", "نعم"])
def test_of_yes_and_no_in_any_language_no_passage_says_whether_they_hold(answer: str) -> None:
    node = cited("Bern ist die Hauptstadt der Schweiz.", "Ist Bern die Hauptstadt der Schweiz?", answer)
    assert node.grounded is None and node.cited == "s.txt"


def test_german_zero_is_an_answer() -> None:
    assert not is_unknown("Null") and is_unknown("null") and is_unknown("NULL.") and is_unknown("Sorry, null")


@pytest.mark.parametrize(
    ("text", "question", "answer", "sentence"),
    [
        ("成都是四川省的省会。火锅是成都有名的菜。", "哪个城市有名的菜是火锅", "成都", "火锅是成都有名的菜。"),
        (
            "富士山は日本一高い山である。富士山は静岡県と山梨県にまたがる。",
            "静岡県と山梨県にまたがる山は何ですか",
            "富士山",
            "富士山は静岡県と山梨県にまたがる。",
        ),
    ],
)
def test_the_sentence_is_cited_that_is_about_the_question(text: str, question: str, answer: str, sentence: str) -> None:
    """It was always the first one that has the answer."""
    assert cited(text, question, answer).evidence == sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "Die Mauer fiel am 9. November 1989.",
        "Der Vertrag gilt ab dem 31. März.",
        "Ludwig XIV. regierte lange.",
        "Stát byl založen 28. října 1918.",
        "Krigen sluttede den 5. maj 1945.",
        "Suomi itsenäistyi 6. joulukuuta 1917.",
    ],
)
def test_no_sentence_ends_behind_the_number_of_a_day_or_a_king(sentence: str) -> None:
    """The evidence ended there, and so did passages."""
    assert sentences(f"{sentence} Ende. ") == [sentence, "Ende."] and first_sentence(f"{sentence} Ende.") == sentence
    assert all(piece.endswith(sentence) for piece in split_text(" ".join([sentence] * 99)))


@pytest.mark.parametrize("text", ["He came in at 9. It was cold.", "They fought in World War II. May was warm."])
def test_a_sentence_ends_behind_other_numbers(text: str) -> None:
    assert len(sentences(text)) == 2
