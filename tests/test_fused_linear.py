"""The kernels of a fused perceptron, run on the CPU by Triton's interpreter."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is not installed: nothing is fused")

HERE = pathlib.Path(__file__).parent


@pytest.mark.timeout(120)
def test_values_gradients_and_where_they_land():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    script = HERE / "interpreted_perceptron.py"
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, cwd=HERE
    )
    assert done.returncode == 0, done.stderr[-2000:]
