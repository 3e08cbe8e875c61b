"""Layers of neural networks, named and composed as in PyTorch. There is no autograd: these are for inference, and for
training with gradients of your own.

    from tensord import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(64, 128)
            self.output = nn.Linear(128, 10)

        def forward(self, x):
            return self.output(self.hidden(x).relu())

    net = Net()
    net.load_state_dict(tensord.load_safetensors("model.safetensors"))
"""

from ._attention import MultiheadAttention, TransformerEncoderLayer
from ._convolution import AdaptiveAvgPool2d, AvgPool2d, Conv1d, Conv2d, Conv3d, MaxPool2d
from ._layers import (
    GELU,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    Linear,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from ._module import Module, ModuleList, Parameter, Sequential
from ._normalization import BatchNorm1d, BatchNorm2d, LayerNorm, RMSNorm
from ._recurrent import GRU, LSTM

__all__ = [
    "GELU", "GRU", "LSTM", "AdaptiveAvgPool2d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Conv1d", "Conv2d", "Conv3d",
    "Dropout", "Embedding", "Flatten", "Identity", "LayerNorm", "Linear", "LogSoftmax", "MaxPool2d", "Module",
    "ModuleList", "MultiheadAttention", "Parameter", "RMSNorm", "ReLU", "Sequential", "SiLU", "Sigmoid", "Softmax",
    "Tanh", "TransformerEncoderLayer",
]  # fmt: skip
