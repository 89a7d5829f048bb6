"""What an installation adds to a user's project: one importable name, `raisf`, and nothing that hides hers.

Each environment is fresh; the libraries come from the one that runs the tests, by a `.pth` file behind it.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
LIBRARIES = sysconfig.get_paths()["purelib"]
PACKAGES = ("programs", "signatures", "optimize", "data", "retrieval", "lm", "evaluation", "utils")
FILES = {
    "data.py": "MINE = 'data'",
    "lm.py": "MINE = 'lm'",
    "retrieval.py": "MINE = 'retrieval'",
    "evaluation/__init__.py": "MINE = 'evaluation'",
    "programs/__init__.py": "MINE = 'programs'",
    "utils/__init__.py": "",
    "utils/errors.py": "MINE = 'utils.errors'",
    "optimize/loader.py": "MINE = 'a namespace package'",
}
IMPORTS = """
import data, evaluation, lm, programs, retrieval, utils.errors, optimize.loader
for module in (data, evaluation, lm, programs, retrieval, utils.errors, optimize.loader):
    assert module.__file__.startswith(HERE), module.__file__
    assert module.MINE
"""
USE = """
import raisf
assert not raisf.__file__.startswith(HERE)
assert raisf.RAISF and raisf.connect and raisf.compile and raisf.BM25
from raisf import cli
assert cli.main(["programs", "--json"]) == 0
"""


def _pip(*argv: object, python: Path | str = sys.executable) -> None:
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, argv)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def _environment(folder: Path) -> Path:
    """A fresh environment's python, which finds the libraries that the tests have, and not their raisf."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    # By `sys.path` alone: the .pth files over there, that of an editable raisf among them, are not read.
    (packages / "libraries.pth").write_text(LIBRARIES)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _pip("wheel", ROOT, "--no-deps", "--no-build-isolation", "--no-index", "-w", folder)
    (made,) = folder.glob("raisf-*.whl")
    return made


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Path]:
    python = _environment(tmp_path_factory.mktemp(request.param) / "venv")
    what = [wheel] if request.param == "wheel" else ["--editable", ROOT]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed"]
    _pip("--python", python, "install", *options, *what)
    yield python


def _added(python: Path) -> set[str]:
    """The names that can be imported because of what was installed."""
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    places = [packages]
    for file in packages.glob("*raisf*.pth"):
        places += [Path(line) for line in file.read_text().split()]
    found = {entry.name.partition(".")[0] for place in places for entry in place.iterdir() if _importable(entry)}
    return found - {"_raisf", "libraries", "__pycache__"}


def _importable(entry: Path) -> bool:
    return entry.suffix in (".py", ".so") or (entry.is_dir() and entry.suffix == "")


def test_a_wheel_holds_one_name_with_its_weights_and_templates(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"raisf"}
    wanted = {
        "raisf/lm/pocket/weights/model.safetensors",
        "raisf/lm/pocket/weights-tiny/tokenizer.json",
        "raisf/lm/pocket/weights-t5/config.json",
        "raisf/reports/page.html.j2",
        "raisf/data/world/generator.py",
        "raisf/commands/ask.py",
        "raisf/programs/baselines/rag.py",
    }
    assert wanted <= set(names)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    sources = {f"raisf/{name}" for name in tracked if name.endswith(".py") and name.partition("/")[0] in PACKAGES}
    sources |= {name.removeprefix("src/") for name in tracked if name.startswith("src/raisf/") and name.endswith(".py")}
    assert sources <= set(names), "every module is in the wheel"


def test_a_wheel_made_of_the_source_archive_is_whole_and_holds_no_data_set_of_ones_own(wheel, tmp_path):
    """`python -m build` makes the archive first, and the wheel of that."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (packed,) = tmp_path.glob("raisf-*.tar.gz")
    with tarfile.open(packed) as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from Python 3.11.4 on
        archive.extractall(tmp_path, **safely)
    folder = tmp_path / packed.name.removesuffix(".tar.gz")
    (folder / "src/raisf/data/hers").mkdir(parents=True)  # in a checkout it is data/hers, which the link leads to
    (folder / "src/raisf/data/hers/train.jsonl").write_text("{}")
    (folder / "src/raisf/data/train.jsonl").write_text("{}")
    _pip("wheel", folder, "--no-deps", "--no-build-isolation", "--no-index", "-w", tmp_path)
    (made,) = tmp_path.glob("raisf-*.whl")
    assert sorted(zipfile.ZipFile(made).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_an_installation_adds_one_importable_name(installed):
    assert _added(installed) == {"raisf"}


@pytest.mark.parametrize("first", ["hers", "ours"])
def test_raisf_and_a_strangers_project_do_not_get_in_each_others_way(installed, tmp_path, first):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/loader.py").write_text("MINE = 'hidden by data.py, as Python has it'")
    order = [IMPORTS, USE] if first == "hers" else [USE, IMPORTS]
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); HERE = {str(tmp_path)!r}\n" + "\n".join(order)
    run = subprocess.run([installed, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=_plain())
    assert run.returncode == 0, run.stderr[-3000:]


def test_a_folder_named_data_without_an_init_stays_hers(installed, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/loader.py").write_text("MINE = 'a namespace package'")
    code = "import raisf; raisf.write_world; import data.loader; print(data.loader.MINE)"
    run = subprocess.run([installed, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=_plain())
    assert run.returncode == 0 and "a namespace package" in run.stdout, run.stderr[-3000:]


def test_the_command_is_there_and_finds_a_module_in_the_working_folder(installed, tmp_path):
    (tmp_path / "data.py").write_text(
        "import dspy\nclass Mine(dspy.Module):\n    def forward(self, question):\n"
        "        return dspy.Prediction(answer='from her data.py')\n"
    )
    command = [installed.with_name("raisf"), "ask", "Who?", "--program", "data:Mine"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=_plain())
    assert run.stdout == "from her data.py\n", run.stderr[-3000:]


def _plain() -> dict[str, str]:
    """The environment without what leads Python to this checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
