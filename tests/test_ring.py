"""The staging ring: states of slots, shapes and addresses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.data.ring import Ring, SlotShape

SHAPE = SlotShape(4, (3, 5, 6), torch.float32, (), torch.int64)


def test_slots_are_allocated_once_and_of_one_shape():
    ring = Ring(3, SHAPE)
    assert [(x.shape, y.shape) for x, y in ring.tensors] == [((4, 3, 5, 6), (4,))] * 3
    assert [(x.data_ptr(), y.data_ptr()) for x, y in ring.tensors] == ring.addresses
    assert all(address % 64 == 0 for pair in ring.addresses for address in pair)


def test_channels_last_changes_memory_not_shape():
    (x, y), *_ = Ring(1, SlotShape(4, (3, 5, 6), torch.bfloat16, None, channels_last=True)).tensors
    assert x.shape == (4, 3, 5, 6) and y is None
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_bytes_of_a_sample_and_a_label():
    assert (SHAPE.sample_bytes, SHAPE.label_bytes) == (3 * 5 * 6 * 4, 8)
    half = SlotShape(2, (7,), torch.float16, (2, 3), torch.float32)
    assert (half.sample_bytes, half.label_bytes) == (14, 24)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.lists(st.sampled_from(["fill", "hand_out", "release"]), max_size=60))
def test_no_slot_is_lost_skipped_or_used_twice(slots, moves):
    ring = Ring(slots, SlotShape(1, (1,), torch.float32, None))
    filling, held = [], []
    for move in moves:
        if move == "fill" and ring.has_free:
            filling.append(ring.fill())
        elif move == "hand_out" and filling:
            assert ring.next == filling[0]
            held.append(ring.hand_out())
            assert held[-1] == filling.pop(0)  # in the order in which they were ordered
        elif move == "release" and held:
            ring.release(held.pop(len(held) // 2))
        assert len(set(filling + held)) == len(filling) + len(held) <= slots
        assert (ring.filling, ring.held) == (len(filling), tuple(held))
        assert ring.has_free == (len(filling) + len(held) < slots)


def test_wrong_moves_are_errors():
    ring = Ring(1, SHAPE)
    with pytest.raises(RuntimeError, match="no slot is being filled"):
        ring.hand_out()
    ring.fill()
    with pytest.raises(RuntimeError, match="all 1 slots are in use"):
        ring.fill()
    with pytest.raises(RuntimeError, match="slot 0 is not held"):
        ring.release(0)
    ring.release(ring.hand_out())
    with pytest.raises(RuntimeError, match="slot 0 is not held"):
        ring.release(0)
