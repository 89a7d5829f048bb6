"""If these failed, an answer would come without the sentence it was read from, or with one it was not."""

import json

import pytest

from raisf.evaluation.confidence import of_record
from raisf.programs.baselines.rag import RAG
from raisf.programs.citations import cite
from raisf.programs.trace import JudgedPassage, Judgement, Node, fold_duplicates
from raisf.retrieval.passage import Passage
from tests.scripted import ScriptedLM

FUJI = "It is the highest mountain of Japan. It last erupted in 1707. Hokusai painted Mount Fuji thirty-six times."
TOKYO = "Tokyo is the capital of Japan. On clear days Mount Fuji is seen from its towers."
SHELF = [Passage("fuji", FUJI, "Mount Fuji", source="fuji.txt"), Passage("tokyo", TOKYO, "Tokyo")]


def node(question: str, answer: str) -> Node:
    passages = [JudgedPassage.of(passage) for passage in SHELF]
    return Node(question=question, answer=answer, route="passages", passages=passages)


def texts(*numbers: int) -> list[str]:
    return [SHELF[number].prompt_text for number in numbers]


@pytest.mark.parametrize("quoted", [None, "", "none", "None."])
def test_a_reader_that_quotes_nothing_gets_the_sentence_that_holds_its_answer(quoted: str | None) -> None:
    asked = node("In which year did Mount Fuji last erupt?", "1707")
    cite(asked, quoted, texts(0, 1))
    assert (asked.evidence, asked.found_afterwards, asked.cited) == ("It last erupted in 1707.", True, "fuji.txt")
    assert asked.grounded is True


@pytest.mark.parametrize("answer", ["**1707**", "`1707`", "*1707*.", "***1707***"])
@pytest.mark.parametrize("quoted", ["none", "**It last erupted in 1707.**"])
def test_an_answer_in_bold_stands_where_it_stands_without(answer: str, quoted: str) -> None:
    """It was told to stand in no passage, had the confidence 0, and any min_confidence kept it back."""
    asked = node("When was the last eruption of Mount Fuji?", answer)
    cite(asked, quoted, texts(0, 1))
    assert (asked.evidence, asked.cited, asked.grounded) == ("It last erupted in 1707.", "fuji.txt", True)
    agreed = node("What do they say?", "**Yes**")
    cite(agreed, "none", texts(0, 1))
    assert agreed.grounded is None


@pytest.mark.parametrize(
    ("answer", "said", "grounded"),
    [
        ("520,000", "Lyon has 520000 people.", True),
        ("520000 people", "Lyon has 520,000 people.", True),
        ("$1234567.50", "It cost $1,234,567.50 then.", True),
        ("£85/day", "It is GBP 85/day there.", True),
        ("GBP 1,250", "It costs £1250 a year.", True),
        ("85 €", "It costs 85 EUR now.", True),
        ("£85", "It costs EUR 85 now.", False),
        ("520,000", "Lyon has 5200000 people.", False),
        ("520", "Lyon has 520,000 people.", False),
        ("1999", "It was 11,999 that year.", False),
        ("0123456", "Dial 123,456 there.", False),
    ],
)
def test_a_number_is_found_however_its_thousands_are_set(answer: str, said: str, grounded: bool) -> None:
    asked = Node(question="How many?", passages=[JudgedPassage(pid="p", title="", text=said)])
    cite(asked.conclude("passages", "", answer), None, [said])
    assert asked.grounded is grounded and asked.evidence == (said if grounded else None)


def test_marks_that_are_the_answer_stay() -> None:
    for answer, said in (("**", "Python's ** is a power."), ("__init__", "It is called __init__ there.")):
        asked = Node(question="Which?", passages=[JudgedPassage(pid="p", title="", text=said)]).conclude(
            "passages", "", answer
        )
        cite(asked, None, [said])
        assert asked.grounded and asked.evidence == said


