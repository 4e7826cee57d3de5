"""Philox, keyed draws, the Generator, normals and permutations."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import renaissance as rn
from renaissance import _native, random

# Random123's published vectors for ten rounds: counter, key, output. The third one alone would
# catch words in the wrong order.
KNOWN = [
    ("00000000 " * 4, "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
    # Seed 2^63 + 5, stream 7: the block counter carries into its high word.
    (
        "ffffffff 00000000 00000007 00000000",
        "00000005 80000000",
        "fe16f78d 2418824b 3bbbcc84 aad1462d",
    ),
    (
        "00000000 00000001 00000007 00000000",
        "00000005 80000000",
        "168db41f 1c8c0a5f 72319e58 a2dfaf26",
    ),
]


def words(text):
    return tuple(int(w, 16) for w in text.split())


@pytest.mark.parametrize("counter, key, output", KNOWN)
def test_philox_known_answers(counter, key, output):
    assert _native.philox(*words(counter), *words(key)) == words(output)


def test_philox_ten_thousandth_word():
    assert _native.philox(2499, 0, 0, 0, 20111115, 0)[3] == 1955073260


def reference_uniform(seed, offset, n):
    out = []
    for i in range(offset, offset + n):
        word = _native.philox(i & 0xFFFFFFFF, i >> 32, 0, 0, seed & 0xFFFFFFFF, seed >> 32)[0]
        out.append((word >> 8) * 2.0**-24)
    return np.array(out, np.float32)


@pytest.mark.parametrize("seed", [0, 42, 2**32, 2**64 - 1])
def test_uniform_is_the_documented_mapping(seed):
    generator = rn.Generator(seed)
    generator.set_state(seed, 2**32 - 5)
    assert np.array_equal(generator.uniform(11), reference_uniform(seed, 2**32 - 5, 11))
    assert generator.get_state() == (seed, 2**32 + 6)


def test_normal_is_box_muller_in_double():
    generator = rn.Generator(7)
    drawn = generator.normal(100_001)
    assert generator.current_offset == 50_001
    blocks = [_native.philox(i, 0, 0, 0, 7, 0) for i in range(50_001)]
    first = np.array([((b[0] >> 8) | 1) * 2.0**-24 for b in blocks])
    second = np.array([(b[1] >> 8) * 2.0**-24 for b in blocks])
    radius, angle = np.sqrt(-2 * np.log(first)), 2 * np.pi * second
    exact = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:100_001]
    # Single-precision polynomials: a few units in the last place of the radius (at most 5.77).
    assert np.abs(drawn - exact).max() < 2e-6


def test_draws_do_not_depend_on_how_they_are_cut():
    whole = rn.Generator(3).uniform(1_000_001)
    pieces = rn.Generator(3)
    assert np.array_equal(whole, np.concatenate([pieces.uniform(n) for n in (1, 500_000, 500_000)]))
    whole = rn.Generator(3).normal(1_000_000)
    pieces = rn.Generator(3)
    assert np.array_equal(whole, np.concatenate([pieces.normal(n) for n in (2, 499_998, 500_000)]))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_fills_do_not_depend_on_threads(threads):
    expected, got = rn.Generator(5).normal(200_003), np.zeros(200_003, np.float32)
    _native.fill_normal(got.ctypes.data, got.size, 5, 0, threads)
    assert np.array_equal(expected, got)


def test_distributions():
    uniform, normal = rn.Generator(11).uniform(200_000), rn.Generator(12).normal(200_000)
    assert 0 <= uniform.min() and uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 0.01
    assert stats.kstest(normal, "norm").pvalue > 0.01
    assert abs(np.corrcoef(normal[0::2], normal[1::2])[0, 1]) < 4 / np.sqrt(100_000)
    assert np.abs(rn.Generator(13).normal(4_000_000)).max() <= 5.78


def test_neighbouring_seeds_share_nothing():
    drawn = {s: rn.Generator(s).uniform(1000).tobytes() for s in (5, 6, 5 + 2**32, 5 + 2**63)}
    assert len(set(drawn.values())) == 4
    keys = [random.derive(s, random.ORDER, e) for s in range(50) for e in range(50)]
    assert len(set(keys)) == len(keys)  # seed + epoch would give 99 of 2500


def test_random_int_is_inclusive_and_uniform():
    generator = rn.Generator(9)
    drawn = [generator.random_int(-2, 4) for _ in range(14_000)]
    counts = np.bincount(np.array(drawn) + 2, minlength=7)
    assert len(counts) == 7 and stats.chisquare(counts).pvalue > 0.01
    assert generator.current_offset >= 14_000
    assert generator.random_int(5, 5) == 5
    assert 0 <= generator.random_int(0, 2**64 - 1) < 2**64


def test_bounded_integers_are_unbiased_where_modulo_is_not():
    n = 3 * 2**62  # modulo would give the lowest third twice the probability
    drawn = np.array([_native.below_unbiased(1, i, n) / n for i in range(30_000)])
    assert stats.kstest(drawn, "uniform").pvalue > 0.01


@pytest.mark.parametrize("bad", [-1, 2**64])
def test_seed_out_of_range(bad):
    with pytest.raises(ValueError, match=r"0 to 2\*\*64 - 1"):
        rn.Generator(bad)


@pytest.mark.parametrize("bad", [1.0, "1", None, True])
def test_seed_of_another_type(bad):
    with pytest.raises(TypeError, match="whole number"):
        rn.Generator(bad)


def test_wrong_arguments():
    generator = rn.Generator(0)
    with pytest.raises(ValueError, match="n = -1"):
        generator.uniform(-1)
    with pytest.raises(TypeError, match="n = 1.5"):
        generator.normal(1.5)
    with pytest.raises(ValueError, match="low <= high"):
        generator.random_int(3, 2)
    with pytest.raises(ValueError, match="offset"):
        generator.set_state(0, 2**64)


def test_next_offset_reserves_disjoint_ranges_from_threads():
    generator, taken = rn.Generator(0), []

    def take():
        for _ in range(500):
            taken.append(generator.next_offset(3))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(taken) == list(range(0, 3 * 4000, 3))


@given(n=st.integers(0, 300), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_permutation_is_one(n, seed, epoch):
    order = rn.Permutation(n, seed, epoch)
    assert sorted(order[:]) == list(range(n)) and len(order) == n
    for k in range(0, n, 17):
        assert order.inverse(order[k]) == k
        assert order[k] == order[k : k + 1][0] == order[k - n]


@given(n=st.integers(2, 5000), key=st.integers(0, 2**64 - 1))
@settings(max_examples=30, deadline=None)
def test_feistel_is_a_permutation_with_its_inverse(n, key):
    ids = np.empty(n, np.int64)
    _native.fill_feistel(ids.ctypes.data, n, key, 0, 1, n)
    assert sorted(ids) == list(range(n))
    assert _native.feistel_position(n, key, int(ids[n // 2])) == n // 2


@pytest.mark.parametrize("n", [2**22 + 1, 2**32 + 1, 10**12])
def test_large_permutation_needs_no_table(n):
    order = rn.Permutation(n, 1, 2)
    places = [0, 1, n // 3, n - 1]
    assert [order.inverse(order[p]) for p in places] == places
    assert len({order[p] for p in range(1000)}) == 1000
    assert order._ids is None
    assert np.array_equal(order[5:0:-2], [order[5], order[3], order[1]])


def test_all_orders_of_four_are_equally_likely():
    orders = {o: 0 for o in itertools.permutations(range(4))}
    for epoch in range(24_000):
        orders[tuple(rn.Permutation(4, 99, epoch)[:])] += 1
    assert stats.chisquare(list(orders.values())).pvalue > 0.01


def test_feistel_pairs_are_independent():
    """The place of item 1 given that of item 0, n = 256 over many keys: no excess of neighbours."""
    n, trials, close = 256, 40_000, 0
    for key in range(trials):
        places = [_native.feistel_position(n, random.derive(key, 1), i) for i in (0, 1)]
        close += abs(places[0] - places[1]) == 1
    expected = trials * 2 / n
    assert abs(close - expected) < 4 * np.sqrt(expected)


def test_order_differs_between_epochs_and_seeds():
    orders = [tuple(rn.Permutation(100, s, e)[:]) for s in (1, 2, 1 + 2**32) for e in (0, 1)]
    assert len(set(orders)) == 6
    with pytest.raises(IndexError):
        rn.Permutation(3, 0, 0)[3]
    with pytest.raises(IndexError):
        rn.Permutation(3, 0, 0).inverse(3)
