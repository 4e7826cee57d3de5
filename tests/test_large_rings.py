"""Rings larger than the caches: what is written past them is what is written through them."""

import numpy as np
import pytest
import torch

import renaissance as rn
from renaissance import _native
from renaissance.data.dataset import ArrayDataset
from renaissance.datasets import Synthetic

pytestmark = pytest.mark.timeout(60)

NORMALIZE = rn.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
AUGMENT = (
    rn.Pad(4),
    rn.RandomCrop(32),
    rn.RandomHorizontalFlip(),
    NORMALIZE,
    rn.RandomErasing(0.5),
)
#: What reaches a ring past the caches differently: written once, around one rectangle or around
#: several, made in the caches and copied.
PAST_THE_CACHES = {
    "rectangle": AUGMENT,
    "two rectangles": (*AUGMENT, rn.Cutout(9, p=0.7)),
    "noise": (*AUGMENT[:4], rn.RandomErasing(0.9, value="random")),
    "erased in levels": (rn.RandomErasing(0.8, value=(1.0, 2.5, 99.0)), NORMALIZE),
    "moved after erasing": (rn.Cutout(20), rn.RandomCrop((24, 32)), rn.RandomHorizontalFlip()),
    "two fills": (rn.Pad(3, fill=7.0), rn.Pad(2, fill=200.0), rn.RandomCrop(32), NORMALIZE),
    "fraction": (rn.Pad(3, fill=0.5), rn.RandomCrop(32), *AUGMENT[2:]),
    "edge": (rn.Pad(4, mode="edge"), *AUGMENT[1:]),
    "turned": (rn.RandomVerticalFlip(), rn.RandomRotation(20), NORMALIZE, rn.RandomErasing(0.5)),
    "narrow": (rn.RandomCrop((32, 20)), NORMALIZE, rn.RandomErasing(0.5)),
}


def streamed(dataset, chain, batch_size, **output):
    """Every sample of an epoch by id, of a stream with this output."""
    loader = rn.Loader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        seed=5,
        transforms=chain,
        workers=2,
        prefetch=6,
    )
    with loader.stream(**output) as stream:
        return {
            int(id): bytes(x.contiguous().view(torch.uint8).numpy())
            for batch in stream
            for x, id in zip(batch.x, batch.ids, strict=True)
        }


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("chain", PAST_THE_CACHES.values(), ids=PAST_THE_CACHES)
def test_a_large_ring_holds_the_same_bytes(chain, dtype, layout):
    pictures = Synthetic(300, size=32)
    output = {"dtype": dtype, "layout": layout}
    # 8 slots of 296 pictures of at least 3840 bytes: above 8 MB.
    past = streamed(pictures, chain, 296, **output)
    assert past == streamed(pictures, chain, 8, **output)
    if layout == "nchw":
        planes = np.ascontiguousarray(pictures.as_arrays()[0].transpose(0, 3, 1, 2))
        planar = ArrayDataset(planes.transpose(0, 2, 3, 1), pictures.as_arrays()[1])
        assert past == streamed(planar, chain, 296, **output)


@pytest.mark.parametrize("chain", PAST_THE_CACHES.values(), ids=PAST_THE_CACHES)
def test_vector_kernels_change_nothing_there(chain):
    pictures = Synthetic(300, size=32)
    expected = streamed(pictures, chain, 296)
    try:
        assert not _native.use_simd(False)
        assert streamed(pictures, chain, 296) == expected
    finally:
        _native.use_simd(True)
