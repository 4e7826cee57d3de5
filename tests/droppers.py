"""Small networks on (N, 5, 8) with layers that drop inside, into three classes."""

from torch import nn


class Encoder(nn.Module):
    """A transformer of torch's default dropout, classifying by the mean over places."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


class Channels(nn.Module):
    """A convolution whose channels are dropped."""

    def __init__(self):
        super().__init__()
        self.body, self.drop = nn.Conv1d(5, 8, 3), nn.Dropout1d(0.5)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.drop(self.body(x)).mean(2))
