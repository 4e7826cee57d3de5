"""Programs: stages, keys, bits, layouts and types, whatever the chain."""

import pathlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import bits, compiled, levels, pictures, run

import renaissance as rn
from renaissance import _native
from renaissance.data.draws import sample_parameters
from renaissance.data.program import compile_program
from renaissance.data.transform import Transform

NORMALIZE = rn.Normalize(mean=0.4, std=0.3)
CHAIN = [rn.RandomCrop(24, 4), rn.RandomHorizontalFlip(), rn.RandomRotation(15), NORMALIZE,
         rn.RandomErasing(0.6)]  # fmt: skip
SOME = [
    rn.Pad(2, mode="reflect"), rn.Pad((1, 2, 0, 3), fill=9.5),
    rn.RandomCrop(11, pad_if_needed=True), rn.CenterCrop((14, 9)), rn.Resize((17, 12)),
    rn.Resize(13, interpolation="bicubic"),
    rn.RandomResizedCrop((12, 16)), rn.RandomHorizontalFlip(), rn.RandomVerticalFlip(),
    rn.RandomRotation(40, fill=3), rn.RandomScale(0.7, 1.3),
    rn.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 10.0, interpolation="nearest"),
    rn.ColorJitter(0.4, 0.4, 0.4, 0.1), rn.RandomGrayscale(0.5), rn.RandomAutocontrast(),
    rn.GaussianBlur((3, 5)), rn.TrivialAugmentWide(), rn.RandAugment(2, 9),
    rn.RandomErasing(0.8, value=7.0), rn.Cutout(3),
]  # fmt: skip
LATE = [NORMALIZE, rn.RandomErasing(0.8, value="random"), rn.RandomHorizontalFlip(),
        rn.Pad(1, fill=0.5), rn.RandomRotation(10), rn.Resize((10, 11))]  # fmt: skip
CHAINS = st.builds(
    lambda a, b, n: a + [NORMALIZE] + b if n else a,
    st.lists(st.sampled_from(SOME), max_size=4),
    st.lists(st.sampled_from(LATE[1:]), max_size=3),
    st.booleans(),
)
SHAPES = st.sampled_from([(20, 23, 3), (9, 31, 1), (7, 6, 3), (16, 16, 3)])


def compiles(chain, x):
    """The program, or None where the chain cannot work on such pictures."""
    try:
        return compiled(chain, x)
    except ValueError:
        return None


def both(program, x, **options):
    """The output with vector kernels and without."""
    found = run(program, x, **options)
    try:
        assert _native.use_simd(False) is False
        return found, run(program, x, **options)
    finally:
        _native.use_simd(True)


@settings(max_examples=150, deadline=None)
@given(CHAINS, SHAPES, st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
       st.sampled_from([("nchw", 0), ("nchw", 4), ("nhwc", 0), ("nhwc", 4),
                        ("nhwc", 5)]))  # fmt: skip
def test_vector_and_portable_kernels_give_equal_bits(chain, shape, dtype, output):
    x = pictures(4, *shape)
    program = compiles(chain, x)
    if program is None:
        return
    options = {"dtype": dtype, "layout": output[0], "channels": output[1]}
    try:
        fast, slow = both(program, x, **options)
    except _native.PictureError:  # a picture that became too small on its way
        return
    assert torch.equal(bits(fast), bits(slow))


@pytest.mark.parametrize("width", [1, 8, 31, 32, 47, 71])
@pytest.mark.parametrize("channels", [1, 3])
def test_rows_of_every_length_take_equal_steps(width, channels):
    """Many pixels at a time, then fewer, then one: a resize, then all steps of colour."""
    jitters = [rn.ColorJitter(0.9, 0.9, 0.9, 0.5), rn.RandomGrayscale(0.3), rn.RandAugment(2, 9)]
    x = pictures(32, 19, 90, channels)
    x[::4] = x[::4, :, :, :1]  # no hue
    x[1::4] = x[1::4] // 128 * 255  # corners of the cube of colours
    for resize in (rn.Resize((21, width)), rn.RandomResizedCrop((21, width))):
        for tail in ([], [NORMALIZE], [rn.RandomAutocontrast(), NORMALIZE]):
            fast, slow = both(compiled([resize, *jitters, *tail], x), x)
            assert torch.equal(bits(fast), bits(slow))


