"""The client for threads."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc

from octavo.client.connection import Connection
from octavo.client.errors import CallError
from octavo.client.requests import Prompt, generate_request, json_text, pause_mode
from octavo.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc

__all__ = ["Client"]


class Client:
    """Calls one server over one channel; for many threads. Use it as a context manager, or call `close`.

    `timeout` is the deadline of each call in seconds that sets none itself; None: there is none. Calls raise CallError.
    """

    def __init__(self, target: str | Connection, *, timeout: float | None = None, **connection: Any) -> None:
        self._connection = target if isinstance(target, Connection) else Connection(target, **connection)
        self._timeout = timeout
        self._channel = self._connection.channel()
        self._inference = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._control = control_pb2_grpc.ControlServiceStub(self._channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel; calls that run are cancelled. Idempotent."""
        self._channel.close()

    def generate(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Any
    ) -> inference_pb2.GenerateResponse:
        """Return whole outputs; options are those of `generate_request`."""
        request = generate_request(prompt, **options)
        answer: inference_pb2.GenerateResponse = self._call(self._inference.Generate, request, timeout)
        return answer

    def stream(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Any
    ) -> Iterator[inference_pb2.GenerateStreamResponse]:
        """Yield outputs as they come; closing the iterator ends the request."""
        request = generate_request(prompt, **options)
        call = self._inference.GenerateStream(request, timeout=timeout or self._timeout, metadata=self._metadata())
        try:
            yield from call
        except grpc.RpcError as error:
            raise CallError.of(error) from None
        finally:
            call.cancel()

    def server_info(self) -> dict[str, Any]:
        """Return what the server is, as `/server_info` does."""
        answer = self._control_call("GetServerInfo", control_pb2.GetServerInfoRequest())
        found: dict[str, Any] = json.loads(answer.info_json)
        return found

    def model_info(self) -> control_pb2.GetModelInfoResponse:
        """Return what the model can take, and how its weights are named."""
        request = control_pb2.GetModelInfoRequest()
        answer: control_pb2.GetModelInfoResponse = self._control_call("GetModelInfo", request)
        return answer

    def kv_event_sources(self) -> list[control_pb2.KvEventSource]:
        """Return where events of the prefix cache are published."""
        return list(self._control_call("GetKvEventSources", control_pb2.GetKvEventSourcesRequest()).sources)

    def abort(self, request_ids: Sequence[str] = ()) -> int:
        """End requests, all if none are named; return how many were there."""
        aborted: int = self._control_call("Abort", control_pb2.AbortRequest(request_ids=request_ids)).aborted
        return aborted

    def pause(self, mode: str | None = None, *, clear_cache: bool | None = None, timeout: float | None = None) -> None:
        """Pause generation: "abort", "wait" or "keep" what runs. Returns when nothing runs any more."""
        request = control_pb2.PauseGenerationRequest(mode=pause_mode(mode), clear_cache=clear_cache)
        self._control_call("PauseGeneration", request, timeout)

    def resume(self) -> None:
        """Let requests run again."""
        self._control_call("ResumeGeneration", control_pb2.ResumeGenerationRequest())

    def is_paused(self) -> bool:
        """Return whether generation is paused."""
        return bool(self._control_call("IsPaused", control_pb2.IsPausedRequest()).is_paused)

    def sleep(self, level: int | None = None, mode: str | None = None, *, timeout: float | None = None) -> None:
        """Pause and give memory back: levels 0, 1, 2."""
        self._control_call("Sleep", control_pb2.SleepRequest(level=level, mode=pause_mode(mode)), timeout)

    def wake_up(self, tags: Sequence[str] = (), *, timeout: float | None = None) -> None:
        """Take memory again: "weights", "kv_cache", "scheduling", or all."""
        self._control_call("WakeUp", control_pb2.WakeUpRequest(tags=tags), timeout)

    def is_sleeping(self) -> bool:
        """Return whether anything is still asleep."""
        return bool(self._control_call("IsSleeping", control_pb2.IsSleepingRequest()).is_sleeping)

    @contextlib.contextmanager
    def weight_update(self, init_info: Mapping[str, Any], version: str = "") -> Iterator[None]:
        """Open a session of new weights, which count from the end of the block; an error in it drops the session.

        Generation must be paused. Call `update_weights` in the block, any number of times.
        """
        self.init_weight_transfer_engine(init_info)
        self.start_weight_update()
        try:
            yield
            self.finish_weight_update(version)
        except BaseException:
            with contextlib.suppress(CallError):
                self.abort_weight_update()
            raise

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Choose how weights come, such as {"backend": "shm"}."""
        request = control_pb2.InitWeightTransferEngineRequest(init_info_json=json_text(init_info))
        self._control_call("InitWeightTransferEngine", request)

    def start_weight_update(self) -> None:
        """Open a session."""
        self._control_call("StartWeightUpdate", control_pb2.StartWeightUpdateRequest())

    def update_weights(self, update_info: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Let the server take some weights."""
        request = control_pb2.UpdateWeightsRequest(update_info_json=json_text(update_info))
        self._control_call("UpdateWeights", request, timeout)

    def finish_weight_update(self, version: str = "") -> str:
        """Let the new weights count; return their name."""
        request = control_pb2.FinishWeightUpdateRequest(weight_version=version)
        name: str = self._control_call("FinishWeightUpdate", request).weight_version
        return name

    def abort_weight_update(self) -> None:
        """Drop a session that is open."""
        self._control_call("AbortWeightUpdate", control_pb2.AbortWeightUpdateRequest())

    def update_weight_version(self, version: str) -> None:
        """Name the weights otherwise."""
        self._control_call("UpdateWeightVersion", control_pb2.UpdateWeightVersionRequest(new_version=version))

    def weight_version(self) -> str:
        """Return how the weights are named."""
        name: str = self._control_call("GetWeightVersion", control_pb2.GetWeightVersionRequest()).weight_version
        return name

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> None:
        """Forget all cached prefixes."""
        request = control_pb2.ResetPrefixCacheRequest(reset_running_requests=reset_running_requests)
        self._control_call("ResetPrefixCache", request)

    def shutdown(self) -> None:
        """End the server in order."""
        self._control_call("Shutdown", control_pb2.ShutdownRequest())

    def _metadata(self) -> list[tuple[str, str]]:
        return self._connection.metadata()

    def _control_call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        return self._call(getattr(self._control, method), request, timeout)

    def _call(self, method: Any, request: Any, timeout: float | None) -> Any:
        try:
            return method(request, timeout=timeout or self._timeout, metadata=self._metadata())
        except grpc.RpcError as error:
            raise CallError.of(error) from None
