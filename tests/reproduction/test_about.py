"""The origin of a study's tables: the commit of a clone, and the machine."""

import subprocess
from pathlib import Path

import simfl
from simfl.reproduction.about import MODULES, ROOMS, code_of, processor
from simfl.version import commit


def fresh(folder):
    commit.cache_clear()
    return commit(folder)


def git(folder, *arguments):
    user = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(("git", *user, "-C", str(folder), *arguments), check=True, capture_output=True)


def test_a_folder_that_is_not_a_clone_has_no_commit(tmp_path):
    assert fresh(tmp_path) == ""
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert fresh(tmp_path) == "", "a damaged clone has none either"


def test_a_clone_says_if_its_code_differs_from_the_commit(tmp_path):
    (tmp_path / "simfl").mkdir()
    (tmp_path / "simfl" / "a.py").write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    first = fresh(tmp_path)
    assert len(first) == 10
    (tmp_path / "notes.md").write_text("an untracked file is no part of the code\n")
    assert fresh(tmp_path) == first
    (tmp_path / "simfl" / "a.py").write_text("2\n")
    assert fresh(tmp_path) == f"{first}, changed"


def test_the_processor_has_a_name(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: A Processor @ 2 GHz\nmodel name\t: A Processor @ 2 GHz\n")
    assert processor(info) == "A Processor @ 2 GHz"
    assert processor(tmp_path / "missing"), "what Python knows of the machine"


def test_rooms_and_modules_of_every_study_are_there():
    package = Path(simfl.__file__).parent
    assert [name for name in (*ROOMS, *MODULES) if not (package / name).exists()] == []


def test_the_code_of_a_study_is_what_its_runs_go_through(tmp_path):
    package = tmp_path / "simfl"
    files = {
        "papers/mine/study.py": "from simfl.accounts import check\nfrom simfl.papers.theirs.study import x\n",
        "papers/theirs/study.py": "from simfl.papers import moments\nx = 1\n",
        "papers/moments.py": "1\n",
        "papers/other/study.py": "1\n",
        "tape/tape.py": '"""Tapes."""\n\nx = 1\n',
        "accounts/check.py": "1\n",
        "attacks/audit.py": "1\n",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    before = code_of("mine", package)
    for name, text, changes in (
        ("papers/other/study.py", "2\n", False),
        ("papers/theirs/study.py", "from simfl.papers import moments\nx = 2\n", True),
        ("papers/moments.py", "2\n", True),
        ("attacks/audit.py", "2\n", False),
        ("accounts/check.py", "2\n", True),
        ("tape/tape.py", '"""Another\n\ndocstring."""\n# a comment\n\nx = 1\n', False),
        ("tape/tape.py", '"""Tapes."""\n\nx = 2\n', True),
    ):
        copy = tmp_path / str(len(list(tmp_path.iterdir()))) / "simfl"
        for other, content in {**files, name: text}.items():
            (copy / other).parent.mkdir(parents=True, exist_ok=True)
            (copy / other).write_text(content)
        assert (code_of("mine", copy) != before) == changes, (name, text)
    scenario = tmp_path / "scenarios" / "mine" / "a.yaml"
    scenario.parent.mkdir(parents=True)
    scenario.write_text("seed: 1\n")
    assert code_of("mine", package) != before