def test_many_steps_of_colour_are_normalised_once():
    x = pictures(4, 12, 40, 3)
    for steps in (1, 7, 8, 9):
        chain = [rn.ColorJitter(brightness=(0.97, 0.97))] * steps
        plain, normalized = run(compiled(chain, x), x), run(compiled([*chain, NORMALIZE], x), x)
        assert (normalized - (plain - 0.4) / 0.3).abs().max() < 1e-5


def test_the_switch_is_no_stub():
    """Both kernels exist on this machine, and the switch says which is in use."""
    assert _native.use_simd(False) is False
    assert _native.use_simd(True) is ("avx2" in pathlib.Path("/proc/cpuinfo").read_text())


@settings(max_examples=60, deadline=None)
@given(CHAINS, SHAPES)
def test_layout_type_and_memory_order_change_nothing_else(chain, shape):
    x = pictures(3, *shape)
    program = compiles(chain, x)
    if program is None:
        return
    planar = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    before = x.copy()
    try:
        expected = run(program, x)
    except _native.PictureError:
        return
    c, h, w = program.shape
    assert expected.shape == (3, c, h, w)
    assert torch.isfinite(expected).all()
    assert torch.equal(bits(run(program, planar)), bits(expected))
    assert torch.equal(bits(run(program, x, layout="nhwc")), bits(expected))
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(bits(run(program, x, dtype=dtype)), bits(expected.to(dtype)))
    wide = run(program, x, channels=c + 2)
    assert torch.equal(bits(wide[:, :c]), bits(expected)) and (wide[:, c:] == 0).all()
    assert (x == before).all()


def test_samples_depend_on_nothing_but_seed_epoch_and_id():
    x = pictures(32, 24, 24, 3)
    program = compiled(CHAIN, x)
    whole = run(program, x)
    for ids in ([5], [31, 5, 0], list(range(31, -1, -1))):
        assert torch.equal(run(program, x, ids), whole[ids])
    same = np.repeat(x[:1], 32, 0)
    assert len(np.unique(run(program, same).flatten(1).numpy(), axis=0)) > 30


@pytest.mark.parametrize("other", [{"epoch": 1}, {"seed": 2}, {"seed": 1 + 2**32}, {"seed": 0}])
def test_epochs_and_seeds_differ(other):
    x = pictures(32, 24, 24, 3)
    program = compiled(CHAIN, x)
    differs = (run(program, x) != run(program, x, **other)).flatten(1).any(1)
    assert differs.float().mean() > 0.95


def test_seed_and_epoch_do_not_trade_places():
    x = pictures(16, 24, 24, 3)
    program = compiled(CHAIN, x)
    assert not torch.equal(run(program, x, seed=1, epoch=0), run(program, x, seed=0, epoch=1))


DRAWING = [t for t in SOME if t.stream] + [rn.RandomErasing(value="random")]


def test_streams_are_different():
    streams = [t.stream for t in {type(t): t for t in DRAWING}.values()]
    assert len(set(streams)) == len(streams) and max(streams) < 32


def test_adding_an_operation_moves_no_other():
    """The same crop and box, with and without operations of other types around them."""
    x = np.zeros((64, 24, 24, 1), np.uint8)
    x[:, 12, 12] = 255
    crop, erase = rn.RandomCrop(24, 4), rn.RandomErasing(1.0, value=128.0)
    alone = levels([crop, erase], x)
    grown = levels([rn.RandomHorizontalFlip(0.0), rn.ColorJitter(brightness=(1.0, 1.0)), crop,
                    rn.RandomScale(1.0, 1.0), rn.RandomGrayscale(0.0), erase], x)  # fmt: skip
    assert (alone - grown).abs().max() < 1e-3
    assert len(np.unique(alone.flatten(1).numpy(), axis=0)) > 40


def test_a_second_one_of_a_type_draws_for_itself():
    x = pictures(200, 12, 12, 1)
    once = run(compiled([rn.RandomHorizontalFlip()], x), x)
    twice = run(compiled([rn.RandomHorizontalFlip(), rn.RandomHorizontalFlip()], x), x)
    back = (twice == run(compiled([], x), x)).flatten(1).all(1)
    assert 0.35 < back.float().mean() < 0.65
    assert not torch.equal(once, twice)


