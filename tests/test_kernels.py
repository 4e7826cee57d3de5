"""Every CUDA text compiles, here and now: NVRTC needs no GPU."""

import pytest

from renaissance import kernels

pytest.importorskip("cuda.core", reason="cuda-core is not installed: CUDA texts are not compiled")
pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RENAISSANCE_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.timeout(300)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_text_compiles(arch, cache):
    compiled = kernels.compile_all(arch)
    assert set(compiled) == set(kernels.sources())
    for name, code in compiled.items():
        assert code[:4] == b"\x7fELF", name
        for kernel in (k for k, home in kernels.homes().items() if home == name):
            assert kernel.encode() in code, kernel
    assert len(list(cache.iterdir())) == len(compiled)


@pytest.mark.timeout(120)
def test_a_second_process_finds_the_cache(cache, monkeypatch):
    code = kernels.compile_text("random.cu", "sm_90")

    def never():
        raise AssertionError("compiled again")

    monkeypatch.setattr(kernels, "_core", never)
    assert kernels.compile_text("random.cu", "sm_90") == code


@pytest.mark.timeout(120)
def test_another_text_is_another_entry(cache, monkeypatch):
    kernels.compile_text("random.cu", "sm_90")
    changed = {**kernels.sources(), "random.cu": kernels.sources()["random.cu"] + "\n// other"}
    monkeypatch.setattr(kernels, "sources", lambda: changed)
    kernels.compile_text("random.cu", "sm_90")
    assert len(list(cache.iterdir())) == 2


def test_an_unknown_kernel_names_the_known():
    with pytest.raises(ValueError, match="update_adamw"):
        kernels._kernel("update_adamax", 0)