def test_of_several_sentences_the_one_nearest_to_the_question_is_taken() -> None:
    asked = node("Which mountain is seen from the towers of Tokyo on clear days?", "Mount Fuji")
    cite(asked, "none", texts(0, 1))
    assert asked.evidence == "On clear days Mount Fuji is seen from its towers." and asked.cited == "Tokyo"


def test_only_passages_that_were_read_are_cited() -> None:
    asked = node("What is seen from Tokyo?", "Mount Fuji")
    cite(asked, "none", texts(0))
    assert asked.cited == "fuji.txt"


def test_an_answer_that_no_passage_holds_has_no_sentence_and_is_told() -> None:
    asked = node("Who climbed it first?", "Ada Hill")
    cite(asked, "none", texts(0, 1))
    assert (asked.evidence, asked.cited, asked.grounded) == (None, None, False)
    within = node("In which year did it erupt?", "170")  # not a word of any passage
    cite(within, "none", texts(0))
    assert within.grounded is False


def test_a_sentence_that_is_about_nothing_asked_is_not_shown_as_evidence() -> None:
    """A title alone held the answer, and any sentence below it was quoted for it."""
    disposal = Passage("d", "Do not throw the device into the waste. It is taken back.", "HX-900", source="hx.pdf")
    asked = Node(question="Which is heavier, the HX-900 or the HX-220?", answer="HX-900")
    asked.passages = [JudgedPassage.of(disposal)]
    cite(asked, "none", [disposal.prompt_text])
    assert (asked.evidence, asked.found_afterwards, asked.cited, asked.grounded) == (None, False, "hx.pdf", True)
    fuji = Passage("f", "It is in Japan. It last erupted in 1707.", "Mount Fuji")
    titled = Node(question="Which mountain last erupted in 1707?", answer="Mount Fuji")
    titled.passages = [JudgedPassage.of(fuji)]
    cite(titled, "none", [fuji.prompt_text])
    assert titled.evidence == "It last erupted in 1707."
    rome = Passage("r", "Rome is a city of seven hills. It became Italy's capital in 1871.", "Rome")
    capital = Node(question="Which city became the capital of Italy in 1871?", answer="Rome")
    capital.passages = [JudgedPassage.of(rome)]
    cite(capital, "none", [rome.prompt_text])
    assert capital.evidence == "It became Italy's capital in 1871.", "and not the first, which says but the name"


def test_yes_and_no_stand_nowhere_but_what_was_read_about_the_question_is_shown() -> None:
    asked = node("Is Mount Fuji in Japan?", "yes")
    cite(asked, "none", texts(0))
    assert asked.grounded is None and asked.found_afterwards
    assert (asked.evidence, asked.cited) == ("It is the highest mountain of Japan.", "fuji.txt")
    bridge = Passage("oss", "There is no bridge in Oss. Its mayor is Dutch.", "Oss")
    denied = Node(question="Are both mayors Dutch?", answer="no", passages=[JudgedPassage.of(bridge)])
    cite(denied, None, [bridge.prompt_text])
    assert (denied.evidence, denied.cited, denied.grounded) == (None, None, None)


def test_a_quotations_passage_is_cited_though_it_names_what_that_calls_it() -> None:
    asked = node("When did it erupt?", "1707")
    cite(asked, "Mount Fuji last erupted in 1707.", texts(0, 1))
    assert (asked.evidence, asked.found_afterwards) == ("It last erupted in 1707.", False)
    assert asked.cited == "fuji.txt"


@pytest.mark.parametrize(
    "made_up",
    [
        "The story of Mount Fuji is a story of love and loss.",
        "Mount Fuji last erupted in 1954.",
        "The highest towers of Japan were painted thirty-six times on clear days.",
    ],
)
def test_a_quotation_of_the_readers_making_is_not_shown_as_one(made_up: str) -> None:
    asked = node("When did it erupt?", "1707")
    cite(asked, made_up, texts(0, 1))
    assert (asked.evidence, asked.found_afterwards) == ("It last erupted in 1707.", True)
    asked = node("Did it erupt?", "yes")
    cite(asked, made_up, texts(0, 1))
    assert (asked.evidence, asked.cited) == (None, None)


