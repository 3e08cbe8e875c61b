"""Messages between two members of a process group: send() and recv() of the backend "tensord".

The sender publishes a tensor at its server under a name, and writes the name to the store of torch.distributed. The
receiver opens the tensor of this name: its device copies the tensor from the sender's server.
"""

import collections
import datetime
import json
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import tensord
import torch
import torch.distributed as dist

from . import as_tensord, as_torch

POLL_SECONDS = 0.001  # the pause between two looks at the store or at an event
_WAIT_SECONDS = 0.2  # the length of one wait for the store; PyTorch doesn't handle signals during a wait


def await_keys(store: dist.Store, keys: Sequence[str], deadline: float) -> None:
    """Waits until the store has the keys. Ctrl-C ends the wait.

    At the deadline, a time by time.monotonic(), raises DistStoreError.
    """
    while True:
        left = deadline - time.monotonic()
        try:
            return store.wait(list(keys), datetime.timedelta(seconds=max(min(left, _WAIT_SECONDS), 0.001)))
        except dist.DistStoreError:
            if left <= _WAIT_SECONDS:
                raise


class Messages:
    """The messages that a member sends to the other members and receives from them."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: float) -> None:
        """`timeout` is the limit of a wait for a message, in seconds."""
        self.store, self.timeout = store, timeout
        self._rank, self._size = rank, size
        # The number of messages sent and received, by sender, receiver and tag.
        self._counts: collections.Counter[tuple[int, int, int]] = collections.Counter()
        # By tag: the receives whose messages aren't known yet, in the order of the calls.
        self._receives: dict[int, tuple[threading.Lock, collections.deque[Receive]]] = collections.defaultdict(
            lambda: (threading.Lock(), collections.deque())
        )
        self._sent = 0  # messages that receivers may not have taken yet

    def send(self, tensor: torch.Tensor, receiver: int, tag: int) -> None:
        """Waits until the device has computed the tensor, but doesn't wait for the receiver."""
        address = torch.tensord.get_device_server(tensor.device)
        name = f"torch.distributed/{uuid.uuid4()}"
        try:
            _client(address).publish(as_tensord(tensor), name)
        except tensord.Error:
            tensor.reshape(-1)[:1].cpu()  # if the tensor has an error, this raises it as an exception of PyTorch
            raise
        message = {"server": address, "name": name}
        self.store.set(self._take_key(self._rank, receiver, tag), json.dumps(message).encode())
        self._sent += 1

    def receive(self, tensors: Sequence[torch.Tensor], source: int | None, tag: int) -> "Receive":
        """Returns a work. Its wait() blocks until the messages are in the store, and copies the tensors."""
        receive = Receive(self, tensors, source, tag)
        self._receives[tag][1].append(receive)
        return receive

    def find(self, receive: "Receive", deadline: float) -> None:
        """Sets the source and the keys of a receive. Receives that were called earlier get the earlier messages.

        At the deadline, a time by time.monotonic(), raises DistStoreError.
        """
        lock, receives = self._receives[receive.tag]
        with lock:
            while receive.keys is None:
                first = receives[0]
                if first.source is None:
                    first.source = self._await_source(first.tag, deadline)
                first.keys = [self._take_key(first.source, self._rank, first.tag) for _ in first.tensors]
                receives.popleft()

    def await_delivery(self, deadline: float) -> None:
        """Waits until the receivers have taken the messages, at most until the deadline.

        When this process's session ends, the server deletes the messages.
        """
        while self._sent > 0 and time.monotonic() < deadline:
            try:
                if self.store.add(_taken_key(self._rank), 0) >= self._sent:
                    self._sent = 0
            except RuntimeError:  # the process that holds the store has ended
                return
            time.sleep(POLL_SECONDS)

    def _next_key(self, sender: int, receiver: int, tag: int) -> str:
        """Returns the store's key of the next message. The sender and the receiver count the messages alike."""
        return f"tensord/message/{sender}/{receiver}/{tag}/{self._counts[sender, receiver, tag] + 1}"

    def _take_key(self, sender: int, receiver: int, tag: int) -> str:
        """Returns the same as _next_key(), and counts the message."""
        key = self._next_key(sender, receiver, tag)
        self._counts[sender, receiver, tag] += 1
        return key

    def _await_source(self, tag: int, deadline: float) -> int:
        """Waits for a message from any member, and returns the member. At the deadline, raises DistStoreError."""
        sources = [rank for rank in range(self._size) if rank != self._rank]
        while True:
            for source in sources:
                if self.store.check([self._next_key(source, self._rank, tag)]):
                    return source
            if time.monotonic() >= deadline:
                raise _timeout_error("no member has sent", tag)
            time.sleep(POLL_SECONDS)


