"""Without its C++ module the package says how to get it, not that imports go round in a circle."""

import importlib.metadata
import subprocess
import sys

import pytest

import renaissance


def test_the_version_is_the_installed_one():
    assert renaissance.__version__ == importlib.metadata.version("renaissance")


def message_of(lines):
    """What `import renaissance` ends with in a process that ran these lines first."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, "import renaissance"])],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.timeout(70)
def test_a_package_that_was_not_built_says_so():
    message = message_of(["import sys", 'sys.modules["renaissance._native"] = None'])
    assert message == (
        "ImportError: renaissance has no C++ module here: it is not built: "
        "`pip install .` in the project's folder builds it"
    )


@pytest.mark.timeout(70)
def test_a_module_that_does_not_load_says_why():
    lines = [
        "import importlib.abc, importlib.machinery, sys",
        "class Broken(importlib.abc.MetaPathFinder, importlib.abc.Loader):",
        "    def find_spec(self, name, path, target=None):",
        "        if name == 'renaissance._native':",
        "            return importlib.machinery.ModuleSpec(name, self)",
        "    def create_module(self, spec): raise ImportError('libjpeg.so.62: no such file')",
        "    def exec_module(self, module): pass",
        "sys.meta_path.insert(0, Broken())",
    ]
    message = message_of(lines)
    assert "does not load (libjpeg.so.62: no such file)" in message
    assert "--force-reinstall" in message
