"""What the judges are trained on: lost rows cost LM calls, and a row of the test split makes every figure a lie."""

import json
import re
import subprocess
import sys
from pathlib import Path

import dspy
import pytest
from dspy.utils.exceptions import LMServerError

from raisf.evaluation.intervals import proportion
from raisf.optimize.judges import collect as room
from raisf.optimize.judges.agreement import Agreement
from raisf.optimize.judges.collect import collect
from raisf.optimize.judges.judge_data import JUDGES
from raisf.optimize.judges.judge_rows import JudgeRows, weight_of
from raisf.optimize.overlap import check_disjoint, overlap
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from raisf.utils.files import read_jsonl
from raisf.utils.journal import Journal
from tests.scripted import ScriptedLM


def question(text, identity=None, **more):
    return dspy.Example(id=identity or text, question=text, answer="x", **more).with_inputs("question")


def rows(folder, judge):
    return list(read_jsonl(folder / f"{judge}.jsonl"))


def test_every_row_says_where_it_comes_from(program, world, tmp_path):
    made = collect(program, world.train, tmp_path / "judges", progress=False)
    ids = {example.id for example in world.train}
    for judge in JUDGES:
        found = rows(tmp_path / "judges", judge)
        assert sum(made["rows"][judge].values()) == len(found) > 0
        assert {row["source"]["id"] for row in found} <= ids
    assert {row["source"]["labelled"] for row in rows(tmp_path / "judges", "know")} == {"model"}
    assert all(row["source"]["by"] and row["source"]["call"] for row in rows(tmp_path / "judges", "know"))
    assert {row["source"]["labelled"] for row in rows(tmp_path / "judges", "relevance")} == {"gold"}
    assert set(made["rows"]["know"]) == {"know", "unknown"}
    assert made["agreement"]["know"]["n"] > 0


def test_the_teacher_is_asked_once_about_what_questions_share(program, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "CHUNK", 1)
    teacher = ScriptedLM(lambda fields: {"verdict": "relevant", "sub_questions": ["a?", "b?"]})
    parts = {"sub_questions": ["Where was Ada born?", "In which country is #1?"], "sub_answers": ["Rome", "Italy"]}
    asked = [question(f"Q{number} about Ada?", **parts) for number in range(4)]
    collect(program, asked, tmp_path / "judges", teacher=teacher, threads=1, progress=False)
    pairs = [(call["question"], call["passage"]) for call in teacher.calls if "passage" in call]
    assert len(pairs) == len(set(pairs)) > 0


def test_a_stopped_collection_goes_on_and_ends_the_same(program, world, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "CHUNK", 5)
    whole = collect(program, world.train, tmp_path / "whole", progress=False)
    add, added = Journal.add, []

    def killed(self, key, value):
        if len(added) == 13:  # in the middle of a chunk: some of its questions are kept, others are not
            raise KeyboardInterrupt
        added.append(key)
        return add(self, key, value)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            collect(program, world.train, tmp_path / "halves", progress=False)
    assert collect(program, world.train, tmp_path / "halves", progress=False) == whole
    for judge in JUDGES:
        assert rows(tmp_path / "halves", judge) == rows(tmp_path / "whole", judge)