def test_a_quotation_that_puts_the_answer_where_another_word_stands_is_not_shown_as_one() -> None:
    """One word of a true sentence exchanged, for one that stands elsewhere: it was quoted and cited."""
    asked = node("Who painted Mount Fuji thirty-six times?", "Tokyo")
    cite(asked, "Tokyo painted Mount Fuji thirty-six times.", texts(0, 1))
    assert (asked.evidence, asked.found_afterwards) == ("On clear days Mount Fuji is seen from its towers.", True)
    assert asked.cited == "Tokyo"


@pytest.mark.parametrize(
    "quoted",
    [
        "It last erupted in 1707. Hokusai painted Mount Fuji thirty-six times.",
        "it last erupted in 1707",
        "1707. Hokusai painted *Mount Fuji*",
    ],
)
def test_a_quotation_may_be_of_two_sentences_and_leave_marks_out(quoted: str) -> None:
    asked = node("When did it erupt?", "1707")
    cite(asked, quoted, texts(0, 1))
    assert (asked.evidence, asked.cited) == (quoted, "fuji.txt")


@pytest.mark.parametrize(
    ("quoted", "shown"),
    [
        (
            "Mount Hotaka was often painted by Hokusai and climbed by Weston.",
            "It was often painted by Hokusai and climbed by Weston.",
        ),
        ("Mount Hotaka was often painted by Hokusai", "It was often painted by Hokusai and climbed by Weston."),
        ("Its snow feeds Mount Hotaka's rivers", "Its snow feeds its rivers."),
    ],
)
def test_a_quotation_with_a_name_for_its_passages_pronoun_is_shown_as_the_passage_has_it(
    quoted: str, shown: str
) -> None:
    text = "Mount Hotaka is near. It was often painted by Hokusai and climbed by Weston. Its snow feeds its rivers."
    passage = JudgedPassage.of(Passage("peaks", text, "Peaks"))
    asked = Node(question="What did Hokusai paint?", answer="Mount Hotaka", route="passages", passages=[passage])
    cite(asked, quoted, [passage.prompt_text])
    assert (asked.evidence, asked.found_afterwards) == (shown, False)


@pytest.mark.parametrize(
    ("text", "quoted", "answer"),
    [
        ("Carla Nunes replaces Peter Olsen at sea.", "Peter Olsen replaces Carla Nunes at sea.", "Peter Olsen"),
        ("Pump K-5 was not mended in 2015, but in 2018.", "Pump K-5 was mended in 2015, but not in 2018.", "2015"),
        ("On Monday Tom approved the budget.", "On Monday Ann approved the budget.", "Ann"),
        ("Above 9 bar the relief valve opens automatically.", "Above 9 bar the relief valve closes.", "closes"),
        ("The crane lifts up to 3.5 kg of steel plates.", "The crane lifts up to 3.5 t of steel plates.", "3.5 t"),
        ("He was born in Riga. Tom Hill is his son.", "Tom Hill was born in Riga.", "Tom Hill"),
    ],
)
def test_a_quotation_of_the_same_words_in_another_order_or_with_another_among_them_is_none(
    text: str, quoted: str, answer: str
) -> None:
    """Words were compared without their order, and a third of them might differ: the opposite was shown as quoted."""
    passage = JudgedPassage.of(Passage("p", text, "Rules"))
    asked = Node(question="Who, what or when?", answer=answer, route="passages", passages=[passage])
    cite(asked, quoted, [passage.prompt_text])
    assert asked.evidence is None or asked.found_afterwards


def test_a_quotation_that_leaves_its_sentences_not_out_is_shown_as_the_whole_sentence() -> None:
    said = "It is not true that Tom Hill was born in Riga."
    passage = JudgedPassage.of(Passage("p", f"Some get it wrong. {said} He was born in Oss.", "Tom Hill"))
    asked = Node(question="Was Tom Hill born in Riga?", answer="yes", route="passages", passages=[passage])
    cite(asked, "Tom Hill was born in Riga.", [passage.prompt_text])
    assert (asked.evidence, asked.cited) == (said, "Tom Hill")


