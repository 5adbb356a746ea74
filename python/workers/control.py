"""Operations on the model of a worker, between steps: sleep, wake, a weight update. The core says what comes when."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from octavo.errors import ControlError
from octavo.wire.worker import ModelControlDone
from octavo.workers.weight_transfer.backend import connect
from octavo.workers.weight_transfer.description import described
from octavo.workers.weight_transfer.session import WeightSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from octavo.layers.batch import Progress
    from octavo.wire.worker import ModelControl
    from octavo.workers.resident import ResidentModel
    from octavo.workers.weight_transfer.backend import Place, WeightBackend

__all__ = ["ModelControls"]

Args = dict[str, str]

#: What may go wrong with memory, segments, connections and files while weights come.
_FAILURES = (RuntimeError, OSError, ValueError, MemoryError, SafetensorError)
#: Of the ranks, all of which are sent whole tensors, the one that keeps copies.
_KEEPER = 0


class ModelControls:
    """Carries operations out on one rank. A refusal (ControlError) leaves what is served as it was.

    Other exceptions end the worker, and with it all ranks: they begin again with what the journal says.
    """

    def __init__(self, resident: ResidentModel, place: Place, progress: Progress) -> None:
        self._resident = resident
        self._place = place
        self._progress = progress
        self._backend: WeightBackend | None = None
        self._described = ""  # the connection that there is, by the trainer
        self._session: WeightSession | None = None
        self._files = 0  # of the copy that is being kept
        self._operations: dict[str, Callable[[Args], Args]] = {
            "sleep": self._sleep,
            "wake_up": self._wake_up,
            "init_weight_transfer": self._init,
            "start_weight_update": self._start,
            "update_weights": self._update,
            "seal_weight_update": self._seal,
            "commit_weight_update": self._commit,
            "abort_weight_update": self._abort,
        }

    @torch.no_grad()
    def run(self, message: ModelControl) -> ModelControlDone:
        """Carry out one operation and return the answer."""
        rank = self._place.rank
        self._progress.phase = "loading"
        try:
            result = self._operations[message.op](message.args)
        except ControlError as error:
            return ModelControlDone(rank, message.id, {}, error.message, error.code, error.param)
        finally:
            self._progress.phase = "idle"
        return ModelControlDone(rank, message.id, result)

    def _sleep(self, args: Args) -> Args:
        self._resident.sleep(_tags(args), drop=args["level"] == "2")
        return {}

    def _wake_up(self, args: Args) -> Args:
        overlays = msgspec.json.decode(args["overlays"], type=tuple[str, ...])
        self._resident.wake(_tags(args), args["key"], overlays)
        return {"weight_key": self._resident.weight_key}

    def _init(self, args: Args) -> Args:
        if self._backend is not None:
            if args["info"] == self._described and self._backend.alive():
                return {}
            self._backend.close()
            self._backend = None
        self._backend = connect(msgspec.json.decode(args["info"]), self._place)
        self._described = args["info"]
        return {}

    def _start(self, args: Args) -> Args:
        try:
            self._session = WeightSession(self._resident.copy())
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise ControlError(f"there is no memory for a second copy of the weights: {reason}") from None
        return {}

    def _update(self, args: Args) -> Args:
        if self._backend is None or self._session is None:
            raise ControlError("this worker knows of no weight update", "conflict")
        info = msgspec.json.decode(args["info"])
        tensors = described(info)
        self._session.check(tensors)
        keeps = bool(args["store"]) and self._place.rank == _KEEPER
        kept: dict[str, Tensor] = {}
        try:
            incoming = self._backend.receive(info, tensors)
            for tensor, values in zip(tensors, incoming, strict=True):
                name = self._session.load(tensor.name, values)
                if keeps and name is not None:
                    kept[name] = values
                self._progress.layer += 1
            if keeps:
                self._keep(kept, Path(args["store"]))
        except _FAILURES as error:
            raise ControlError(f"the weights did not arrive: {error}") from None
        return {}

    def _keep(self, tensors: dict[str, Tensor], folder: Path) -> None:
        if not self._files:
            shutil.rmtree(folder, ignore_errors=True)  # of a session that was never finished
        folder.mkdir(parents=True, exist_ok=True)
        self._files += 1
        save_file(tensors, folder / f"{self._files:06d}.safetensors")

    def _seal(self, args: Args) -> Args:
        if self._session is None:
            raise ControlError("this worker knows of no weight update", "failed")
        missing = self._session.missing
        if missing and args["complete"] == "true":
            raise ControlError(
                f"the weights of before are gone, and {missing} of those that the model needs were not sent yet: send "
                "them too",
                "conflict",
            )
        try:
            self._session.seal()
        except RuntimeError as error:
            raise ControlError(f"the new weights cannot be made ready: {error}") from None
        return {"missing": str(missing)}

    def _commit(self, args: Args) -> Args:
        assert self._session is not None
        if args["overlay"] and self._place.rank == _KEEPER:
            shutil.rmtree(args["overlay"], ignore_errors=True)  # of a commit that a crash of another rank undid
            Path(args["store"]).rename(args["overlay"])
        self._resident.replace(self._session.seal(), args["key"])
        self._session, self._files = None, 0
        return {}

    def _abort(self, args: Args) -> Args:
        self._session, self._files = None, 0
        if args.get("store") and self._place.rank == _KEEPER:
            shutil.rmtree(args["store"], ignore_errors=True)
        return {}


def _tags(args: Args) -> set[str]:
    return {tag for tag in args["tags"].split(",") if tag}
