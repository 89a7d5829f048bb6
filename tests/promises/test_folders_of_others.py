"""What is written takes the place of what the same command wrote before, and of nobody else's files."""

import json
from pathlib import Path

import pytest

from raisf import cli
from raisf.experiments.pages import write_experiment
from raisf.optimize.artifact import ARTIFACT, save
from raisf.programs.baselines.direct import Direct
from raisf.reports.report import check_folder
from raisf.reports.sections import Section, write_sections
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, check_replaceable


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Graz is a city on the Mur.")
    return tmp_path / "docs"


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    "files",
    [
        {"manifest_json": '{"name": "My App"}', "src__main_js": "precious"},
        {"manifest_json": '{"name": "My App"}'},
        {"manifest_json": "{}", "segments__notes_txt": "precious", "thesis_txt": "precious"},
    ],
)
def test_a_folder_with_a_manifest_of_its_own_is_no_index(files: dict[str, str], docs: Path, tmp_path: Path, capsys):
    """A web page's folder was replaced, its sources gone."""
    other = put(tmp_path / "other", **files)
    before = files_below(other)
    assert cli.main(["index", str(docs), "--out", str(other), "--engine", "bm25"]) == 2
    assert "which would be replaced" in capsys.readouterr().err and files_below(other) == before


def test_a_program_is_not_replaced_by_an_index_nor_an_index_by_a_program(docs: Path, tmp_path: Path, capsys):
    save(Direct(), tmp_path / "program")
    assert cli.main(["index", str(docs), "--out", str(tmp_path / "index"), "--engine", "bm25", "--json"]) == 0
    before = {name: files_below(tmp_path / name) for name in ("program", "index")}
    assert cli.main(["index", str(docs), "--out", str(tmp_path / "program"), "--engine", "bm25"]) == 2
    with pytest.raises(InputError, match=r"holds other things \(.*segments"):
        save(Direct(), tmp_path / "index")
    with pytest.raises(InputError, match="holds other things"):
        check_replaceable(tmp_path / "index", *ARTIFACT)
    assert {name: files_below(tmp_path / name) for name in ("program", "index")} == before
    for name in before:
        (tmp_path / name / ".DS_Store").touch()  # a Mac puts one into every folder that was looked at
    save(Direct(max_calls=3), tmp_path / "program")
    assert cli.main(["index", str(docs), "--out", str(tmp_path / "index"), "--engine", "bm25", "--json"]) == 0


def test_a_world_with_notes_in_it_stays(tmp_path: Path, capsys):
    assert cli.main(["world", "--out", str(tmp_path / "w"), "--entities", "300", "--json"]) == 0
    put(tmp_path / "w", notes_txt="mine")
    before = files_below(tmp_path / "w")
    assert cli.main(["world", "--out", str(tmp_path / "w"), "--entities", "300"]) == 2
    assert "holds other things (notes.txt)" in capsys.readouterr().err and files_below(tmp_path / "w") == before


def test_a_folder_of_notes_is_no_report_and_a_report_may_hold_notes(tmp_path: Path):
    out = put(tmp_path / "out", notes_md="# Ours")
    with pytest.raises(InputError, match=r"holds other things \(notes.md"):
        check_folder(out)
    put(out, results_json='{"facts": {}}')
    check_folder(out)


def test_a_report_whose_results_a_power_cut_has_emptied_is_known_by_its_answers(tmp_path: Path):
    """Every question would have to be asked again, in a new folder."""
    out = put(tmp_path / "out", results_json="", answers_csv="program")
    with pytest.raises(InputError, match="holds other things"):
        check_folder(out)
    check_folder(put(out, **{"records__rag.meta.json": "{}"}))
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file: give a folder for the report"):
        check_folder(tmp_path / "file")


@pytest.mark.parametrize("stray", [".cost-1.svg._xeahq9d.partial", ".DS_Store", ".nfs00000001"])
def test_a_report_goes_on_beside_what_a_killed_command_a_mac_or_a_network_disk_left(stray: str, tmp_path: Path):
    """Every question would have to be asked again, in a new folder."""
    out = put(tmp_path / "out", results_json='{"facts": {}}')
    (out / stray).touch()
    check_folder(out)
    put(out, thesis_txt="years of work")
    with pytest.raises(InputError, match=r"holds other things \(thesis.txt\)"):
        check_folder(out)


