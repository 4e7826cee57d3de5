"""The reader of pickles that runs nothing: plain data comes back, everything else is refused."""

import collections
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.datasets.pickled import read_pickled


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
        | st.binary(),
        lambda inner: st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        | st.tuples(inner, inner),
        max_leaves=12,
    ),
    st.sampled_from([2, 3, 4, 5]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_plain_data_round_trips(data, protocol):
    assert read_pickled(pickle.dumps(data, protocol=protocol)) == data


@pytest.mark.parametrize("dtype", ["u1", "<i8", ">f4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_round_trip(dtype, order, protocol):
    array = np.asarray(np.arange(24).reshape(2, 3, 4), dtype, order=order)
    got = read_pickled(pickle.dumps({"a": [array, array]}, protocol=protocol))["a"]
    assert got[0].dtype == array.dtype and np.array_equal(got[0], array)
    assert np.array_equal(got[1], array)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize(
    "thing",
    [Evil(), os.system, collections.OrderedDict(a=1), np.array([object()]), {1, 2}, 1j],
    ids=lambda thing: type(thing).__name__,
)
def test_everything_else_is_refused_and_never_run(thing, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="refused|no readable pickle"):
        read_pickled(pickle.dumps({"data": thing}, protocol=protocol))
    assert list(tmp_path.iterdir()) == []


def test_cut_and_nonsense_files_are_errors():
    whole = pickle.dumps({"data": np.zeros(5, np.uint8), "labels": [1, 2]})
    for data in (whole[:-20], whole[:3], b"", b"hello", b"\x80\x02(."):
        with pytest.raises(ValueError):
            read_pickled(data)
    itself = []
    itself.append(itself)
    with pytest.raises(ValueError, match="contains itself"):
        read_pickled(pickle.dumps(itself))
