"""A public data set as a folder laid out like a closed world: questions to train, select and test on, their corpus."""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from raisf.data.datasets.catalog import BENCHMARKS, Benchmark, Source, file_source, hub_sources
from raisf.data.datasets.draws import Alike, Asked, Draw, draw_splits, same_words
from raisf.data.questions import like_a_list, numbered_row
from raisf.data.schemas import new_paragraphs, opened, paragraphs, schema_of
from raisf.utils.checks import check_named
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, check_replaceable, dump_line, read_json, write_json
from raisf.utils.text import clean

MANIFEST = "dataset.json"
SPLITS = ("train", "dev", "test")
DATASET = (MANIFEST, *(f"{name}.jsonl" for name in (*SPLITS, "corpus")))
"""All that lies in a data set's folder."""

_KEPT_FROM = {"train": ("dev", "test"), "dev": ("test",), "test": ()}
"""The splits whose questions a split must not hold."""


def write_dataset(
    name: str,
    out: Path | str,
    *,
    files: Mapping[str, Path | str] | None = None,
    splits: Sequence[str] | None = None,
    hub: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    n: int | None = None,
    seed: int = 0,
    alike: Alike = same_words,
    progress: bool = True,
) -> dict[str, Any]:
    """Writes a data set as a folder: train.jsonl, dev.jsonl, test.jsonl, corpus.jsonl, and dataset.json about them.

    `test` is what papers report on, the split that the data set itself calls dev or validation; `dev` is drawn from its
    training split, unless `files` has one. Which questions a split takes: see `raisf.data.datasets.draws.draw_splits`.
    Each file is in the order of its draw, so that its first questions are the draw of a smaller `n`. The corpus holds
    the paragraphs that the written questions bring along, each once; without paragraphs there is none.

    Memory holds the questions and a hash of each paragraph, never the paragraphs: sources are read twice.

    Args:
        name: One of `BENCHMARKS`.
        out: The folder; replaced whole when the new one is complete.
        files: Local files by split, in one of the schemas of `raisf.data.schemas`; None: the hub.
        splits: From the hub, which to write; None: those that are there. With `train` comes `dev`.
        hub: Another repository, or a folder with a copy of one; see `raisf.data.datasets.catalog.hub_sources`.
        config: A configuration of the repository.
        revision: A revision of it.
        n: Questions a split at most; None: all.
        seed: Of the draws.
        alike: Tells which training questions stand in dev or test, and which of dev in test; they are left out.
        progress: Show bars on standard error.

    Returns:
        What dataset.json holds: each split's size, kinds and source, what was left out, the corpus, and the seed.

    Raises:
        InputError: An unknown name, a source that cannot be read, a row that is no question or another data set's (the
            message says which), a split without questions, or a folder with other things, one of the files, or a split
            that is not written again, in it.
    """
    check_named("data set", name, BENCHMARKS)
    check_replaceable(out, *DATASET)
    for path in (files or {}).values():
        if Path(path).resolve().is_relative_to(Path(out).resolve()):
            raise InputError(f"{path} lies in {out}, which is replaced as a whole, it too: give another folder")
    benchmark = BENCHMARKS[name]
    if files:
        sources = {split: file_source(path) for split, path in files.items()}
    else:
        sources = hub_sources(benchmark, hub, config, revision)
    wanted = {*(files or splits or sources)}
    wanted |= {"dev"} if "train" in wanted else set()
    origin = {
        split: "train" if split == "dev" and "dev" not in sources else split for split in SPLITS if split in wanted
    }
    if missing := set(origin.values()) - sources.keys():
        raise InputError(f"{next(iter(sources.values())).place}: there is no {missing.pop()} split; leave it out")
    _check_kept(Path(out), origin)
    # Also those that are not written: what stands in them is not to be learnt from, or selected on.
    compared = [other for split in origin for other in _KEPT_FROM[split] if other in sources]
    read = {split: _read(benchmark, sources[split], progress) for split in dict.fromkeys([*origin.values(), *compared])}
    draws = draw_splits({split: asked for split, (asked, _) in read.items()}, origin, n, seed, alike)
    about: dict[str, Any] = {
        "dataset": name,
        "about": benchmark.about,
        "source": benchmark.source,
        "licence": benchmark.licence,
        "n": n,
        "seed": seed,
    }
    with atomic_folder(out, *DATASET) as folder:
        kinds, listed, corpus = _write(folder, benchmark, sources, draws, origin, progress)
        about["splits"] = {
            split: {
                "questions": len(draw.questions),
                "of": len(read[origin[split]][0]),
                "repeated": read[origin[split]][1],
                "left_out": draw.alike,
                "kinds": dict(kinds[split].most_common()),
                "answers_like_lists": listed[split],
                "from": sources[origin[split]].facts,
            }
            for split, draw in draws.items()
        }
        if corpus is not None:
            corpus["without_paragraphs"] = sum(len(draw.questions) for draw in draws.values()) - corpus["questions"]
        about["corpus"] = corpus
        write_json(folder / MANIFEST, about)
    return about


def name_of(folder: Path) -> str | None:
    """The name of the data set that a folder holds, by its dataset.json; None where there is none.

    Raises:
        InputError: That file does not name one.
    """
    about = folder / MANIFEST
    if not about.is_file():
        return None
    found = read_json(about)
    name = found.get("dataset") if isinstance(found, dict) else found
    if not isinstance(found, dict) or not isinstance(name, str | None):
        raise InputError(
            f"{about} does not name its data set: expected an object with a text under 'dataset', found {found!r:.60}; "
            "remove it, or make the folder again with `raisf dataset`"
        )
    return name