def test_tables_of_ones_own_beside_a_reports_are_never_deleted(tmp_path: Path):
    """All that the next report did not have were, those of a folder too that had `records` for a sub-folder."""
    study = put(tmp_path / "study", records__a_txt="1", patients_csv="a,b", plot_svg="<svg/>")
    with pytest.raises(InputError, match=r"holds other things \(patients.csv, plot.svg"):
        check_folder(study)
    out, facts = tmp_path / "out", {"data": "d"}
    (out / "real").mkdir(parents=True)
    for name in ("a b", "c"):  # the second time another table, whose predecessor goes
        write_experiment(out, "real", dict(facts), [Section(name, ["program", "x"], [["a", 1]])], {})
        put(out / "real", mine_csv="x")
        check_folder(out, ("real",))
    assert sorted(file.name for file in (out / "real").iterdir()) == ["c.csv", "mine.csv", "results.json"]
    put(
        out / "real", results_json='{"facts": {}, "files": ["../../study/patients.csv", 7, "notes.txt"]}', notes_txt="x"
    )
    write_sections([], out / "real")
    assert (study / "patients.csv").is_file() and (out / "real/notes.txt").is_file()


def test_a_model_of_somebody_elses_is_not_replaced_by_a_pocket_llama(tmp_path: Path, capsys):
    model = put(tmp_path / "m", config_json="{}", model_safetensors="x", tokenizer_json="{}")
    before = files_below(model)
    assert cli.main(["pocket", "train", "--out", str(model), "--size", "tiny", "--tokens", "8192"]) == 2
    assert "holds other things (no manifest.json)" in capsys.readouterr().err and files_below(model) == before


def test_tables_and_results_of_somebody_elses_are_not_replaced_by_a_report(tmp_path: Path, capsys):
    own = put(tmp_path / "res", results_json='{"mine": 1}', answers_csv="a,b", report_html="<p>mine</p>")
    before = files_below(own)
    test = tmp_path / "test.jsonl"
    test.write_text(json.dumps({"question": "Who?", "answer": "Ada"}) + "\n")
    told = ["compare", "--programs", "direct", "--test", str(test), "--lm", "pocket", "--out", str(own)]
    assert cli.main(told) == 2
    assert "holds other things" in capsys.readouterr().err and files_below(own) == before


def test_the_folder_that_one_is_in_is_refused_before_the_work(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    """It cannot be renamed: the work was done, and thrown away."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert cli.main(["index", str(docs), "--out", ".", "--engine", "bm25"]) == 2
    assert "is the folder that you are in" in capsys.readouterr().err


def test_from_a_folder_that_is_gone_absolute_paths_work_and_relative_ones_are_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    check_replaceable(tmp_path / "new", "marker")
    assert cli.main(["world", "--entities", "300", "--out", "w"]) == 2
    assert "the folder that you are in has been deleted" in capsys.readouterr().err


def test_a_page_of_records_does_not_replace_the_records(tmp_path: Path, capsys):
    records = put(tmp_path, m_jsonl='{"id": "1"}\n') / "m.jsonl"
    assert cli.main(["view", str(records), "--export", str(records)]) == 2
    assert "is no page" in capsys.readouterr().err and records.read_text() == '{"id": "1"}\n'


def test_an_index_is_no_document(docs: Path, tmp_path: Path, capsys):
    """It was replaced by an index of its own passages."""
    assert cli.main(["index", str(docs), "--out", str(tmp_path / "i"), "--engine", "bm25", "--json"]) == 0
    assert cli.main(["index", str(tmp_path / "i"), "--out", str(tmp_path / "j"), "--engine", "bm25"]) == 2
    assert "is an index or a compiled program" in capsys.readouterr().err


def test_a_folder_that_a_refused_experiment_has_left_is_free(tmp_path: Path) -> None:
    """Its lock was another's thing, and the next command wanted another folder."""
    assert cli.main(["experiment", "table1", "--data", str(tmp_path / "nosuch"), "--out", str(tmp_path / "new")]) == 2
    assert [one.name for one in (tmp_path / "new").iterdir()] == [".lock"]
    with atomic_folder(tmp_path / "new", "marker") as made:
        (made / "marker").touch()
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["marker"]
