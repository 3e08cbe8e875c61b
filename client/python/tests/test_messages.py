"""Messages of errors name what a Python program can call, and not the functions of C++."""

import pathlib
import re

import pytest
import tensord
from tensord import _core

PAGE = pathlib.Path(__file__).parents[3] / "client" / "ERRORS.md"
CPP = re.compile(r"::|\bTryDevice\b|\bRunOp\b|\b(Record|Run|Connect|LoadStateDict|ReadAs|To)\(|\{\.")


def messages():
    """Returns the messages of the page of errors, each the last column of a row."""
    rows = (line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| "))
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row[-1])]


def test_no_message_of_the_page_of_errors_names_cpp():
    texts = messages()
    assert len(texts) > 150
    left = [text for text in texts if CPP.search(_core._for_python(text))]
    assert left == []


def test_other_text_stays():
    text = 'index (tensor 3): index 7 at [0] of input 1 is out of range; copy it first, as "cpu:0" to To'
    assert _core._for_python(text) == text


def test_messages_at_the_call(client):
    x, other = tensord.ones(2, 3), tensord.ones(2, 3, device="cpu:1")
    with pytest.raises(tensord.InvalidArgumentError, match=r"copy one first.*\(Tensor\.to\)"):
        x + other
    seen = []

    def body(value):
        seen.append(value)
        return value + 1

    step = tensord.Program(body, x)
    assert step(x).shape == (2, 3)
    with pytest.raises(tensord.FailedPreconditionError, match="has ended; call the program"):
        seen[0] + 1
    with pytest.raises(tensord.FailedPreconditionError, match="return it from the function"):
        tensord.Program(lambda value: value.numpy(), x)


def test_messages_of_a_closed_connection(address):
    with tensord.connect(address) as connection:
        x = tensord.ones(3, device=connection.device("cpu:0"))
    with pytest.raises(tensord.FailedPreconditionError, match=r"close\(\) has closed.*call tensord\.connect\(\) again"):
        x.numpy()
    assert "call tensord.connect() again" in repr(x)
