"""Programs for data on the GPU: what can run there, and that its text gives the workers' bits.

The functions that the kernel is made of are compiled for the host from the same text
(``by_element``), and once the kernel itself; ``tests/gpu/test_pixels_gpu.py`` runs it on a GPU.
"""

import host_kernels
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import bits, compiled, pictures, run

import renaissance as rn
from renaissance import kernels
from renaissance.data import resident
from renaissance.data.resident import ResidentData
from renaissance.random import AUGMENT, derive

MODES = st.sampled_from(["constant", "edge", "reflect", "symmetric"])
INDEX_MAPS = st.one_of(
    st.builds(lambda n, mode, fill: rn.Pad(n, mode=mode, fill=fill), st.integers(0, 3), MODES,
              st.sampled_from([0.0, 7.0, 2.5])),
    st.builds(lambda n: rn.CenterCrop((n, n + 2)), st.integers(6, 16)),
    st.builds(lambda n: rn.RandomCrop(n, pad_if_needed=True), st.integers(6, 14)),
    st.sampled_from([rn.RandomHorizontalFlip(), rn.RandomVerticalFlip(0.7)]),
)  # fmt: skip
AFFINES = st.sampled_from([
    [],
    [rn.RandomRotation(30)],
    [rn.RandomRotation(180, fill=9), rn.RandomScale(0.5, 2.0, fill=9)],
    [rn.RandomAffine(10, (0.2, 0.3), (0.7, 1.4), (-20.0, 20.0, -9.0, 9.0), fill=2.5)],
    [rn.RandomAffine(40, interpolation="nearest")],
])  # fmt: skip
LATE = st.one_of(
    st.sampled_from([rn.RandomHorizontalFlip(), rn.RandomVerticalFlip(), rn.RandomCrop(5)]),
    st.sampled_from([rn.RandomErasing(0.8, value=3.0), rn.Cutout(4, value=1.0, p=0.7)]),
)
NORMALIZE = rn.Normalize(mean=0.4, std=0.3)


@st.composite
def single_pass_chains(draw):
    chain = draw(st.lists(INDEX_MAPS, max_size=4)) + draw(AFFINES)
    late = draw(st.lists(LATE, max_size=4))
    place = draw(st.integers(0, len(late)))
    late[place:place] = draw(st.sampled_from([[], [NORMALIZE]]))
    if NORMALIZE in late and draw(st.booleans()):
        late.append(rn.RandomErasing(0.7, value="random"))
    return chain + late


@settings(max_examples=60, deadline=None)
@given(single_pass_chains(), st.sampled_from([(9, 12, 3), (13, 8, 1), (20, 20, 4)]),
       st.sampled_from([(torch.float32, "nchw", 0), (torch.float16, "nhwc", 4),
                        (torch.bfloat16, "nchw", 4)]))  # fmt: skip
def test_elements_are_the_workers(chain, shape, output):
    x = pictures(5, *shape)
    program = compiled(chain, x)
    assert program.resident_reason is None
    options = dict(zip(("dtype", "layout", "channels"), output))
    expected = run(program, x, **options)
    assert torch.equal(bits(run(program, x, by_element=True, **options)), bits(expected))


@pytest.mark.parametrize(
    "chain, reason",
    [
        ([rn.Resize(8)], "has no resize"),
        ([rn.RandomResizedCrop(8)], "has no resized_crop"),
        ([rn.ColorJitter(0.4)], "has no jitter"),
        ([rn.RandomRotation(9), rn.Pad(1)], "pad after affine"),
        ([rn.RandomRotation(9), rn.RandomHorizontalFlip(), rn.RandomRotation(9)], "affine after"),
        ([rn.RandomRotation(9), rn.RandomRotation(9, fill=3)], "affine after affine"),
        ([NORMALIZE, rn.RandomCrop(9, padding=1)], "pad after normalize"),
        ([NORMALIZE, rn.RandomErasing(value="random"), rn.RandomVerticalFlip()], "noise"),
        ([rn.Pad(600)], "above 1024"),
    ],
)
def test_what_the_kernel_cannot_do_is_named(chain, reason):
    program = compiled(chain, pictures(1, 12, 12, 3))
    assert reason in program.resident_reason
    with pytest.raises(ValueError, match="cannot run on resident data"):
        ResidentData.load(program, torch.zeros(1, 12, 12, 3, dtype=torch.uint8), None)


def test_load_checks_the_tensors():
    program = compiled([], pictures(1, 12, 12, 3))
    with pytest.raises(ValueError, match=r"pictures are torch.uint8 \(2, 12, 12, 1\)"):
        ResidentData.load(program, torch.zeros(2, 12, 12, 1, dtype=torch.uint8), None)
    with pytest.raises(ValueError, match="labels are torch.int32"):
        labels = torch.zeros(2, dtype=torch.int32)
        ResidentData.load(program, torch.zeros(2, 12, 12, 3, dtype=torch.uint8), labels)


def test_the_kernel_compiles():
    pytest.importorskip("cuda.core")
    assert kernels.homes()["augment_batch"] == "pixels.cu"
    assert len(kernels.compile_text("pixels.cu", "sm_90")) > 1000


@pytest.mark.skipif(host_kernels.COMPILER is None, reason="there is no g++")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("pixels", [4096, 20])
def test_a_launch_makes_a_batch_and_moves_on(pixels, tmp_path, monkeypatch):
    """The kernel's text run by g++: batches one after the other, from the beginning at the end."""
    monkeypatch.setattr(resident, "_PIXELS", pixels)
    monkeypatch.setattr(kernels, "launch", host_kernels.HostKernels("pixels.cu", tmp_path).launch)
    x = pictures(8, 9, 12, 1)
    program = compiled([rn.Pad(2), rn.RandomCrop(9), rn.RandomRotation(20), NORMALIZE], x)
    labels = torch.arange(8) * 10
    data = ResidentData.load(program, torch.from_numpy(x), labels)
    state = data.state(derive(1, AUGMENT), 3)
    ids = torch.tensor([5, 0, 3, 7, 1, 2, 0, 0, 0])
    expected = run(program, x, seed=1, epoch=3)
    batch, y = torch.zeros(3, 1, 9, 9), torch.zeros(3, dtype=torch.int64)
    for first in (0, 3, 0):
        assert state[2:].tolist() == [first, 0]
        data.augment(ids, state, batch, y, end=6)
        chosen = ids[first : first + 3]
        assert torch.equal(y, labels[chosen]) and torch.equal(bits(batch), bits(expected[chosen]))
    data.augment(ids, state, batch, y)
    assert state[2:].tolist() == [3, 0]  # without an end it stays
