"""Global switches are set inside a task's work and restored after it, also on error."""

import fresh
import pytest
import torch

from renaissance.switches import Switches, _read, tell_compiler


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


NEWER = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul, torch.backends.cudnn.conv]


def precisions():
    return [place.fp32_precision for place in NEWER]


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("spoken", ["highest", "high", "medium"])
def test_float32_products_are_the_tasks_whatever_the_user_allows(spoken, tf32):
    was = _read()["float32"]
    torch.set_float32_matmul_precision(spoken)
    try:
        before = precisions()
        with Switches(deterministic=True, tf32=tf32, threads=None):
            assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
            assert torch.backends.cuda.matmul.allow_tf32 == tf32
            assert torch.backends.cudnn.allow_tf32 == tf32
            assert precisions()[0] == ("tf32" if tf32 else "ieee")
            assert precisions()[1] != "bf16"
        assert torch.get_float32_matmul_precision() == spoken and precisions() == before
    finally:
        was.write()


BY_NAME = """
import torch
from renaissance.switches import Switches
torch.backends.{place} = "{spoken}"
places = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul, torch.backends.cudnn.conv]
before = [place.fp32_precision for place in places]
for tf32 in (False, True):
    with Switches(deterministic=True, tf32=tf32, threads=None):
        assert places[0].fp32_precision == ("tf32" if tf32 else "ieee"), places[0].fp32_precision
        assert (places[2].fp32_precision == "tf32") == tf32
    assert [place.fp32_precision for place in places] == before
"""


@pytest.mark.parametrize("place", ["fp32_precision", "cuda.matmul.fp32_precision"])
@pytest.mark.parametrize("spoken", ["ieee", "tf32"])
def test_a_precision_that_is_spoken_by_name(place, spoken):
    fresh.run(BY_NAME.format(place=place, spoken=spoken))


def test_the_users_autocast_ends_at_the_door():
    switches = Switches(deterministic=True, tf32=False, threads=None)
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert (a @ b).dtype == torch.bfloat16
        with switches:
            assert (a @ b).dtype == torch.float32
            with torch.autocast("cpu", torch.bfloat16):
                assert (a @ b).dtype == torch.bfloat16
        assert (a @ b).dtype == torch.bfloat16


def test_record_names_what_decides_bits():
    record = Switches(deterministic=True, tf32=False, threads=2).record()
    assert record["threads"] == 2 and record["torch"] == torch.__version__
    assert record["environment"]["CUBLAS_WORKSPACE_CONFIG"]


LOADS_NOTHING = """
import sys, torch
import renaissance as rn
from renaissance.datasets import Synthetic
from renaissance.switches import Switches
with Switches(deterministic=True, tf32=False, threads=1):
    assert torch.are_deterministic_algorithms_enabled()
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(192, 10))
task = rn.Task(model, device="cpu", seed=1)
task.data(train=rn.Loader(Synthetic(16, size=8), batch_size=8)).loss(rn.CrossEntropyLoss())
task.optimizer(rn.AdamW(lr=1e-3)).compile()
task.fit(epochs=1, verbose=0)
loaded = [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]
assert not loaded, f"a run that compiles nothing pays for {loaded}"
"""


def test_a_program_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="a = 3"):
        fresh.run("a = 3\nassert a == 4, f'a = {a}'")
    with pytest.raises(RuntimeError, match="died with 5"):
        fresh.run("import os; os._exit(5)")


def test_the_compiler_is_not_imported_where_nothing_is_compiled():
    fresh.run(LOADS_NOTHING)


def test_the_compiler_knows_the_switch_wherever_it_was_loaded():
    import torch._inductor.config as inductor

    with Switches(deterministic=True, tf32=False, threads=None):
        assert inductor.deterministic
        inductor.deterministic = False  # as if it had been imported just now
        tell_compiler()
        assert inductor.deterministic
    assert not inductor.deterministic
