"""Server-sent events: bytes in, payloads out."""

from __future__ import annotations

__all__ = ["Events"]


class Events:
    """Collects the `data` of events from pieces of any size. Comments and other fields are dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the payloads of the events that end in this piece."""
        lines = (self._rest + piece if self._rest else piece).split(b"\n")
        self._rest = lines.pop()
        done: list[bytes] = []
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                done.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
        return done

    def flush(self) -> list[bytes]:
        """Return the payload of a last event that no blank line ended."""
        return self.feed(b"\n\n")