class _Corpus:
    """The file of paragraphs, each title and text once."""

    def __init__(self, path: Path):
        self._file = path.open("w", encoding="utf-8")
        self._seen: set[bytes] = set()
        self._complete = self._questions = 0

    def add(self, found: list[tuple[str, str]], gold_titles: list[str]) -> None:
        """Adds a question's paragraphs."""
        for pid, title, text in new_paragraphs(found, self._seen):
            self._file.write(dump_line({"id": pid, "title": title, "text": text}))
        self._questions += 1
        self._complete += bool(gold_titles) and {clean(title) for title, _ in found}.issuperset(gold_titles)

    def facts(self) -> dict[str, int]:
        """How many paragraphs there are, of how many questions, and how many of those find all their gold in them."""
        return {"passages": len(self._seen), "questions": self._questions, "with_all_gold": self._complete}

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


def _check_kept(out: Path, written: Collection[str]) -> None:
    """Raise InputError where a folder has splits that are not written again: it is replaced as a whole."""
    if lost := [f"{split}.jsonl" for split in SPLITS if split not in written and (out / f"{split}.jsonl").is_file()]:
        raise InputError(
            f"{out} has {' and '.join(lost)}, which would be gone: give all splits in one command "
            "(--from FILE --split train --from FILE --split test), or another --out"
        )


def _read(benchmark: Benchmark, source: Source, progress: bool) -> tuple[list[Asked], int]:
    """All questions of a source, every one checked, and how many rows only repeat one that came before."""
    asked: list[Asked] = []
    seen: dict[str, int] = {}
    answers: list[bytes] = []
    repeated = 0
    for number, raw in enumerate(_rows_with_bar(source, "reading", progress), start=1):
        schema = schema_of(raw)
        # Copies of 2WikiMultihopQA may be in HotpotQA's schema, but have none of its levels.
        if schema not in (*benchmark.schemas, "plain") or (benchmark.name == "2wiki" and "level" in opened(raw)):
            raise InputError(
                f"{source.place}, question {number}: a row of {schema}, not of {benchmark.name}; name the right one"
            )
        row = numbered_row(source.place, number, raw)
        earlier = seen.setdefault(row["id"], len(asked))
        told = hashlib.sha256(repr(sorted(row["answers"])).encode("utf-8", "replace")).digest()[:16]
        if earlier == len(asked):
            asked.append(Asked(number, row["question"]))
            answers.append(told)
        elif asked[earlier].question == row["question"] and answers[earlier] == told:
            repeated += 1
        else:
            same = asked[earlier].question == row["question"]
            apart = "have other answers: put all answers of a question in one row"
            raise InputError(
                f"{source.place}: questions {asked[earlier].number} and {number} share the id {row['id']!r}, and "
                + (apart if same else "are not the same; give each its own")
            )
    if not asked:
        raise InputError(f"{source.place} holds no questions")
    return asked, repeated


def _write(
    folder: Path,
    benchmark: Benchmark,
    sources: Mapping[str, Source],
    draws: Mapping[str, Draw],
    origin: Mapping[str, str],
    progress: bool,
) -> tuple[dict[str, Counter[str]], Counter[str], dict[str, int] | None]:
    """Writes what was drawn, in the order of the draw, and its paragraphs.

    Returns:
        The kinds of each split; of how many questions in it the answer is one text that looks like a list, as some
        copies have them, and which nothing that an LM says equals; and what the corpus is.
    """
    listed: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {split: Counter() for split in draws}
    corpus: _Corpus | None = None
    lines: dict[str, dict[int, bytes]] = {split: {} for split in draws}
    split_of: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for name in dict.fromkeys(origin[split] for split in draws):
            source = sources[name]
            place = {a.number: split for split, draw in draws.items() if origin[split] == name for a in draw.questions}
            for number, raw in enumerate(_rows_with_bar(source, "writing", progress), start=1):
                if number not in place:
                    continue
                split, row = place[number], numbered_row(source.place, number, raw)
                if (other := split_of.setdefault(row["id"], split)) != split and not row["id"].isdigit():
                    raise InputError(
                        f"{source.place}, question {number}: a question of {other} has its id, {row['id']!r}, too, and "
                        "what is compiled or compared would take them for one: give each its own"
                    )
                if benchmark.scoring:
                    row["scoring"] = benchmark.scoring
                kinds[split][row["kind"]] += 1
                listed[split] += like_a_list(row["answers"])
                try:
                    found = paragraphs(raw)
                    if found and schema_of(raw) == "strategyqa":
                        row["gold_titles"] = []  # of Wikipedia's articles: of the facts, none is known to be enough
                    lines[split][number] = dump_line(row).encode()
                    if found:
                        corpus = corpus or stack.enter_context(contextlib.closing(_Corpus(folder / "corpus.jsonl")))
                        corpus.add(found, row["gold_titles"])
                except ValueError as error:  # half a character, which no file can hold, is one too
                    raise InputError(f"{source.place}, question {number}: {error}") from error
    for split, draw in draws.items():
        # Sets are sorted by kind, as MuSiQue is by hops: the first N of a file are to be a sample of it.
        with (folder / f"{split}.jsonl").open("wb") as file:
            file.writelines(lines[split].pop(asked.number) for asked in draw.questions)
    return kinds, listed, corpus.facts() if corpus else None


def _rows_with_bar(source: Source, doing: str, progress: bool) -> Iterator[dict[str, Any]]:
    """A source's rows, with a bar on standard error."""
    from raisf.utils.progress import ProgressBars

    with ProgressBars(progress) as bars:
        yield from bars.track(source.rows(), source.count, description=f"{doing} {source.place}")
