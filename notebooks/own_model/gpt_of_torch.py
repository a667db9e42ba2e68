"""A GPT of PyTorch with 2.3 million parameters, and a text for it: the help pages that come with Python.

simfl run gpt_of_torch.yaml
"""

import pydoc_data.topics

import numpy as np
from torch import nn

LETTERS = [chr(code) for code in range(32, 127)]


def texts(length=64, test=128):
    """Return windows of characters as numbers, and in y the character after each place."""
    text = " ".join(" ".join(pydoc_data.topics.topics.values()).split())
    numbers = np.array([LETTERS.index(letter) for letter in text if letter in LETTERS], np.int32)
    windows = numbers[: (len(numbers) - 1) // length * length].reshape(-1, length)
    later = numbers[1 : windows.size + 1].reshape(-1, length)
    return {"x": windows[:-test], "y": later[:-test], "x_test": windows[-test:], "y_test": later[-test:]}


class Block(nn.Module):
    """Causal attention and a perceptron, each beside a residual connection."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, h):
        """Return h [b, n, width] after the block."""
        b, n, width = h.shape
        parts = self.project(self.before_attention(h)).reshape(b, n, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        h = h + self.join(mixed.transpose(1, 2).reshape(b, n, width))
        return h + self.perceptron(self.before_perceptron(h))


class GPT(nn.Module):
    """Logits [b, n, letters] of the next character at each of n places."""

    def __init__(self, length=64, width=192, heads=6, blocks=5):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(LETTERS), bias=False)
        for embedding in (self.letters, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, x):
        """Return the logits of x int [b, n]."""
        return self.head(self.norm(self.blocks(self.letters(x) + self.places.weight[: x.shape[1]])))
