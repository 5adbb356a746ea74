"""The client for asyncio."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc

from octavo.client.connection import Connection
from octavo.client.errors import CallError
from octavo.client.requests import Prompt, generate_request, json_text, pause_mode
from octavo.v1 import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc

__all__ = ["AsyncClient"]


class AsyncClient:
    """Calls one server over one channel, in one event loop. Use it as an async context manager, or call `close`.

    `timeout` is the deadline of each call in seconds that sets none itself; None: there is none. Calls raise CallError.
    """

    def __init__(self, target: str | Connection, *, timeout: float | None = None, **connection: Any) -> None:
        self._connection = target if isinstance(target, Connection) else Connection(target, **connection)
        self._timeout = timeout
        self._channel = self._connection.aio_channel()
        self._inference = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._control = control_pb2_grpc.ControlServiceStub(self._channel)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; calls that run are cancelled. Idempotent."""
        await self._channel.close()

    async def generate(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Any
    ) -> inference_pb2.GenerateResponse:
        """Return whole outputs; options are those of `generate_request`."""
        request = generate_request(prompt, **options)
        answer: inference_pb2.GenerateResponse = await self._call(self._inference.Generate, request, timeout)
        return answer

    async def stream(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Any
    ) -> AsyncIterator[inference_pb2.GenerateStreamResponse]:
        """Yield outputs as they come; closing the iterator ends the request."""
        request = generate_request(prompt, **options)
        call = self._inference.GenerateStream(request, timeout=timeout or self._timeout, metadata=self._metadata())
        try:
            async for message in call:
                yield message
        except grpc.RpcError as error:
            raise CallError.of(error) from None
        finally:
            call.cancel()

    async def server_info(self) -> dict[str, Any]:
        """Return what the server is, as `/server_info` does."""
        answer = await self._control_call("GetServerInfo", control_pb2.GetServerInfoRequest())
        found: dict[str, Any] = json.loads(answer.info_json)
        return found

    async def model_info(self) -> control_pb2.GetModelInfoResponse:
        """Return what the model can take, and how its weights are named."""
        request = control_pb2.GetModelInfoRequest()
        answer: control_pb2.GetModelInfoResponse = await self._control_call("GetModelInfo", request)
        return answer

    async def kv_event_sources(self) -> list[control_pb2.KvEventSource]:
        """Return where events of the prefix cache are published."""
        return list((await self._control_call("GetKvEventSources", control_pb2.GetKvEventSourcesRequest())).sources)

    async def abort(self, request_ids: Sequence[str] = ()) -> int:
        """End requests, all if none are named; return how many were there."""
        aborted: int = (await self._control_call("Abort", control_pb2.AbortRequest(request_ids=request_ids))).aborted
        return aborted

    async def pause(
        self, mode: str | None = None, *, clear_cache: bool | None = None, timeout: float | None = None
    ) -> None:
        """Pause generation: "abort", "wait" or "keep" what runs. Returns when nothing runs any more."""
        request = control_pb2.PauseGenerationRequest(mode=pause_mode(mode), clear_cache=clear_cache)
        await self._control_call("PauseGeneration", request, timeout)

    async def resume(self) -> None:
        """Let requests run again."""
        await self._control_call("ResumeGeneration", control_pb2.ResumeGenerationRequest())

    async def is_paused(self) -> bool:
        """Return whether generation is paused."""
        return bool((await self._control_call("IsPaused", control_pb2.IsPausedRequest())).is_paused)

    async def sleep(self, level: int | None = None, mode: str | None = None, *, timeout: float | None = None) -> None:
        """Pause and give memory back: levels 0, 1, 2."""
        await self._control_call("Sleep", control_pb2.SleepRequest(level=level, mode=pause_mode(mode)), timeout)

    async def wake_up(self, tags: Sequence[str] = (), *, timeout: float | None = None) -> None:
        """Take memory again: "weights", "kv_cache", "scheduling", or all."""
        await self._control_call("WakeUp", control_pb2.WakeUpRequest(tags=tags), timeout)

    async def is_sleeping(self) -> bool:
        """Return whether anything is still asleep."""
        return bool((await self._control_call("IsSleeping", control_pb2.IsSleepingRequest())).is_sleeping)

    @contextlib.asynccontextmanager
    async def weight_update(self, init_info: Mapping[str, Any], version: str = "") -> AsyncIterator[None]:
        """Open a session of new weights, which count from the end of the block; an error in it drops the session.

        Generation must be paused. Call `update_weights` in the block, any number of times.
        """
        await self.init_weight_transfer_engine(init_info)
        await self.start_weight_update()
        try:
            yield
            await self.finish_weight_update(version)
        except BaseException:
            with contextlib.suppress(CallError):
                await self.abort_weight_update()
            raise

    async def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Choose how weights come, such as {"backend": "shm"}."""
        request = control_pb2.InitWeightTransferEngineRequest(init_info_json=json_text(init_info))
        await self._control_call("InitWeightTransferEngine", request)

    async def start_weight_update(self) -> None:
        """Open a session."""
        await self._control_call("StartWeightUpdate", control_pb2.StartWeightUpdateRequest())

    async def update_weights(self, update_info: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Let the server take some weights."""
        request = control_pb2.UpdateWeightsRequest(update_info_json=json_text(update_info))
        await self._control_call("UpdateWeights", request, timeout)

    async def finish_weight_update(self, version: str = "") -> str:
        """Let the new weights count; return their name."""
        request = control_pb2.FinishWeightUpdateRequest(weight_version=version)
        name: str = (await self._control_call("FinishWeightUpdate", request)).weight_version
        return name

    async def abort_weight_update(self) -> None:
        """Drop a session that is open."""
        await self._control_call("AbortWeightUpdate", control_pb2.AbortWeightUpdateRequest())

    async def update_weight_version(self, version: str) -> None:
        """Name the weights otherwise."""
        await self._control_call("UpdateWeightVersion", control_pb2.UpdateWeightVersionRequest(new_version=version))

    async def weight_version(self) -> str:
        """Return how the weights are named."""
        name: str = (await self._control_call("GetWeightVersion", control_pb2.GetWeightVersionRequest())).weight_version
        return name

    async def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> None:
        """Forget all cached prefixes."""
        request = control_pb2.ResetPrefixCacheRequest(reset_running_requests=reset_running_requests)
        await self._control_call("ResetPrefixCache", request)

    async def shutdown(self) -> None:
        """End the server in order."""
        await self._control_call("Shutdown", control_pb2.ShutdownRequest())

    def _metadata(self) -> list[tuple[str, str]]:
        return self._connection.metadata()

    async def _control_call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        return await self._call(getattr(self._control, method), request, timeout)

    async def _call(self, method: Any, request: Any, timeout: float | None) -> Any:
        try:
            return await method(request, timeout=timeout or self._timeout, metadata=self._metadata())
        except grpc.RpcError as error:
            raise CallError.of(error) from None