@pytest.mark.parametrize("asks_teacher", [False, True], ids=["the program's LM", "the teacher"])
def test_calls_that_fail_are_counted_and_the_next_run_makes_their_rows(
    program, world, oracle, tmp_path, monkeypatch, asks_teacher
):
    """A hiccup of an endpoint costs no training row for good."""
    monkeypatch.setattr(room, "CHUNK", 4)  # sub-questions are shared by questions of several chunks
    teacher, down, calls = oracle(), [], []

    def flaky(lm):
        script = lm._script.answer

        def answer(fields):
            calls.append(fields)
            if down and len(calls) % 4 == 0:
                raise LMServerError("HTTP 503")
            return script(fields)

        return ScriptedLM(answer)

    if asks_teacher:
        teacher = flaky(teacher)
    else:
        program.set_lm(flaky(oracle()))

    def run(folder):
        return collect(program, world.train[:12], tmp_path / folder, teacher=teacher, threads=1, progress=False)

    whole = run("whole")
    down.append(True)
    first = run("judges")
    assert first["errors"] > 0 and first["unfinished"] > 0
    down.clear()
    again = run("judges")
    assert (again["errors"], again["unfinished"]) == (0, 0)
    assert again["rows"] == whole["rows"]
    for judge in JUDGES:
        inputs = [(row["question"], row.get("passage")) for row in rows(tmp_path / "judges", judge)]
        assert len(set(inputs)) == len(inputs)
        assert set(inputs) == {(row["question"], row.get("passage")) for row in rows(tmp_path / "whole", judge)}


def test_of_two_at_once_the_second_is_refused_and_a_killed_one_holds_nothing(program, world, tmp_path):
    """Both would write every row, and the judges would learn each twice."""
    folder = tmp_path / "judges"
    collect(program, world.train[:5], folder, progress=False)
    code = "import sys; from raisf.utils.files import locked\nwith locked(sys.argv[1], ''): print(flush=True); input()"
    command = [sys.executable, "-c", code, str(folder / ".lock")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=Path(room.__file__).parents[1], **pipes) as other:
        assert other.stdout.readline()
        with pytest.raises(InputError, match="another collect is writing into"):
            collect(program, world.train[:5], folder, progress=False)
        other.kill()
    assert collect(program, world.train[:5], folder, progress=False)["errors"] == 0


def test_a_teacher_labels_what_gold_does_not_and_is_compared_where_it_does(program, world, tmp_path):
    teacher = ScriptedLM(lambda fields: {"verdict": "relevant", "sub_questions": ["Who?", "Where is #1?"]})
    bare = [question(f"In which town was {name} born?") for name in ("Ada", "Bo", "Cy")]
    made = collect(program, [*world.train[:10], *bare], tmp_path / "judges", teacher=teacher, progress=False)
    taught = [row for row in rows(tmp_path / "judges", "relevance") if row["source"]["labelled"] == "teacher"]
    assert {row["source"]["id"] for row in taught} == {example.id for example in bare}
    assert {row["verdict"] for row in taught} == {"relevant"}
    parts = [row for row in rows(tmp_path / "judges", "decomposition") if row["source"]["labelled"] == "teacher"]
    assert {example.question for example in bare} <= {row["question"] for row in parts}
    agreement = made["agreement"]["relevance"]
    gold = [row["verdict"] for row in rows(tmp_path / "judges", "relevance") if row["source"]["labelled"] == "gold"]
    # Who says "relevant" to everything agrees with gold by chance alone.
    assert agreement["agree"] == pytest.approx(gold.count("relevant") / len(gold))
    assert (agreement["kappa"], agreement["n"]) == (0.0, len(gold))
    assert 0 < agreement["low"] < agreement["agree"] < agreement["high"] < 1
    asked = 5 * len({row["question"] for row in rows(tmp_path / "judges", "know")}) + 13
    assert made["teacher"] == {"lm": teacher.model, **made["teacher"]} and made["teacher"]["calls"] == asked


def test_a_teacher_labels_lists_where_the_program_judges_lists(program, world, tmp_path):
    """The paper's prompts judge a question's passages together (its Tables 11-13)."""
    program = RAISF(program.retriever, k=5, relevance="listwise")
    program.set_lm(ScriptedLM(lambda fields: {"answer": "x"}))
    teacher = ScriptedLM(lambda fields: {"relevant_ids": [1, 3], "sub_questions": ["Who?", "Where is #1?"]})
    asked = [question("In which town was Ada born?"), *world.train[:6]]
    made = collect(program, asked, tmp_path / "j", teacher=teacher, progress=False)
    (taught,) = [row for row in rows(tmp_path / "j", "relevance") if row["source"]["labelled"] == "teacher"]
    assert taught["relevant_ids"] == [1, 3] and len(taught["passages"]) == 5
    assert made["agreement"]["relevance"]["n"] % 5 == 0, "passage by passage"
    read = JudgeRows.read(tmp_path / "j")
    assert {row.verdict for row in read.of["relevance"] if row.question == asked[0].question} == {"relevant"}


