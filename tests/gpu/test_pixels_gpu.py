"""The transform program on the GPU: the bytes of the CPU workers."""

import numpy as np
import pytest
import torch
from pictures import bits, compiled, pictures, run

import renaissance as rn
from renaissance.data.resident import ResidentData
from renaissance.random import AUGMENT, derive

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def normalize(channels):
    return rn.Normalize(mean=(0.4, 0.5, 0.6)[:channels], std=(0.2, 0.25, 0.3)[:channels])


def chains(channels, height, width):
    """Chains of a single pass, by name."""
    size = (height, width)
    end = normalize(channels)
    return {
        "nothing": [],
        "mnist": [rn.Pad(2), rn.RandomCrop(size), rn.RandomRotation(20), rn.RandomScale(0.8, 1.2),
                  end, rn.RandomErasing(0.5)],
        "cifar": [rn.RandomCrop(size, 4), rn.RandomHorizontalFlip(), end, rn.RandomErasing(0.5)],
        "noise": [rn.RandomCrop(size, 3, padding_mode="reflect"), end,
                  rn.RandomErasing(1.0, value="random")],
        "borders": [rn.Pad(3, mode="symmetric"), rn.Pad(2, mode="edge"), rn.Pad(1, fill=9.5),
                    rn.RandomVerticalFlip(), rn.CenterCrop((height + 20, width)),
                    rn.RandomAffine(30, (0.1, 0.1), (0.8, 1.2), 10, fill=7,
                                    interpolation="nearest"),
                    rn.RandomHorizontalFlip(), rn.RandomCrop((height, width - 1)),
                    rn.Cutout(5, value=200.0), end, rn.RandomHorizontalFlip()],
    }  # fmt: skip


def on_gpu(program, x, ids, epoch, first, **output):
    """The batch made by the kernel, on the host, and its labels and ids."""
    labels = torch.arange(len(x), device="cuda") * 3
    data = ResidentData.load(program, torch.from_numpy(x).cuda(), labels)
    c, h, w = program.shape
    count = len(ids) - first
    layout = torch.channels_last if output["layout"] == "nhwc" else torch.contiguous_format
    out = torch.full((count, max(c, output["channels"]), h, w), 77.0, dtype=output["dtype"],
                     device="cuda").contiguous(memory_format=layout)  # fmt: skip
    state = data.state(derive(1, AUGMENT), epoch, first).cuda()
    out_labels, out_ids = (torch.zeros(count, dtype=torch.int64, device="cuda") for _ in range(2))
    data.augment(torch.from_numpy(ids).cuda(), state, out, out_labels, out_ids)
    return out.cpu(), out_labels.cpu(), out_ids.cpu()


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (13, 17, 3), (9, 11, 1), (70, 81, 3)])
@pytest.mark.parametrize("name", ["nothing", "mnist", "cifar", "noise", "borders"])
def test_bytes_are_the_workers(name, shape):
    height, width, channels = shape
    x = pictures(70, height, width, channels)
    program = compiled(chains(channels, height, width)[name], x)
    ids = np.random.default_rng(3).permutation(70).astype(np.int64)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for layout, planes in (("nchw", 0), ("nhwc", 0), ("nhwc", 4)):
            output = {"dtype": dtype, "layout": layout, "channels": planes}
            expected = run(program, x, ids[5:], epoch=2, **output)
            found, labels, found_ids = on_gpu(program, x, ids, 2, 5, **output)
            assert torch.equal(bits(found), bits(expected))
            assert labels.tolist() == [3 * i for i in ids[5:]]
            assert found_ids.tolist() == ids[5:].tolist()


def test_planar_pictures():
    x = pictures(40, 32, 32, 3)
    planar = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    program = compiled(chains(3, 32, 32)["cifar"], x)
    ids = np.arange(40)
    output = {"dtype": torch.float16, "layout": "nchw", "channels": 0}
    data = ResidentData.load(
        program,
        torch.from_numpy(planar.transpose(0, 3, 1, 2).copy()).cuda().permute(0, 2, 3, 1),
        None,
    )
    out = torch.empty(40, 3, 32, 32, dtype=torch.float16, device="cuda")
    state = data.state(derive(1, AUGMENT), 0).cuda()
    data.augment(torch.from_numpy(ids).cuda(), state, out)
    assert torch.equal(bits(out.cpu()), bits(run(program, x, ids, **output)))


def test_a_captured_launch_moves_on_with_the_state():
    x = pictures(64, 28, 28, 1)
    program = compiled(chains(1, 28, 28)["mnist"], x)
    data = ResidentData.load(program, torch.from_numpy(x).cuda(), None)
    ids = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    out = torch.zeros(16, 1, 28, 28, device="cuda")
    state = data.state(derive(1, AUGMENT), 0, 0).cuda()
    on_device = ids.cuda()
    data.augment(on_device, state, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        data.augment(on_device, state, out)
    for epoch, first in ((0, 16), (0, 48), (1, 16)):
        state.copy_(data.state(derive(1, AUGMENT), epoch, first))
        graph.replay()
        expected = run(program, x, ids[first : first + 16].numpy(), epoch=epoch)
        assert torch.equal(bits(out.cpu()), bits(expected))