def test_a_program_cites_whether_its_reader_quotes_or_answers_at_once() -> None:
    class Shelf:
        path, corpus_hash = None, "shelf"

        def __call__(self, query: str, k: int) -> list[Passage]:
            return SHELF[:k]

    found = {"evidence": "none", "answer": "1707"}
    for evidence in (True, False):
        program = RAG(Shelf(), k=2, evidence=evidence)  # type: ignore[arg-type]
        program.set_lm(ScriptedLM(lambda fields: found if evidence else {"answer": "1707"}))  # noqa: B023
        root = program(question="When did it last erupt?").trace.root
        assert (root.evidence, root.found_afterwards) == ("It last erupted in 1707.", True)


def test_confidence_is_the_judges() -> None:
    direct = Node(question="q", answer="a", route="direct", know=Judgement(verdict="know", probability=0.7))
    read = node("q", "a")
    read.passages[0].judgement = Judgement(verdict="relevant", probability=0.9)
    read.passages[1].judgement = Judgement(verdict="irrelevant", probability=0.1)
    unknown = Node(question="q")
    assert (direct.confidence, read.confidence, unknown.confidence) == (0.7, 0.9, None)
    read.grounded = False  # no passage says so
    assert read.confidence == 0
    read.grounded = True
    both = Node(question="q", answer="a", route="decomposed", sub_questions=[direct, read, unknown])
    assert both.confidence == 0.7


def test_a_repeated_sub_question_leaves_the_answer_its_confidence() -> None:
    def sub() -> Node:
        node = Node(question="a?", depth=1, know=Judgement(verdict="know", probability=0.9))
        return node.end("direct", "from memory", "Rome")

    root = Node(question="q?", sub_questions=[sub(), sub()]).end("decomposed", "from 2 of 2", "Rome")
    folded = fold_duplicates(root)
    assert [node.route for node in folded.sub_questions] == ["direct", "duplicate"]
    assert root.confidence == folded.confidence == folded.sub_questions[1].confidence == 0.9
    record = {"trace": {"root": json.loads(folded.model_dump_json())}}
    del record["trace"]["root"]["sub_questions"][1]["computed_confidence"]  # as records of earlier versions have it
    assert of_record(record) == 0.9


def test_a_duplicate_hides_no_part_whose_confidence_nobody_knows() -> None:
    """A program kept the answer, as if nobody knew how sure it is, and showed 0.9, less than its min_confidence."""
    sub = node("a?", "1707")  # judged listwise, say
    known = Node(question="b?", depth=1, know=Judgement(verdict="know", probability=0.9)).end("direct", "", "Rome")
    lost = Node(question="c?", depth=1, sub_questions=[sub]).end("decomposed", "from 1 of 1")
    found = Node(question="d?", depth=1, sub_questions=[sub, known]).end("decomposed", "from 2 of 2", "Rome")
    root = Node(question="q?", sub_questions=[lost, found]).end("decomposed", "from 1 of 2", "Rome")
    assert root.confidence is fold_duplicates(root).confidence is None


BORN = "Mary Stone was born in Riga in 1980. She was not the first of her family there. Her works are many."


@pytest.mark.parametrize(
    ("quoted", "found"),
    [
        ("Anna Stone was born in Riga in 1980.", "Mary Stone was born in Riga in 1980."),
        ("Mary Stone was born in Rome in 1980.", "Mary Stone was born in Riga in 1980."),
        ("Mary Stone was not born in Riga in 1980.", "Mary Stone was born in Riga in 1980."),
        ("Stone, Mary was born in Riga, in 1980", "Mary Stone was born in Riga in 1980."),
        ("mary stone was BORN in Riga, in 1980", None),  # its words
    ],
)
def test_a_quotation_with_another_name_or_the_opposite_is_not_shown_as_one(quoted: str, found: str | None) -> None:
    """Of a passage about Mary, a reader that was asked about Anna was shown to have read that in quotation marks."""
    passage = JudgedPassage.of(Passage("stone", BORN, "The Stones"))
    asked = Node(question="When was Anna Stone born?", answer="1980", route="passages", passages=[passage])
    cite(asked, quoted, [passage.prompt_text])
    assert asked.found_afterwards == (found is not None) and asked.evidence == (found or quoted.strip("."))