def test_what_a_teacher_lists_is_read_as_the_program_reads_it(program, world, tmp_path):
    """Else a folder that was paid for would be refused for a number, or for an empty question, of one reply."""
    program = RAISF(program.retriever, k=5, relevance="listwise")
    program.set_lm(ScriptedLM(lambda fields: {"answer": "x"}))
    parts = {"Ada": ["", "Who? ", "Where is #1?"], "Bo": ["Who?"], "Cy": [" "]}  # these two are no decompositions
    said = {f"In which town was {name} born?": listed for name, listed in parts.items()}
    teacher = ScriptedLM(lambda fields: {"relevant_ids": [0, 2, 9], "sub_questions": said[fields["question"]]})
    collect(program, list(map(question, said)), tmp_path / "j", teacher=teacher, progress=False)
    read = JudgeRows.read(tmp_path / "j")
    assert [row.relevant_ids for row in read.of["relevance"]] == [[2]] * 3
    assert [row.sub_questions for row in read.of["decomposition"]] == [["Who?", "Where is #1?"]]


def test_kappa_is_cohens():
    """The figures of Cohen's own example of agreement beyond chance."""
    told = {("a", "a"): 20, ("a", "b"): 5, ("b", "a"): 10, ("b", "b"): 15}
    found = Agreement.of(pair for pair, n in told.items() for _ in range(n))
    assert (found.n, found.share.value, found.kappa) == (50, pytest.approx(0.7), pytest.approx(0.4))
    assert Agreement.of([("a", "a")]).kappa is None


