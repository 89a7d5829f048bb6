"""What the programs do with text: sentences and lists that an LM wrote."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raisf.programs.questions import first_sentence, holds, is_unknown, is_yes_no, listed, normal, refuses
from raisf.utils.text import clean


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Ada wrote it. So the answer is: Ada.", "Ada wrote it."),
        ("Did she? Yes.", "Did she?"),
        ('He said "no." Then he left.', 'He said "no."'),
        ("J. R. Stone lives in St. Ives. It is small.", "J. R. Stone lives in St. Ives."),
        ("Mrs. Dow met Dr. Lane at 3.5 miles. Then", "Mrs. Dow met Dr. Lane at 3.5 miles."),
        ("It began in 1905. It ended.", "It began in 1905."),
        ("Apple Inc. was founded by Maj. Gen. Jobs. Then", "Apple Inc. was founded by Maj. Gen. Jobs."),
        ("She left Apple Inc. Then", "She left Apple Inc."),
        (
            "Prof. Hill of Move, Inc., won (Vol. 2) on Jan. 5, e.g. there. Then",
            "Prof. Hill of Move, Inc., won (Vol. 2) on Jan. 5, e.g. there.",
        ),
        ("Is it plan B? No! Then", "Is it plan B?"),
        ("\u0905\u0926\u093e \u0917\u0908\u0964 \u092b\u093f\u0930", "\u0905\u0926\u093e \u0917\u0908\u0964"),
        ("\u5a03\u5728\u683c\u62c9\u8328\u3002\u5979\u4f4f\u90a3\u91cc\u3002", "\u5a03\u5728\u683c\u62c9\u8328\u3002"),
        ("1. It began in 1905. It ended.", "1. It began in 1905."),
        ("2.", "2."),
        ("no end at all", "no end at all"),
        ("", ""),
    ],
)
def test_one_sentence_is_kept(text, first):
    assert first_sentence(text) == first


@given(st.text())
def test_the_first_sentence_is_a_beginning_and_never_nothing(text):
    text = clean(text)
    assert text.startswith(first_sentence(text))
    assert bool(first_sentence(text)) == bool(text)


def test_a_reply_of_numbers_alone_is_read_at_once():
    """A small LM repeats "1." up to its limit; from each to the beginning again, 60,000 characters took 8 seconds."""
    text, begun = "1. " * 20_000, time.process_time()
    assert first_sentence(text) == text and time.process_time() - begun < 2


def test_listed_sub_questions_are_cleaned_and_spelt_one_way():
    assert listed([" who?\n", "", None, "?", "Who", 7]) == ["who?", "who?", "7"]
    assert listed(["**Who?**", "Where was #1 born?", "No further questions."]) == ["Who?", "Where was #1 born?"]


def test_a_sub_question_keeps_the_marks_that_are_around_its_words_alone():
    """Only those around the whole of it were taken off before: these were asked as `Heroes" or "Low`."""
    for asked in ('"Heroes" or "Low"', "**Who** wrote **X**", "'Heroes' or 'Low'", '"X," or "Y"'):
        assert listed([asked, "b?"]) == [asked, "b?"]
    for within in ('Who wrote "X" and "Y"?', 'Who is "X"?', "Who is Ada's mother?", "Who is James' mother?"):
        assert listed([f'"{within}"', f"'{within}'"]) == [within, within]


def test_a_relation_as_musique_asks_is_no_refusal():
    """Its titles are what they are: dropped at the end of a list, elsewhere the list could not be read."""
    asked = ["Nothing Compares 2 U >> performer", "I Am Legend >> director", "It's Not Unusual >> lyrics by"]
    assert listed(asked) == asked and not any(refuses(one) for one in asked)


@given(st.lists(st.text(max_size=5)))
def test_no_list_is_too_long_and_none_of_it_is_empty(texts):
    assert len(listed(texts)) <= 10 and all(normal(text) for text in listed(texts))


def test_a_mark_that_stands_alone_makes_no_other_question():
    assert normal("Qui est Ada Hill ?") == normal("qui est  Ada Hill?") == "qui est ada hill"


@pytest.mark.parametrize(
    ("question", "closed"),
    [
        ("Was Ada born in Velm?", True),
        ("Are both rivers in the county of Oss?", True),
        ("In the novel Ember, did the miller leave before winter?", True),
        ("Couldn't a heron swallow a pike?", True),
        ("Does the county in which Velm lies have a coast?", True),
        ("Is Velm or Oss older?", False),
        ("Who was born in Velm?", False),
        ("In what county is Velm?", False),
        ("Velm, a small town, is part of which county?", False),
        ("Can you tell me who wrote Ember?", False),
        ("Which came first, was it Ember?", False),
        ("Is Velm a town, and who founded it?", False),
        ("", False),
    ],
)
def test_a_question_for_yes_or_no_is_told_by_its_words(question, closed):
    assert is_yes_no(question) is closed


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It cost $3.2 million.", "3.2 million"),
        ("Set it to **6 bar**.", "6 bar"),
        ("Maria Lopez's house", "Maria Lopez"),
        ("Smith\u2019s law", "Smith's"),
        ("a Graz-based firm", "Graz"),
        ("from 1998-2004", "2004"),
        ("40kg", "40"),
        ("\u00abGraz\u00bb, \u201eWien\u201c", "Wien"),
        ("\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059", "\u6771\u4eac"),
        ("Zu\u0308rich", "Z\u00fcrich"),
        ("Northampton.Acting was hers", "Northampton"),
        ("Saxe- Coburg- Gotha", "Saxe-Coburg-Gotha"),
        ("an 18th-century house", "18th century"),
        ("Portland, Oregon", "Portland Oregon"),
        ("written in C# now", "C#"),
    ],
)
def test_an_answer_stands_in_a_text_however_it_is_set(text: str, answer: str):
    assert holds(text, [answer])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *(
            ("3.5 bar", "5"),
            ("3.5 bar", "3"),
            ("35", "3"),
            ("1,998", "998"),
            ("the Grazer", "Graz"),
            ("in C++ now", "C"),
        ),
        *(("yes, it is", "yes"), ("x", ""), ("x", "?!"), ("x", "\u203c")),
    ],
)
def test_other_words_and_other_numbers_are_no_answer(text: str, answer: str):
    assert not holds(text, [answer])


def test_an_article_before_unknown_makes_no_answer_of_it():
    """A small reader said so, and its question was not broken down."""
    assert all(map(is_unknown, ("unknown", "Unknown.", "the unknown", " the unknown. ", "", "unknown unknown")))
    assert not any(map(is_unknown, ("The Unknown", "the unknown soldier", "the unknown one", "unknowns")))


@pytest.mark.parametrize(
    "answer",
    [
        *("I don't know.", "I don\u2019t know the answer.", "I have no idea", "I am not sure", "None", "N/A", "n/a."),
        *("Not mentioned.", "not mentioned in the passages", "It is not stated in the passage.", "not specified"),
        *("The passages do not mention it.", "The provided text doesn't say who wrote it.", "Insufficient information"),
        *("Sorry, I cannot answer that question.", "I'm sorry, but I don't know.", "No information available"),
        *("It cannot be determined from the given passages.", "The answer is unknown.", "unknown in the passages"),
        *("I'm not sure.", "I\u2019m unable to answer that", "It's unknown", "It can't be determined", "unanswerable"),
        *("The answer is not in the passages", "The answer isn't clear from the text", "The information is not there"),
        *(
            "There isn't enough information",
            "There's no information about that",
            "Unable to determine",
            "Cannot answer",
        ),
        *("**unknown**", "<unknown>", "unknown (not in the passages)", "Unknown, as the passages do not say"),
        *("Ann is not mentioned in the passages.", "None of the passages mention Ann.", "Neither passage mentions it."),
        *(
            "The passages provided do not mention it.",
            "Based on the passages, the answer is unknown.",
            "No data available",
        ),
        *("Based on the given facts, it cannot be determined.", "The birthplace is unknown.", "No data"),
        *("Unknown (no passage mentions it)", "The answer is unknown because the facts do not give it."),
        *("No relevant information found.", "Insufficient data"),
        *("As an AI language model, I can't know.", "We don't know.", "It does not say", "It's unclear"),
        *("They do not say where he was born.", "As an AI, I am unable to answer", "Impossible to tell from the text"),
        *("It is not possible to determine the answer.", "Not possible to tell", "No relevant passages found."),
        *(
            "It is not possible to answer the question with the given facts.",
            "It is not possible to determine the founder of Velm from the provided passages.",
        ),
        *(
            "The founder of Velm is not mentioned.",
            "The exact date is not specified.",
            "No specific date is mentioned.",
        ),
        "As of my last update in 2023, I do not have that information.",
        *("Unknown. The passages do not say.", "Unknown: it is not stated", "unknown — not mentioned", "N.A."),
        *("NOT MENTIONED", "NOT FOUND IN THE PASSAGES.", "I DON'T KNOW"),
    ],
)
def test_a_refusal_in_other_words_is_no_answer(answer: str):
    """It was filled into the next sub-question: "Where was I don't know. born?"."""
    assert is_unknown(answer)


@pytest.mark.parametrize(
    "answer",
    [
        *("I Don't Want to Miss a Thing", "I Don't Know How to Love Him", "I Have No Mouth, and I Must Scream"),
        *("I Can't Stand the Rain", "I Could Not Ask for More", "Breakfast is not included in the price"),
        *("No, slavery is not mentioned in the document", "Yes, it is not explicitly mentioned in the text"),
        *("None of the Above", "Neither", "The tomb of the soldier is unknown to him"),
        *("I Don't Know", "Not Mentioned", "No", "no", "Nonesuch", "None of them were", "No Country for Old Men"),
        *(
            "nothing else matters",
            "The text",
            "not the king",
            "Unknown Pleasures",
            "N/A Records",
            "I know",
            "no data set",
            "I'm Not There",
            "unknown to science",
            "cannot tell a lie",
            *(
                "Cannot find the device",
                "cannot provide more than 6 bar",
                "The document isn't public",
                "the answer isn't 5",
            ),
            *("I'm not in danger", "unknown since 1990", "unknown as of 2020", "**", "_", "<>"),
            *("Unknown. The answer is Rome", "unknown, but the passages hint at Rome"),
            "it's blue",
            *("The key is not provided", "no slavery is mentioned", "it is not possible to open it from the outside"),
            *("Not possible to return", "The Founder Is Not Mentioned", "no passage to India"),
            *("It is impossible to determine whether a program halts.", "impossible to tell it apart"),
            *("It is not possible to say who first, probably Cabot", "The word slavery is not mentioned."),
        ),
        *("It does not include batteries", "We do not ship on Sundays", "As an aid to pilots", "As an AI researcher"),
        *(
            "They did not know the way.",
            "It does not mention God",
            "It does not know fear",
            "As a boy I could not swim",
        ),
        *("The passages do not say it, but it was Graz", "I do not know, but probably in 1984"),
    ],
)
def test_what_only_looks_like_a_refusal_is_an_answer(answer: str):
    assert not is_unknown(answer)
