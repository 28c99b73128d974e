import torch
from torch import nn

from .layers import Block

VOCABULARY = 256


class GPT(nn.Module):
    """A language model of bytes."""

    def __init__(self, layers: int, heads: int, width: int, length: int):
        super().__init__()
        self.byte, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1])
        return self.out(self.blocks(self.byte(tokens) + self.place(places)))
