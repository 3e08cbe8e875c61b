"""The exceptions of tensord."""

from __future__ import annotations


class Error(RuntimeError):
    """An error of tensord. Each status code has a subclass.

    code: the status code, such as "INVALID_ARGUMENT".
    reason: a stable name of the cause for programs, such as "DEVICE_OUT_OF_MEMORY"; "" if there is none.
    retry_after: the seconds after which a retry may succeed; None if a retry doesn't help.
    """

    code: str = "UNKNOWN"
    reason: str = ""
    retry_after: float | None = None


class InvalidArgumentError(Error, ValueError):
    """Arguments are wrong, or shapes, dtypes or devices don't fit together."""


class OutOfRangeError(Error, IndexError):
    """An index is outside its axis."""


class NotFoundError(Error, LookupError):
    """There is no such device, tensor, op or file."""


class AlreadyExistsError(Error):
    """The name is in use."""


class PermissionDeniedError(Error, PermissionError):
    """The caller isn't allowed to do this."""


class UnauthenticatedError(Error, PermissionError):
    """The server doesn't accept the caller's token or certificate."""


class FailedPreconditionError(Error):
    """The object isn't in a state for this call: a closed connection, or a connection of the parent process."""


class ResourceExhaustedError(Error):
    """A limit is exceeded, such as the memory of a device."""


class OutOfMemoryError(ResourceExhaustedError, MemoryError):
    """The device has too little memory."""


class UnavailableError(Error, ConnectionError):
    """The server can't be reached, or is shutting down."""


class DataLossError(Error, ConnectionError):
    """The session and its tensors are lost."""


class DeadlineExceededError(Error, TimeoutError):
    """The time limit is over."""


class AbortedError(Error):
    """Another operation has interrupted this one."""


class CancelledError(Error):
    """The operation was cancelled."""


class UnimplementedError(Error, NotImplementedError):
    """The server doesn't support this."""


class InternalError(Error):
    """A bug of tensord."""


_CLASSES: dict[str, type[Error]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "OUT_OF_RANGE": OutOfRangeError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "UNAVAILABLE": UnavailableError,
    "DATA_LOSS": DataLossError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "ABORTED": AbortedError,
    "CANCELLED": CancelledError,
    "UNIMPLEMENTED": UnimplementedError,
    "INTERNAL": InternalError,
}


def from_status(code: str, message: str, reason: str, retry_after: float | None) -> Error:
    """Returns the exception for a status of the C++ library, which calls this function."""
    cls = OutOfMemoryError if reason == "DEVICE_OUT_OF_MEMORY" else _CLASSES.get(code, Error)
    error = cls(message)
    error.code, error.reason, error.retry_after = code, reason, retry_after
    return error
