"""Trains a network of two layers on handwritten digits, with gradients that are written by hand.

The whole step is recorded as a program, so each step of the training is one small message to the server.

usage: train_digits.py [FOLDER]        default: tests/data of the source tree, which has digits.safetensors
"""

import pathlib
import sys

import tensord
from tensord import Tensor

DATA = pathlib.Path(__file__).parents[3] / "tests" / "data"
EPOCHS = 20
BATCH = 50
RATE = 0.5
TRAIN = 1200  # the other digits are for the test


def forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the hidden layer and the logits."""
    hidden = tensord.relu(x @ w1 + b1)
    return hidden, hidden @ w2 + b2


def step(x: Tensor, wanted: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> tuple[Tensor, ...]:
    """Returns the loss of the batch, and the parameters after one step of gradient descent."""
    hidden, logits = forward(x, w1, b1, w2, b2)
    loss = -(wanted * logits.log_softmax(axis=1)).sum(axis=1).mean()
    # Of softmax and cross-entropy together, the gradient is the difference of the distributions.
    d_logits = (logits.softmax(axis=1) - wanted) / BATCH
    d_hidden = (d_logits @ w2.T) * (hidden > 0).to("float32")
    return (
        loss,
        w1 - RATE * (x.T @ d_hidden),
        b1 - RATE * d_hidden.sum(axis=0),
        w2 - RATE * (hidden.T @ d_logits),
        b2 - RATE * d_logits.sum(axis=0),
    )


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    with tensord.connect():
        digits = tensord.load_safetensors(folder / "digits.safetensors")
        images, labels = digits["images"].to("float32") / 16, digits["labels"].to("int64")
        wanted = tensord.one_hot(labels, 10).to("float32")
        random = tensord.Generator(seed=1)
        parameters = (
            tensord.randn(64, 64, generator=random) * 0.1,
            tensord.zeros(64),
            tensord.randn(64, 10, generator=random) * 0.1,
            tensord.zeros(10),
        )
        program = tensord.Program(step, images[:BATCH], wanted[:BATCH], *parameters)
        for epoch in range(EPOCHS):
            losses = []
            for begin in range(0, TRAIN, BATCH):
                batch = slice(begin, begin + BATCH)
                loss, *parameters = program(images[batch], wanted[batch], *parameters)
                losses.append(loss)  # not read yet, so the loop doesn't wait
            if epoch % 5 == 4:
                print(f"epoch {epoch + 1}: loss {tensord.stack(losses).mean().item():.3f}")
        _, logits = forward(images[TRAIN:], *parameters)
        right = (logits.argmax(axis=1) == labels[TRAIN:]).sum().item()
        print(f"{right} of {len(images) - TRAIN} digits right")


if __name__ == "__main__":
    main()
