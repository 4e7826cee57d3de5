"""The kernels of a fused perceptron, run on the CPU by Triton's interpreter."""

import fresh
import pytest

pytest.importorskip("triton", reason="Triton is not installed: nothing is fused")


@pytest.mark.timeout(120)
def test_values_gradients_and_where_they_land():
    fresh.run("import os; os.environ['TRITON_INTERPRET'] = '1'; import interpreted_perceptron", 110)
