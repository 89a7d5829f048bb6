"""The papers' data sets: what each is, what the papers count, and where its rows come from: the hub or local files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raisf.data.rows import read_rows
from raisf.utils.errors import InputError
from raisf.utils.files import check_file, sha256_file

TEST_SPLIT = "validation"
"""The hub's split that becomes `test`: what papers report on, since the answers of most test splits are not public."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A public data set.

    Attributes:
        name: Its name on the command line.
        hub: The repository on the hub, without a loading script.
        config: Its configuration there; None where it has one only.
        files: How its original files are called.
        about: What its splits are, in questions, and what the papers count.
        source: The paper.
        licence: As its authors state it.
        schemas: The schemas of its copies (`raisf.data.schemas.schema_of`); "plain" besides.
        test: The hub's split that becomes `test`.
        scoring: The rule that its answers are compared by, where it is not SQuAD's.
    """

    name: str
    hub: str
    config: str | None
    files: str
    about: str
    source: str
    licence: str
    schemas: tuple[str, ...]
    test: str = TEST_SPLIT
    scoring: str | None = None


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "nq",
            "google-research-datasets/nq_open",
            None,
            "NQ-open.train.jsonl, NQ-open.dev.jsonl",
            "NQ-open: train 87,925, validation 3,610; the field tests on the latter. RA-ISF counts 7,830, which is the "
            "development set of Natural Questions before questions without a short answer are left out",
            "Kwiatkowski et al. 2019; Lee et al. 2019 (NQ-open)",
            "CC BY-SA 3.0",
            (),
        ),
        Benchmark(
            "triviaqa",
            "mandarjoshi/trivia_qa",
            "unfiltered.nocontext",
            "unfiltered-web-train.json, unfiltered-web-dev.json",
            "unfiltered: train 87,622, validation 11,313, on which open-domain systems report. RA-ISF counts 17,210, "
            "which is the test split of the reading part (--config rc.nocontext), whose answers are not public",
            "Joshi et al. 2017",
            "not stated for the questions; the code is Apache-2.0",
            ("triviaqa",),
            scoring="triviaqa",
        ),
        Benchmark(
            "popqa",
            "akariasai/PopQA",
            None,
            "popQA.tsv",
            "14,267 questions about one fact each, from known things to obscure ones, in one split. Neither paper "
            "reports on it: it is for what the LM knows by itself",
            "Mallen et al. 2023",
            "MIT",
            (),
            test="test",
        ),
        Benchmark(
            "hotpotqa",
            "hotpotqa/hotpot_qa",
            "distractor",
            "hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json, hotpot_dev_fullwiki_v1.json",
            "train 90,447, validation 7,405, on which both papers report",
            "Yang et al. 2018",
            "CC BY-SA 4.0",
            ("hotpotqa",),
        ),
        Benchmark(
            "strategyqa",
            "ChilleD/StrategyQA",
            None,
            "strategyqa_train.json (with gold decompositions), or BIG-bench's task.json",
            "2,290 questions with answers, here parted 1,603 and 687; BIG-bench has 2,289. RA-ISF counts 1,780, the "
            "size of no published split",
            "Geva et al. 2021",
            "MIT",
            ("strategyqa", "bigbench"),
            test="test",
        ),
        Benchmark(
            "2wiki",
            "framolfese/2WikiMultihopQA",
            None,
            "train.json, dev.json",
            "train 167,454, validation 12,576. RA-ISF counts 2,935, the size of no published split",
            "Ho et al. 2020",
            "Apache-2.0",
            ("2wiki", "hotpotqa"),
        ),
        Benchmark(
            "musique",
            "dgslibisey/MuSiQue",
            None,
            "musique_ans_v1.0_train.jsonl, musique_ans_v1.0_dev.jsonl",
            "MuSiQue-Ans: train 19,938, validation 2,417, each with its gold decomposition",
            "Trivedi et al. 2022",
            "CC BY 4.0",
            ("musique",),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rows of one split come from.

    Attributes:
        place: For messages.
        facts: What tells this source from another: a file and its hash, or a repository and its revision.
        rows: The rows as they stand there, streamed; may be called more than once.
        count: How many there are; None where only reading tells.
    """

    place: str
    facts: dict[str, Any]
    rows: Callable[[], Iterator[dict[str, Any]]]
    count: int | None = None


def file_source(path: Path | str) -> Source:
    """A local file in one of the schemas of `raisf.data.schemas`.

    Raises:
        InputError: There is no such file.
    """
    path = Path(path)
    check_file(path)
    return Source(str(path), {"file": path.name, "sha256": sha256_file(path)}, lambda: read_rows(path))


def hub_sources(benchmark: Benchmark, hub: str | None, config: str | None, revision: str | None) -> dict[str, Source]:
    """The splits `train` and `test` from the hub, downloaded once and kept in the cache of the library `datasets`.

    Args:
        benchmark: The data set.
        hub: Another repository with rows in one of the known schemas, or a folder with a copy of one.
        config: Another configuration of it.
        revision: A branch, tag or commit; None: the newest. The commit that was read is in the sources' facts.

    Raises:
        InputError: The repository cannot be reached or read, or has no such split; the message names the other way.
    """
    # Parquet and JSON Lines only: this library has not run code from repositories since its version 4.
    import datasets
    import httpx
    from datasets.exceptions import DatasetsError

    repository = hub or benchmark.hub
    config = config or (benchmark.config if hub is None else None)
    try:
        builder = datasets.load_dataset_builder(repository, config, revision=revision)
        builder.download_and_prepare()
        splits: dict[str, Any] = {
            split: builder.as_dataset(split=name) for split, name in _names(builder, benchmark).items()
        }
    except (OSError, ValueError, RuntimeError, httpx.HTTPError, DatasetsError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"cannot load {benchmark.name} from {repository}: {reason}; where no hub can be reached, give the data "
            f"set's own files ({benchmark.files}) with --from FILE, or a copy of the repository with --hub FOLDER"
        ) from error
    facts = {"hub": repository, "config": builder.config.name, "revision": builder.hash}
    return {
        split: Source(f"{repository}, {rows.split}", facts | {"split": str(rows.split)}, rows.__iter__, len(rows))
        for split, rows in splits.items()
    }


def _names(builder: Any, benchmark: Benchmark) -> dict[str, str]:
    """The names on the hub of the splits `train` and `test`, as far as there are any."""
    having = set(builder.info.splits or ())
    test = next((name for name in (benchmark.test, TEST_SPLIT, "test") if name in having), None)
    if not having & {"train", test}:
        raise ValueError(f"it has neither a train nor a validation split, but {', '.join(sorted(having)) or 'none'}")
    names = {"train": "train"} if "train" in having else {}
    return names | ({"test": test} if test else {})
