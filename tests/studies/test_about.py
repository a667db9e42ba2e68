"""The origin of a study's tables: the commit of a clone, and the machine."""

import subprocess

from simfl.studies.about import commit, processor


def git(folder, *arguments):
    user = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(("git", *user, "-C", str(folder), *arguments), check=True, capture_output=True)


def test_a_folder_that_is_not_a_clone_has_no_commit(tmp_path):
    assert commit(tmp_path) == ""
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert commit(tmp_path) == "", "a damaged clone has none either"


def test_a_clone_says_if_its_code_differs_from_the_commit(tmp_path):
    (tmp_path / "simfl").mkdir()
    (tmp_path / "simfl" / "a.py").write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    first = commit(tmp_path)
    assert len(first) == 10
    (tmp_path / "notes.md").write_text("an untracked file is no part of the code\n")
    assert commit(tmp_path) == first
    (tmp_path / "simfl" / "a.py").write_text("2\n")
    assert commit(tmp_path) == f"{first}, changed"


def test_the_processor_has_a_name(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: A Processor @ 2 GHz\nmodel name\t: A Processor @ 2 GHz\n")
    assert processor(info) == "A Processor @ 2 GHz"
    assert processor(tmp_path / "missing"), "what Python knows of the machine"
