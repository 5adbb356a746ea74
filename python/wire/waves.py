"""Messages between engine cores whose models share experts, and the coordinator of their waves.

Both ends are the same version, exactly. A message may be sent again: it says what is so, not what happened.
"""

from __future__ import annotations

from octavo.wire.frontend import Message

__all__ = ["Broken", "Meet", "Report", "Rest", "Start", "ToMember"]


class Report(Message, frozen=True):
    """core -> coordinator: all that there is to know of a rank. The one with the highest number counts."""

    rank: int
    life: str  # of its workers; no other life has the same word
    meeting: str  # that its workers were told to join; empty: none yet
    number: int
    waits: bool  # the workers are there and wait for a meeting
    wave: int  # the last one of this meeting that has ended here
    wants: bool  # there are requests that could run
    able: bool  # takes part in any wave that begins
    weights: str  # which weights it has; ranks with others have no wave together


class Meet(Message, frozen=True):
    """coordinator -> core: all workers are there; they find each other at this meeting."""

    meeting: str
    life: str  # of the workers that are meant


class Broken(Message, frozen=True):
    """coordinator -> core: one of the meeting is gone. Workers that joined it wait for ever: end them."""

    meeting: str


class Start(Message, frozen=True):
    """coordinator -> core: the wave begins; all ranks have said that they are able."""

    meeting: str
    wave: int


class Rest(Message, frozen=True):
    """coordinator -> core: no wave runs, and none begins before this rank says that it is able again."""

    meeting: str
    number: int  # of the report that is answered


ToMember = Meet | Broken | Start | Rest