class Receive(dist.Work):
    """The work of a receive. wait() takes the messages from the sender's server.

    If the source is None, the messages may come from any member. The first message then determines the source.
    """

    def __init__(self, messages: Messages, tensors: Sequence[torch.Tensor], source: int | None, tag: int) -> None:
        super().__init__()
        self._messages, self.tensors, self.source, self.tag = messages, tensors, source, tag
        self.keys: list[str] | None = None  # not known yet
        self._taken = 0  # the number of messages that have been taken

    @torch.no_grad()
    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Blocks until all messages have arrived, and copies them to the tensors.

        If `timeout` is None or 0, the group's timeout applies. If it passes, raises DistStoreError, and wait() may be
        called again. If a message can't be opened, raises an error, and the next call raises it again.
        """
        if timeout is not None and not isinstance(timeout, datetime.timedelta):
            raise TypeError(f"wait(): timeout must be a datetime.timedelta, not {type(timeout).__name__}")
        deadline = time.monotonic() + (timeout.total_seconds() if timeout else self._messages.timeout)
        self._messages.find(self, deadline)
        assert self.keys is not None and self.source is not None
        store = self._messages.store
        while self._taken < len(self.tensors):
            tensor, key = self.tensors[self._taken], self.keys[self._taken]
            try:
                await_keys(store, [key], deadline)
            except dist.DistStoreError:
                raise _timeout_error(f"member {self.source} has not sent", self.tag) from None
            message = json.loads(bytes(store.get(key)))
            client = _client(message["server"])
            found = as_torch(client.open(message["name"]))
            store.delete_key(key)
            self._taken += 1
            client.unpublish(message["name"])
            store.add(_taken_key(self.source), 1)
            # As with PyTorch's backends, the shapes may differ.
            if tensor.numel() != found.numel() or tensor.dtype != found.dtype:
                raise RuntimeError(
                    f"torch.distributed: recv: the message has the shape {list(found.shape)} and the dtype "
                    f"{found.dtype}, and the tensor has {list(tensor.shape)} and {tensor.dtype}"
                )
            tensor.data.copy_(found.reshape(tensor.shape))  # doesn't count as a change that backward() would refuse
        return True

    def is_completed(self) -> bool:
        """If all messages have arrived, takes them and returns True. Otherwise returns False."""
        if self._taken == len(self.tensors):
            return True
        try:
            self._messages.find(self, time.monotonic())
            assert self.keys is not None
            return self._messages.store.check(self.keys[self._taken :]) and self.wait()
        except RuntimeError:  # no message yet; if it is another error, wait() raises it
            return False

    is_success = is_completed

    def exception(self) -> None:
        return None

    def get_future(self) -> torch.futures.Future:
        """Waits as wait() does, and returns a future that is done."""
        self.wait()
        future = torch.futures.Future()
        future.set_result(self.tensors)
        return future

    def result(self) -> Sequence[torch.Tensor]:
        return self.tensors

    def source_rank(self) -> int | None:
        return self.source

    _source_rank = source_rank


def _client(address: str) -> Any:
    """Returns this process's client of the server at an address. If there is none, raises RuntimeError."""
    connection = tensord.current_connection()
    if isinstance(connection, tensord.Cluster):
        try:
            return connection.server(address)
        except tensord.NotFoundError:
            connection = None
    if connection is None or connection.address != address:
        raise RuntimeError(
            f"torch.distributed: the message is at the server {address}, to which this process has no connection: start"
            " all processes with the same TENSORD_SERVERS"
        )
    return connection


def _timeout_error(no_sender: str, tag: int) -> dist.DistStoreError:
    """Returns the error of a receive at its timeout. `no_sender` begins its sentence, as in "no member has sent"."""
    return dist.DistStoreError(f"torch.distributed: recv: {no_sender} a message with the tag {tag} in time")


def _taken_key(sender: int) -> str:
    """Returns the store's key of the number of a sender's messages that receivers have taken."""
    return f"tensord/taken/{sender}"
