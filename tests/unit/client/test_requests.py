"""Requests made of what a caller says, and errors read from trailers."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from octavo.client import CallError, Connection, generate_request
from octavo.client.requests import pause_mode
from octavo.errors import ConfigError
from octavo.v1 import inference_pb2


def test_prompts_of_three_kinds() -> None:
    assert generate_request("hi").text == "hi"
    assert list(generate_request([1, 2]).token_ids.ids) == [1, 2]
    asked = generate_request([{"role": "system", "content": "be"}, {"role": "user", "content": ["a", "b"]}])
    first, second = asked.conversation.messages
    assert (first.role, [part.text for part in first.content]) == ("system", ["be"])
    assert [part.text for part in second.content] == ["a", "b"]
    whole = inference_pb2.Conversation(messages=[inference_pb2.Message(role="user")])
    assert generate_request(whole).conversation == whole
    assert generate_request([]).WhichOneof("prompt") == "token_ids"


def test_what_is_not_said_is_left_to_the_server() -> None:
    asked = generate_request("hi", temperature=None, max_tokens=4, stop=["x"], logit_bias={3: 1.5})
    params = asked.sampling_params
    assert not params.HasField("temperature") and params.max_tokens == 4
    assert list(params.stop) == ["x"] and dict(params.logit_bias) == {3: 1.5}
    with pytest.raises(ValueError, match="tempratur"):
        generate_request("hi", tempratur=1.0)


def test_modes_are_words() -> None:
    assert [pause_mode(word) for word in (None, "abort", "wait", "keep")] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="SOON"):
        pause_mode("soon")


def test_half_a_pair_of_papers_is_refused() -> None:
    with pytest.raises(ConfigError, match="cert_file and key_file"):
        Connection("x:1", ca_file="a", cert_file="b").channel()
    with pytest.raises(ConfigError, match="ca_file"):
        Connection("x:1", cert_file="b", key_file="c").channel()


class Failed:
    """What grpc raises, as far as it is looked at."""

    def __init__(self, details: bytes) -> None:
        self._details = details

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.RESOURCE_EXHAUSTED

    def details(self) -> str:
        return "full"

    def trailing_metadata(self) -> list[tuple[str, Any]]:
        return [("grpc-status-details-bin", self._details)]


def test_errors_say_what_the_details_say() -> None:
    status = status_pb2.Status(code=8, message="full")
    for detail in (
        error_details_pb2.ErrorInfo(reason="overloaded", domain="octavo"),
        error_details_pb2.BadRequest(field_violations=[error_details_pb2.BadRequest.FieldViolation(field="text")]),
        error_details_pb2.RetryInfo(retry_delay=Duration(seconds=3)),
    ):
        packed = Packed()
        packed.Pack(detail)
        status.details.append(packed)
    error = CallError.of(Failed(status.SerializeToString()))
    assert (error.code, error.param, error.retry_after_s) == ("overloaded", "text", 3.0)
    assert str(error) == "RESOURCE_EXHAUSTED: full"
    other = CallError.of(Failed(b"\xff"))
    assert (other.code, other.param) == ("", None)