def test_the_interval_of_an_agreement_takes_rows_of_one_question_together():
    """Five passages of one question are not five independent rows."""
    told = [("a", "a")] * 50 + [("a", "b")] * 50
    alone, grouped = (Agreement.of(told, groups).share for groups in (None, [n // 5 for n in range(100)]))
    assert alone.value == grouped.value == 0.5
    assert grouped.high - grouped.low > 1.5 * (alone.high - alone.low)
    assert Agreement.of([("a", "a")] * 9 + [("a", "b")]).share == proportion(9, 10)
    nothing = Agreement.of([])
    assert nothing.as_dict() == {"agree": None, "low": None, "high": None, "kappa": None, "n": 0}


def test_a_teacher_that_is_unreadable_on_one_thing_is_compared_on_the_others(program, world, tmp_path):
    """Questions that are asked again have told something already; calls are those that were made."""
    teacher = ScriptedLM(lambda fields: {"verdict": "relevant"})
    several = [example for example in world.train if len(example.sub_questions) > 1][:4]
    made = collect(program, several, tmp_path / "judges", teacher=teacher, progress=False)
    assert made["unfinished"] == len(several) and "decomposition" not in made["agreement"]
    assert made["agreement"]["relevance"]["n"] == len(rows(tmp_path / "judges", "relevance"))
    assert made["teacher"]["calls"] == len(teacher.calls)


def test_a_question_that_is_a_part_of_an_earlier_one_is_its_own(program, world, tmp_path, monkeypatch):
    """Its decomposition was looked for among the rows of the other one, in another chunk: a KeyError, rows lost."""
    first = next(example for example in world.train if len(example.sub_questions) > 1)
    again = first.copy(id="again", question=first.sub_questions[0], sub_questions=["Who?", "Where is #1?"])
    monkeypatch.setattr("raisf.optimize.judges.collect.CHUNK", 1)
    teacher = ScriptedLM(lambda fields: {"verdict": "relevant", "sub_questions": ["Who?", "Where is #1?"]})
    made = collect(program, [first, again], tmp_path / "judges", teacher=teacher, progress=False)
    parts = {row["source"]["id"]: row for row in rows(tmp_path / "judges", "decomposition")}
    assert parts["again"]["question"] == first.sub_questions[0] and len(parts) == 2
    assert made["agreement"]["decomposition"]["n"] == 2


def test_rows_of_other_questions_are_refused_and_a_tenth_is_held_out(program, world, tmp_path):
    collect(program, world.train, tmp_path / "judges", progress=False)
    read = JudgeRows.read(tmp_path / "judges")
    learnt, held = read.parts(world.train, world.dev)
    texts = [{row.question for rows in part.values() for row in rows} for part in (learnt, held)]
    assert texts[1] and not texts[0] & texts[1] and len(texts[1]) < len(texts[0]) / 3
    (whole, none) = read.parts(world.train, world.dev, hold_out=False)  # for who does not validate
    assert {row.question for rows in whole.values() for row in rows} == texts[0] | texts[1] and not any(none.values())
    with pytest.raises(InputError, match="that the training file does not hold"):
        read.parts([question("Who is Cy?")], world.dev)
    with pytest.raises(InputError, match=r"no row in .*judges is of a training question"):
        read.parts(world.dev, world.train)  # only those of --dev: gold would be learnt from instead
    with pytest.raises(InputError, match=r"has no know.jsonl"):
        JudgeRows.read(tmp_path)


def test_a_question_is_held_out_with_all_that_it_asks(tmp_path):
    """A sub-question that validates beside its own question in training tells how well that was learnt by heart."""
    asked = [
        question(f"Who is {n}'s heir?", sub_questions=[f"Who is {n}?", f"Is {n} rich?"], sub_answers=["x", "y"])
        for n in range(30)
    ]
    rows = [question(text, verdict="know") for one in asked for text in (one.question, *one.sub_questions)]
    learnt, held = (part["know"] for part in JudgeRows({"know": rows}, {}).parts(asked, [question("else?")]))
    numbers = [{re.search(r"\d+", row.question).group() for row in part} for part in (learnt, held)]
    assert not numbers[0] & numbers[1] and len(held) == 9 and len(learnt) == 81
    (one, none) = (part["know"] for part in JudgeRows({"know": rows[:3]}, {}).parts(asked[:1], [question("else?")]))
    assert len(one) == 3 and not none


def test_what_gold_says_of_a_shared_question_holds_wherever_it_is_asked(program, tmp_path, monkeypatch):
    """Which questions were collected together, and so a stop, decided on what counted as known."""
    monkeypatch.setattr(room, "CHUNK", 1)
    shared = {"sub_questions": ["Who is Ada?", "What is #1?"], "sub_answers": ["Bo", "x"]}
    train = [question("What is Ada to Bo?", **shared), question("Who is Ada?", known=True)]
    collect(program, train, tmp_path / "judges", labels="gold", progress=False)
    (row,) = (row for row in rows(tmp_path / "judges", "know") if row["question"] == "Who is Ada?")
    assert (row["verdict"], row["source"]["labelled"]) == ("know", "gold")


def test_what_answers_a_shared_question_is_relevant_wherever_it_is_asked(program, world, tmp_path, monkeypatch):
    """As which questions were collected together decided what was relevant, too."""
    asked = "By which river does the town lie?"
    first, second = (passage.pid for passage in program.retriever.search_many([asked], 2)[0])
    train = [question(asked, pid, gold_pids=[pid]) for pid in (first, second)]
    for chunk in (50, 1):
        monkeypatch.setattr(room, "CHUNK", chunk)
        collect(program, train, tmp_path / f"judges {chunk}", progress=False)
        verdicts = [row["verdict"] for row in rows(tmp_path / f"judges {chunk}", "relevance")]
        assert verdicts == ["relevant"] * 2 + ["irrelevant"] * (program.k - 2)


def test_a_near_duplicate_of_few_words_often_said_is_found():
    ours, theirs = ["la"] * 36 + ["deep", "wide", "calm", "blue"], ["la"] * 36 + ["calm", "blue"]
    assert overlap([question(" ".join(ours), "a")], [question(" ".join(theirs), "b")])


def test_a_row_s_weight_is_a_number_that_can_be_counted_with(program, world, tmp_path):
    collect(program, world.train[:6], tmp_path / "judges", progress=False)
    path = tmp_path / "judges" / "know.jsonl"
    first, *others = path.read_text().splitlines()

    def weighed(weight):
        path.write_text("\n".join([json.dumps({**json.loads(first), "weight": weight}), *others]) + "\n")
        return weight_of(JudgeRows.read(tmp_path / "judges").of["know"][0])

    assert [weighed(weight) for weight in (0, 0.5, 3)] == [0, 0.5, 3] and weighed(None) == 1
    for weight in (-1, float("nan"), float("inf"), "2", True, [1]):
        with pytest.raises(InputError, match=r"know.jsonl: the row of '.* has the weight .*: give 0 to 1,000,000"):
            weighed(weight)


def test_a_folder_of_another_collection_or_with_other_things_is_refused(program, world, tmp_path):
    (tmp_path / "judges").mkdir()
    (tmp_path / "judges" / ".collected.json._xeahq9d.partial").touch()  # a killed process's
    collect(program, world.train[:5], tmp_path / "judges", progress=False)
    with pytest.raises(InputError, match="another program, LM, teacher or training file"):
        collect(program, world.train[:6], tmp_path / "judges", progress=False)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="holds other things"):
        collect(program, world.train[:5], tmp_path / "thesis", progress=False)
    with pytest.raises(InputError, match="training set is empty"):
        collect(program, [], tmp_path / "none", progress=False)


def test_a_folder_whose_rows_were_labelled_by_earlier_rules_is_refused_not_gone_on_with(program, world, tmp_path):
    """Half of its rows would have been relevant by the one rule, and half by the other."""
    collect(program, world.train[:4], tmp_path / "judges", progress=False)
    state = tmp_path / "judges" / "collected.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "format": 2}))
    with pytest.raises(InputError, match="labelled or kept rows otherwise: give a new folder"):
        collect(program, world.train[:4], tmp_path / "judges", progress=False)


def test_splits_that_share_a_question_are_refused(program, world, tmp_path):
    with pytest.raises(InputError, match=r"in the test split too.*take them out"):
        collect(program, world.train, tmp_path / "judges", others={"test": world.train[3:4]}, progress=False)
    assert not (tmp_path / "judges").exists()
    check_disjoint(world.train, {"dev": world.dev})


LONG = "Who is the mayor of the town where the old mill on the river once stood in {}?"


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("Who wrote the book?", "who wrote book", True),
        ("Of all rivers, which one is by far the longest?", "Which one of all rivers is by far the longest?", True),
        (LONG.format("Ulm"), LONG.format("Bonn"), False),
        (LONG.format("it"), LONG.format("Bonn"), False),
        (LONG.format("Bonn"), LONG.format("it"), False),
        ("Who wrote Emma?", "Who wrote Persuasion?", False),
        ("What happened in 1914?", "What happened in 1915?", False),
        ("", "Who?", False),
    ],
)
def test_near_duplicates_are_found_and_other_questions_are_not(ours, theirs, same):
    assert bool(overlap([question(ours, "a")], [question(theirs, "b")])) is same


def test_the_closed_worlds_own_splits_do_not_overlap(tmp_path):
    from raisf.data.questions import load_questions
    from raisf.data.world.files import write_world

    write_world(tmp_path / "w", entities=600)
    train, dev, test = (load_questions(tmp_path / "w" / f"{split}.jsonl") for split in ("train", "dev", "test"))
    check_disjoint(train, {"dev": dev, "test": test})
