"""Tensor files: what is written is read back bit for bit, by us and by the safetensors library."""

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.tensorfile import (
    CODES,
    CheckpointError,
    TensorFile,
    TensorSpec,
    digest_file,
    write_tensors,
)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def random_tensor(dtype, shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 100, shape, generator=generator).to(dtype)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda n: n != "__metadata__"),
        st.tuples(st.sampled_from(sorted(CODES, key=str)), st.lists(st.integers(0, 4), max_size=4)),
        max_size=6,
    )
)
def test_comes_back_bit_for_bit(tmp_path_factory, wanted):
    tensors = {
        name: random_tensor(dtype, shape, seed)
        for seed, (name, (dtype, shape)) in enumerate(wanted.items())
    }
    path = tmp_path_factory.mktemp("tensors") / "model.safetensors"
    digest = write_tensors(path, tensors)
    assert digest == digest_file(path)
    file = TensorFile(path)
    assert dict(file) == {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}
    theirs = safetensors.torch.load_file(path)
    for found in (file.read_all(), theirs, {name: file.read(name) for name in file}):
        assert found.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
            assert torch.equal(bits(found[name]), bits(tensor))


def test_layout_and_ties_do_not_matter(tmp_path):
    conv = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    big = torch.randn(6, 6)
    tensors = {"conv": conv, "tied": big, "other_name": big, "rows": big[1:3], "turned": big.T}
    write_tensors(tmp_path / "m.safetensors", tensors)
    plain = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    write_tensors(tmp_path / "p.safetensors", plain)
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "p.safetensors").read_bytes()
    found = TensorFile(tmp_path / "m.safetensors").read_all()
    assert all(torch.equal(found[name], plain[name]) for name in plain)


def test_a_plain_module_loads_it(tmp_path):
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    write_tensors(tmp_path / "m.safetensors", module.state_dict())
    other = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "m.safetensors"), strict=True)
    assert torch.equal(other[0].weight, module[0].weight)


def test_nan_payloads_survive(tmp_path):
    odd = torch.tensor([0x7FC12345, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)
    write_tensors(tmp_path / "m.safetensors", {"x": odd})
    assert torch.equal(bits(TensorFile(tmp_path / "m.safetensors").read("x")), bits(odd))


def test_unknown_element_types_are_refused(tmp_path):
    with pytest.raises(TypeError, match=r"m.safetensors: 'x' is torch.complex64, .* allowed: "):
        write_tensors(tmp_path / "m.safetensors", {"x": torch.zeros(2, dtype=torch.complex64)})
    assert not (tmp_path / "m.safetensors").exists()


class TestChecks:
    @pytest.fixture
    def file(self, tmp_path):
        (tmp_path / "step-1").mkdir()
        path = tmp_path / "step-1" / "model.safetensors"
        write_tensors(path, {"w": torch.ones(2, 3), "b": torch.ones(2)})
        return TensorFile(path)

    @pytest.mark.parametrize(
        ("targets", "what"),
        [
            ({"w": torch.zeros(2, 3), "b": torch.zeros(2), "c": torch.zeros(1)}, "'c' is missing"),
            ({"w": torch.zeros(2, 3)}, "'b' is not part of this run"),
            (
                {"w": torch.zeros(3, 2), "b": torch.zeros(2)},
                r"'w' is float32 \[2, 3\], this run needs float32 \[3, 2\]",
            ),
            (
                {"w": torch.zeros(2, 3), "b": torch.zeros(2, dtype=torch.bfloat16)},
                r"'b' is float32 \[2\], this run needs bfloat16 \[2\]",
            ),
        ],
    )
    def test_what_does_not_fit_is_refused_whole(self, file, targets, what):
        with pytest.raises(
            CheckpointError, match=rf"checkpoint .*step-1: model.safetensors: {what}"
        ):
            file.load_into(targets)
        assert all(not tensor.any() for tensor in targets.values())

    def test_what_fits_is_copied(self, file):
        targets = {"w": torch.zeros(3, 2).T, "b": torch.zeros(2)}
        file.load_into(targets)
        assert all(tensor.all() for tensor in targets.values())

    def test_many_problems_are_counted(self, file):
        with pytest.raises(CheckpointError, match=r"'n5' is missing; and 6 more$"):
            file.check({f"n{k}": TensorSpec((1,), torch.float32) for k in range(10)})

    def test_a_missing_name_says_so(self, file):
        with pytest.raises(CheckpointError, match="model.safetensors: 'v' is missing"):
            file.read("v")


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=64)
    | st.builds(
        lambda header, data: len(header).to_bytes(8, "little") + header + data,
        st.text(alphabet='{}[]":,0123dtypeshaF_ofs', max_size=60).map(str.encode),
        st.binary(max_size=16),
    )
)
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "model.safetensors"
    path.write_bytes(data)
    try:
        TensorFile(path).read_all()
    except CheckpointError as error:
        assert "model.safetensors" in str(error)
