"""Global switches are set inside a task's work and restored after it, also on error."""

import pytest
import torch

from renaissance.switches import Switches, _read


@pytest.fixture(autouse=True)
def untouched():
    before = _read()
    yield
    assert _read() == before


def test_set_inside_and_restored_outside():
    before = _read()
    with Switches(deterministic=True, tf32=True, threads=1):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
        assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
        assert torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
        assert torch.get_num_threads() == 1
    assert _read() == before


def test_restored_after_an_error_and_when_nested():
    outer = Switches(deterministic=True, tf32=False, threads=None)
    with pytest.raises(KeyError), outer:
        with outer, Switches(deterministic=False, tf32=True, threads=None):
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.are_deterministic_algorithms_enabled()
        raise KeyError


def test_record_names_what_decides_bits():
    record = Switches(deterministic=True, tf32=False, threads=2).record()
    assert record["threads"] == 2 and record["torch"] == torch.__version__
    assert record["environment"]["CUBLAS_WORKSPACE_CONFIG"]
