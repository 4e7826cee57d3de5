"""Recurrent layers whose dropout is keyed: torch's LSTM, GRU and RNN of several layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from renaissance.nn.dropout import Dropout


class KeyedRecurrent(nn.RNNBase):
    """What the keyed recurrent layers share.

    ``task.compile()`` puts them in the place of torch's that drop between their layers
    (``dropout=0.2, num_layers=2``). In evaluation they are torch's; in training the layers run one
    by one, with a keyed `Dropout` between two. They share the parameters of the layer that they
    stand for: the same objects, the same names.
    """

    #: torch's class that it stands for.
    stands_for: type[Any]
    #: Each layer by itself, with the parameters of this module.
    parts: tuple[nn.RNNBase, ...]

    @classmethod
    def of(cls, plain: nn.RNNBase) -> KeyedRecurrent:
        """The keyed layer in the place of a plain one."""
        own = cls.__new__(cls)
        own.__dict__.update(plain.__dict__)
        own._modules = {f"drop{k}": Dropout(plain.dropout) for k in range(plain.num_layers - 1)}
        own.parts = tuple(own._part(k) for k in range(own.num_layers))
        return own

    def plain(self) -> nn.RNNBase:
        """The layer that draws from torch's generators, with the parameters of this one."""
        kind: Any = self.stands_for
        plain: nn.RNNBase = kind.__new__(kind)
        plain.__dict__.update({k: v for k, v in self.__dict__.items() if k != "parts"})
        plain._modules = {}
        return plain

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        if not self.training or self.dropout == 0:
            found: tuple[Any, Any] = super().forward(input, hx)
            return found
        if not self._has_parts():
            self.parts = tuple(self._part(k) for k in range(self.num_layers))
        states = []
        for k, part in enumerate(self.parts):
            input, state = part(input, self._state(hx, k))
            states.append(state)
            if k < self.num_layers - 1:
                input = self._dropped(input, self._modules[f"drop{k}"])
        if isinstance(states[0], tuple):
            return input, tuple(torch.cat(kind) for kind in zip(*states))
        return input, torch.cat(states)

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _has_parts(self) -> bool:
        """Whether the parts hold the parameters that this module has now."""
        if len(self.parts) != self.num_layers:
            return False
        return all(
            getattr(part, name) is getattr(self, name.replace("_l0", f"_l{k}"))
            for k, part in enumerate(self.parts)
            for names in part._all_weights
            for name in names
        )

    def _part(self, k: int) -> nn.RNNBase:
        """Layer k by itself."""
        width = self.input_size
        if k:
            width = self._directions * (self.proj_size or self.hidden_size)
        options: dict[str, Any] = {"bias": self.bias, "batch_first": self.batch_first}
        if self.stands_for is nn.LSTM:
            options["proj_size"] = self.proj_size
        if self.stands_for is nn.RNN:
            options["nonlinearity"] = getattr(self, "nonlinearity")  # noqa: B009 - RNN has it
        part: Any = self.stands_for(
            width, self.hidden_size, bidirectional=self.bidirectional, device="meta", **options
        )
        for names in part._all_weights:
            for name in names:
                setattr(part, name, getattr(self, name.replace("_l0", f"_l{k}")))
        return part  # type: ignore[no-any-return]

    def _state(self, hx: Any, k: int) -> Any:
        """The rows of layer k of the states that were given."""
        if hx is None:
            return None
        rows = slice(k * self._directions, (k + 1) * self._directions)
        return tuple(kind[rows] for kind in hx) if isinstance(hx, tuple) else hx[rows]

    def _dropped(self, found: Any, drop: Any) -> Any:
        """The outputs of a layer after dropout, with the sample first where there is one."""
        if isinstance(found, PackedSequence):
            return found._replace(data=drop(found.data))
        output: Tensor = found
        if output.dim() == 3 and not self.batch_first:
            return drop(output.transpose(0, 1)).transpose(0, 1)
        return drop(output)


class LSTM(KeyedRecurrent, nn.LSTM):
    """torch.nn.LSTM with keyed dropout between its layers."""

    stands_for = nn.LSTM


class GRU(KeyedRecurrent, nn.GRU):
    """torch.nn.GRU with keyed dropout between its layers."""

    stands_for = nn.GRU


class RNN(KeyedRecurrent, nn.RNN):
    """torch.nn.RNN with keyed dropout between its layers."""

    stands_for = nn.RNN


def keyed_recurrent(layer: Any) -> KeyedRecurrent | None:
    """The keyed layer in the place of one of torch's that drops; None for any other layer."""
    for own in (LSTM, GRU, RNN):
        if type(layer) is own.stands_for and layer.num_layers > 1 and 0 < layer.dropout < 1:
            names = [name for names in layer._all_weights for name in names]
            is_plain = all(name in layer._parameters for name in names)  # no weight_norm, say
            return own.of(layer) if is_plain else None
    return None
