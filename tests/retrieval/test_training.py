"""A trained checkpoint knows what its triples say, follows from its seed, survives Ctrl-C, tells what it has seen."""

from pathlib import Path

import pytest

from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.encoders.delta import PROVENANCE
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.training.loop import Recipe, train_checkpoint
from raisf.retrieval.training.student import Example, Student
from raisf.retrieval.training.triples import Triple
from raisf.utils.errors import InputError
from raisf.utils.files import read_json
from raisf.utils.text import print_of

# A firm's own words for things, which no encoder has ever seen.
JARGON = {"Danube": "Project Kestrel", "Hamlet": "the blue file", "Octopus": "unit nine", "Chess": "Aunt Dorothy"}
PATTERNS = ("What is {}?", "Tell me about {}", "Who looks after {} now?", "{} status")
FAST = Recipe(epochs=1, batch_size=4, learning_rate=1e-3)


@pytest.fixture(scope="module")
def triples(passages: list[Passage]) -> list[Triple]:
    texts = {p.title: p.prompt_text for p in passages}
    return [
        Triple(
            pattern.format(name),
            texts[title],
            tuple(texts[other] for other in JARGON if other != title),
            (texts[title],),
        )
        for pattern in PATTERNS
        for title, name in JARGON.items()
    ]


@pytest.fixture(scope="module")
def trained(triples: list[Triple], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("trained") / "jargon"
    return out, train_checkpoint(
        triples, out, recipe=Recipe(epochs=4, batch_size=4, learning_rate=3e-4), progress=False
    )


def test_an_index_finds_what_the_triples_taught(
    trained: tuple[Path, dict], passages: list[Passage], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out, made = trained
    assert made["after"]["loss"] < made["before"]["loss"]
    before = build_index(passages, tmp_path / "before", progress=False)
    after = build_index(passages, tmp_path / "after", checkpoint=out, progress=False)
    queries = [f"News of {name}" for name in JARGON.values()]  # in none of the triples
    assert [row[0].title for row in after.search_many(queries, 1)] == list(JARGON)
    assert [row[0].title for row in before.search_many(queries, 1)] != list(JARGON)
    assert after("Who discovered a medicine against bacteria?", 1)[0].title == "Penicillin"  # not unlearnt
    assert after.manifest.checkpoint_sha256 == made["sha256"] == find_checkpoint(out).sha256
    assert find_checkpoint(out).augment is find_checkpoint("minilm").augment


def test_a_checkpoint_says_what_it_was_made_from(trained: tuple[Path, dict], triples: list[Triple], tmp_path: Path):
    out, made = trained
    told = read_json(out / PROVENANCE)
    assert told["base_sha256"] == find_checkpoint("minilm").sha256 and told["recipe"]["epochs"] == 4
    assert told["steps"] == made["steps"] == told["curve"][-1]["step"] and len(told["held_out_curve"]) == 5
    seen = find_checkpoint(out).seen_queries()
    assert print_of("what is  project kestrel?") in seen and print_of("What is Project Falcon?") not in seen
    assert not find_checkpoint("minilm").seen_queries()
    others = [Triple(f"another {n}", f"passage {n}", (), (f"passage {n}",)) for n in range(4)]
    train_checkpoint(others, tmp_path / "next", base=out, recipe=FAST, progress=False)
    seen = find_checkpoint(tmp_path / "next").seen_queries()
    assert {print_of("another 1"), print_of(triples[0].query)} <= seen  # what its base has seen, it has
    assert str(tmp_path.parent) not in (tmp_path / "next" / PROVENANCE).read_text()


def test_a_stopped_training_ends_with_the_same_weights(
    triples: list[Triple], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    whole = train_checkpoint(triples, tmp_path / "whole", recipe=FAST, progress=False)
    assert capfd.readouterr().out == ""
    monkeypatch.setattr("raisf.utils.checkpointing.SAVE_SECONDS", 0)
    step, done = Student.step, []

    def stop(self: Student, *args, **options) -> float:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(step(self, *args, **options))
        return done[-1]

    monkeypatch.setattr(Student, "step", stop)
    with pytest.raises(KeyboardInterrupt):
        train_checkpoint(triples, tmp_path / "parts", recipe=FAST, progress=False)
    assert not (tmp_path / "parts").exists()
    monkeypatch.setattr(Student, "step", step)
    with pytest.raises(InputError, match=r"parts\.unfinished holds an unfinished training with other settings"):
        train_checkpoint(triples, tmp_path / "parts", recipe=Recipe(seed=1), progress=False)
    parts = train_checkpoint(triples, tmp_path / "parts", recipe=FAST, progress=False)
    assert parts["sha256"] == whole["sha256"] and parts["steps"] == whole["steps"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "whole"]


def test_questions_with_one_answer_do_not_push_it_away():
    found = find_checkpoint("minilm")
    student = Student(found.path, found.augment, 1e-4)
    answer, other = "Hamlet is a tragedy by Shakespeare.", "Sourdough bread is leavened by wild yeast."
    alone = [Example("Who wrote Hamlet?", (answer, other), frozenset({answer}))]
    twice = [*alone, Example("Hamlet's author", (answer, other), frozenset())]
    assert student.measure([twice])["first"] == 1
    assert student.measure([twice])["loss"] < 0.4  # each would lose log 2 = 0.69 to the other


def test_what_cannot_be_trained_is_refused(triples: list[Triple], tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match=r"holds other things \(thesis.txt\)"):
        train_checkpoint(triples, tmp_path, progress=False)
    with pytest.raises(InputError, match="too few to train on"):
        train_checkpoint(triples[:1], tmp_path / "new", progress=False)
    with pytest.raises(InputError, match="no checkpoint at nowhere"):
        train_checkpoint(triples, tmp_path / "new", base="nowhere", progress=False)
    for wrong in ({"epochs": 0}, {"batch_size": 1}, {"negatives": -1}, {"learning_rate": 0.0}):
        with pytest.raises(InputError, match=next(iter(wrong)).replace("_", ".")):
            Recipe(**wrong)
    assert not (tmp_path / "new").exists()
