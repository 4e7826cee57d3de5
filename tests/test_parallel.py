"""The team of threads behind the native loops: also without torch's OpenMP, and after a fork."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from renaissance import _native

pytestmark = pytest.mark.timeout(60)

_CHILD = """
import importlib.util, sys, threading
import numpy as np
spec = importlib.util.spec_from_file_location("renaissance._native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
assert "torch" not in sys.modules
def draw(threads):
    x = np.empty(300_001, np.float32)
    native.fill_normal(x.ctypes.data, x.size, 7, 3, threads)
    return x.tobytes()
expected = draw(1)
assert all(draw(n) == expected for n in (2, 3, 7, 2, 5))
found = []
team = [threading.Thread(target=lambda: found.append(draw(3))) for _ in range(4)]
[t.start() for t in team], [t.join() for t in team]
assert found == [expected] * 4
print("same")
"""


def test_our_own_team_without_torch():
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, _native.__file__],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0 and done.stdout == "same\n", done.stderr


def drawn(threads):
    x = np.empty(300_001, np.float32)
    _native.fill_normal(x.ctypes.data, x.size, 7, 3, threads)
    return x.tobytes()


@pytest.mark.filterwarnings(
    "ignore:This process:DeprecationWarning"
)  # fork with threads: the point
def test_a_forked_child_has_a_team():
    expected = drawn(1)
    assert drawn(2) == expected  # the team exists before the fork
    child = os.fork()
    if child == 0:  # no torch in here: its own threads do not outlive a fork
        signal.alarm(30)
        os._exit(0 if all(drawn(n) == expected for n in (2, 4)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert drawn(2) == expected
