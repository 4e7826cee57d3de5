"""Layers of our own: keyed dropout, and what compile swaps in for plain torch modules."""

from renaissance.nn.attention import Attention as Attention
from renaissance.nn.attention import MultiheadAttention as MultiheadAttention
from renaissance.nn.dropout import ChannelDropout as ChannelDropout
from renaissance.nn.dropout import Dropout as Dropout
from renaissance.nn.dropout import StochasticDepth as StochasticDepth
from renaissance.nn.keyed import bind_dropouts as bind_dropouts
from renaissance.nn.keyed import restore_dropouts as restore_dropouts
from renaissance.nn.keyed import swap_dropouts as swap_dropouts
from renaissance.nn.noise import Noise as Noise