def test_a_name_in_the_place_of_a_pronoun_must_stand_in_the_passage() -> None:
    passage = JudgedPassage.of(Passage("stone", f"{BORN} She was elected in 2010.", ""))
    for name, own in (("Mary", True), ("Anna", False), ("Ann", False)):
        asked = Node(question=f"When was {name} elected?", answer="2010", route="passages", passages=[passage])
        cite(asked, f"{name} was elected in 2010.", [passage.prompt_text])
        assert (asked.evidence, asked.found_afterwards) == ("She was elected in 2010.", not own)


@pytest.mark.parametrize(
    ("text", "quoted", "shown"),
    [
        ("Ada met Bob in Wien. She was born in Graz.", "Bob was born in Graz.", "She was born in Graz."),
        ("Close valve five. It must stay open.", "Close must stay open.", "It must stay open."),
        ("Ada was born in Graz. She sang.", "Ada | Ada was born in Graz.", "Ada was born in Graz."),
        ("Ada was born in Graz. She sang.", "[1] Ada was born in Graz.", "Ada was born in Graz."),
        ("Ada was born in Graz. She sang.", "Ada was born in Graz (Passage 2)", "Ada was born in Graz"),
    ],
)
def test_evidence_is_words_of_the_passage_and_nothing_else(text: str, quoted: str, shown: str) -> None:
    """Whoever a reader put for "she" was shown as the passage's; a copy of the prompt's own line was not."""
    passage = JudgedPassage.of(Passage("p", text, "Ada"))
    asked = Node(question="Where was Bob born?", answer="Graz", route="passages", passages=[passage])
    cite(asked, quoted, [passage.prompt_text])
    assert (asked.evidence, asked.found_afterwards) == (shown, False)


@pytest.mark.parametrize("quoted", ["Skien", "The", "in Skien"])
def test_a_quotation_that_only_repeats_the_answer_is_none(quoted: str) -> None:
    museum = JudgedPassage.of(Passage("m", "The museum's ships call at Skien in summer.", "Ibsen Museum"))
    ibsen = JudgedPassage.of(Passage("i", "Henrik Ibsen was a playwright, born in 1828 in Skien.", "Henrik Ibsen"))
    asked = Node(question="Where was Henrik Ibsen born?", answer="Skien", route="passages", passages=[museum, ibsen])
    cite(asked, quoted, [museum.prompt_text, ibsen.prompt_text])
    assert asked.found_afterwards and asked.cited == "Henrik Ibsen"


def test_only_its_own_title_is_taken_off_a_quotation() -> None:
    """Of a row of a table all but its last cell was taken for a title, and another passage with that was cited."""
    ticket = JudgedPassage.of(Passage("t", "A ticket costs 120 EUR in Rome.", "Prices"))
    row = JudgedPassage.of(Passage("h", "Sonne | Bregenz | 4 | 120 EUR", "Hotels"))
    asked = Node(question="What does the Sonne cost?", answer="120 EUR", route="passages", passages=[ticket, row])
    cite(asked, "Sonne | Bregenz | 120 EUR", [ticket.prompt_text, row.prompt_text])
    assert asked.found_afterwards or asked.cited == "Hotels"
    cite(asked, "Hotels: Sonne | Bregenz | 4 | 120 EUR", [ticket.prompt_text, row.prompt_text])
    assert (asked.evidence, asked.cited) == ("Sonne | Bregenz | 4 | 120 EUR", "Hotels")
