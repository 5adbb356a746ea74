"""What a call failed with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from octavo.errors import OctavoError

if TYPE_CHECKING:
    import grpc

__all__ = ["CallError"]

_DETAILS = "grpc-status-details-bin"


class CallError(OctavoError):
    """A call failed.

    `status` is gRPC's code, `code` octavo's, such as "invalid_value" ("" where the server said none). `param` is the
    field at fault, `retry_after_s` when to ask again, both where the server said so.
    """

    def __init__(
        self,
        status: grpc.StatusCode,
        message: str,
        code: str = "",
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.status.name}: {self.message}"

    @classmethod
    def of(cls, error: Any) -> CallError:
        """Return what a failed call (grpc.RpcError, grpc.aio.AioRpcError) says."""
        trailers = dict(error.trailing_metadata() or ())
        found = cls(error.code(), error.details() or "")
        try:
            status = status_pb2.Status.FromString(trailers.get(_DETAILS, b""))
        except DecodeError:  # not from octavo
            return found
        for detail in status.details:
            found._take(detail)
        return found

    def _take(self, detail: Any) -> None:
        info, request, retry = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.BadRequest(),
            error_details_pb2.RetryInfo(),
        )
        if detail.Unpack(info):
            self.code = info.reason
        elif detail.Unpack(request) and request.field_violations:
            self.param = request.field_violations[0].field
        elif detail.Unpack(retry):
            self.retry_after_s = retry.retry_delay.ToTimedelta().total_seconds()