def test_the_users_order_is_kept():
    x = pictures(8, 20, 20, 3)
    ways = [levels(chain, x) for chain in (
        [rn.Pad(3, fill=200), rn.ColorJitter(brightness=(0.5, 0.5))],
        [rn.ColorJitter(brightness=(0.5, 0.5)), rn.Pad(3, fill=200)],
    )]  # fmt: skip
    assert ways[0][0, 0, 0, 0].item() == pytest.approx(100, abs=1e-3)
    assert ways[1][0, 0, 0, 0].item() == pytest.approx(200, abs=1e-3)
    erased_last = levels([rn.Pad(3, fill=200), rn.Cutout(80, value=9.0)], x)
    padded_last = levels([rn.Cutout(80, value=9.0), rn.Pad(3, fill=200)], x)
    assert (erased_last - 9).abs().max() < 1e-3
    assert padded_last[0, 0, 0, 0].item() == pytest.approx(200, abs=1e-3)


def test_stages_are_known_before_the_first_sample():
    program = compile_program(
        [rn.Resize(40), rn.CenterCrop(32), rn.RandomRotation(9), rn.Normalize("imagenet")],
        channels=3,
    )
    assert [stage.known for _, stage in program.stages] == [False, False, True, True, True]
    assert [stage.exact for _, stage in program.stages] == [True, False, False, False, False]
    assert program.shape == (3, 32, 32)
    text = program.to_text().splitlines()
    assert len(text) == 5 and text[-1].endswith("32x32x3 float32 normalised")


class Strange(Transform):
    """A transform without a lowering of its own."""


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: compile_program([rn.RandomHorizontalFlip()], channels=3), ValueError,
         "differ in size and no transform makes them equal"),
        (lambda: compile_program([rn.Resize(9)], channels=3), ValueError, "rn.Resize"),
        (lambda: compile_program([], channels=5, height=2, width=2), ValueError, "1 to 4"),
        (lambda: compile_program(["flip"], channels=1, height=2, width=2), TypeError,
         "renaissance's transforms"),
        (lambda: compile_program([rn.RandomHorizontalFlip()] * 40, channels=1, height=2, width=2),
         ValueError, "more than 32 times"),
        (lambda: compile_program([rn.Pad(0)] * 40, channels=1, height=2, width=2), ValueError,
         "takes 32"),
        (lambda: _native.Program(b"RNAP"), ValueError, "shorter than its header"),
        (lambda: _native.Program(b"x" * 144), ValueError, "not a transform program"),
    ],
)  # fmt: skip
def test_errors_at_construction(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_pictures_that_do_not_fit_are_refused():
    program = compile_program([rn.RandomCrop(16)], channels=3)
    with pytest.raises(_native.PictureError, match="9x20 is smaller than the crop of 16x16"):
        run(program, pictures(1, 9, 20, 3))
    with pytest.raises(_native.PictureError, match="of 1 channels, expected 3"):
        run(program, pictures(1, 20, 20, 1))
    reflect = compile_program([rn.Pad(9, mode="reflect"), rn.CenterCrop(8)], channels=1)
    with pytest.raises(_native.PictureError, match="too small to be padded"):
        run(reflect, pictures(1, 9, 20, 1))


def test_scratch_stops_growing():
    x = pictures(64, 24, 24, 3)
    program = compiled([rn.RandomResizedCrop(20), rn.ColorJitter(0.4, 0.4, 0.4, 0.1),
                        rn.GaussianBlur(3)], x)  # fmt: skip
    scratch, out = _native.Scratch(), torch.empty(64, 3, 20, 20)
    ids = np.arange(64)
    sizes = []
    for epoch in range(6):
        program.native.run(x.ctypes.data, list(x.shape[1:]), list(x.strides), ids.ctypes.data, 64,
                           7, epoch, out.data_ptr(), 0, 0, 0, scratch)  # fmt: skip
        sizes.append(scratch.capacity)
    assert sizes[0] > 0 and len(set(sizes)) == 1


def test_parameters_of_what_draws_nothing():
    with pytest.raises(ValueError, match="draws nothing"):
        sample_parameters(rn.Pad(2), 3, size=(8, 8))
