"""The code of docs/*.md runs as printed, each page from top to bottom in a folder of its own.

Blocks after ``<!-- peer -->`` show another library and are only parsed. ``epochs=20`` is read as
``epochs=1`` and 25 as 2: what is tested is that the code works, not how well the network learns.
"""

import ast
import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"(<!-- peer -->\n)?```python\n(.*?)```", re.DOTALL)
PAGES = sorted(path.name for path in DOCS.glob("*.md"))


def blocks(text):
    """(is the library's own, line of the page, code) of each block."""
    for match in BLOCK.finditer(text):
        line = text[: match.start(2)].count("\n")
        yield match[1] is None, line, match[2]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_the_code_runs_as_printed(page, tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "docs"}
    for is_ours, line, code in blocks((DOCS / page).read_text(encoding="utf-8")):
        code = code.replace("epochs=20", "epochs=1").replace("epochs=25", "epochs=2")
        tree = ast.parse("\n" * line + code)  # line numbers of the page in tracebacks
        if is_ours:
            exec(compile(tree, str(DOCS / page), "exec"), namespace)


def test_pages_link_to_what_is_there():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", (DOCS / page).read_text(encoding="utf-8")):
            assert (DOCS / target).exists(), f"{page} links to {target}"


NAMED = re.compile(
    r"`((?:ext|renaissance|tests|benchmarks|examples|docs|models|datasets)/[\w/.]+)`"
)
ROOT = DOCS.parent


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_files_that_are_named_are_there(page):
    named = NAMED.findall((ROOT / page).read_text(encoding="utf-8"))
    assert named and [name for name in named if not (ROOT / name).exists()] == []


def test_there_are_pages_and_a_broken_block_is_found():
    assert len(PAGES) >= 5
    (ours, line, code), (theirs, _, _) = blocks(
        "a\n```python\n1/0\n```\n<!-- peer -->\n```python\n```\n"
    )
    assert (ours, theirs, line) == (True, False, 2)
    with pytest.raises(ZeroDivisionError):
        exec(code)
