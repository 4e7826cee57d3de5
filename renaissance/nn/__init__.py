"""Layers of our own: keyed dropout, and what compile swaps in for plain torch modules."""

from renaissance.nn.dropout import Dropout as Dropout
from renaissance.nn.dropout import StochasticDepth as StochasticDepth
from renaissance.nn.dropout import bind_dropouts as bind_dropouts
from renaissance.nn.dropout import restore_dropouts as restore_dropouts
from renaissance.nn.dropout import swap_dropouts as swap_dropouts
