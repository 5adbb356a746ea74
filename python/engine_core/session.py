"""A session between a frontend and a core: numbers what goes out, notices what did not come in, keeps both within the
bytes that the other side can hold.

A pure state machine: no I/O, no clock. rust_frontend/transport/src/session.rs is its twin. Whoever owns one asks it for
the header of each message it sends, shows it each message that comes, and does what the verdict says. Times are seconds
since any fixed moment of the owner's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from octavo.wire.frontend import Ack, Header

__all__ = ["ACK_INTERVAL", "HELLO_INTERVAL", "Kind", "Role", "Session", "Verdict"]

#: A core asks for a session this often, in seconds.
HELLO_INTERVAL = 0.5
#: Each side is heard of at least this often, in seconds.
ACK_INTERVAL = 1.0
#: A frontend gives its Welcome this long to arrive before it takes it for lost, in seconds.
WELCOME_GRACE = 0.4
#: A stranger is told this often that it is one, in seconds.
NUDGE_INTERVAL = 0.2
#: Numbered messages under way at most, however small: queues are bounded in messages too.
MAX_UNDERWAY = 16_384


class Role(Enum):
    """Which end this is."""

    FRONTEND = auto()  # opens sessions, and counts the openings
    CORE = auto()  # asks for them


class Kind(Enum):
    """What a message is to the session."""

    HELLO = auto()  # a core asks for a session
    WELCOME = auto()  # the frontend opens one
    REFUSE = auto()  # the frontend will never open one
    ACK = auto()  # news of what was sent and received
    NUMBERED = auto()  # anything else


class Verdict(Enum):
    """What to do with a message that came."""

    DELIVER = auto()  # the next one: hand it on, and call `consumed` when it is worked off
    NOTED = auto()  # of the session, and says no more than its header, which is taken in
    DROP = auto()  # seen before, or of another session
    ASKED = auto()  # frontend: a core asks for a session; if its versions fit, `open` one and send everything anew
    OPENED = auto()  # core: the session is open; both sides count from 1
    OPENED_BY_NEW_PEER = auto()  # core: the same, and the frontend is another process than the one before
    REFUSED = auto()  # core: there will be no session
    LOST = auto()  # messages are missing: a frontend `reopen`s and sends everything anew, a core says Hello
    STRANGER = auto()  # frontend: the sender takes this for a frontend that is gone; `nudge` it


@dataclass(slots=True)
class _Outgoing:
    """What was sent in this epoch."""

    sent: int = 0
    acked: int = 0
    bytes: int = 0
    credit: int = 0  # `bytes` may grow up to this
    window: int = 0  # bytes that the other end holds at most


@dataclass(slots=True)
class _Incoming:
    """What came in this epoch."""

    received: int = 0
    bytes: int = 0
    consumed: int = 0  # bytes worked off
    told: int = 0  # the `received` of the latest header sent
    granted: int = 0  # the credit of the latest header sent


class Session:
    """One end of a session."""

    def __init__(self, role: Role, incarnation: int, window: int) -> None:
        """Start without a session. `window` bytes are held for the owner at most, plus one message."""
        self._role = role
        self._incarnation = incarnation
        self._window = window
        self._open = False
        self._peer = 0  # the other end's incarnation; 0: there was none
        self._epoch = 0
        self._openings = 0
        self._out = _Outgoing()
        self._in = _Incoming()
        self._opened_at = 0.0
        self._heard_at = 0.0
        self._spoke_at = 0.0
        self._asked_at: float | None = None
        self._nudged_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether numbered messages may go, credit permitting."""
        return self._open

    @property
    def peer(self) -> int:
        """The other end's incarnation; 0 before the first opening."""
        return self._peer

    @property
    def epoch(self) -> int:
        """Which opening of the other end this is; 0 before the first."""
        return self._epoch

    @property
    def openings(self) -> int:
        """How often a session has opened here, with whomever; what `consumed` wants back."""
        return self._openings

    @property
    def drained(self) -> bool:
        """Whether everything sent has been received."""
        return self._out.acked == self._out.sent

    @property
    def held(self) -> int:
        """Bytes that have come and are not worked off."""
        return self._in.bytes - self._in.consumed

    def silence(self, now: float) -> float:
        """Return for how many seconds nothing of the session has come."""
        return now - self._heard_at

    def may_send(self, size: int) -> bool:
        """Whether a numbered message of so many bytes may go now.

        One larger than the other end's window may go when that end has worked off everything else.
        """
        out = self._out
        if not self._open or out.sent - out.acked >= MAX_UNDERWAY:
            return False
        return out.bytes + size <= out.credit or out.bytes + out.window <= out.credit

    def number(self, size: int, now: float) -> Header:
        """Count a numbered message of so many bytes and return its header."""
        self._out.sent += 1
        self._out.bytes += size
        return self._header(self._out.sent, now)

    def ack_due(self, now: float) -> bool:
        """Whether an Ack must go: the other end may wait for credit, or has not been spoken to for long."""
        new_credit = self._credit() - self._in.granted
        return self._open and (
            now - self._spoke_at >= ACK_INTERVAL
            or (new_credit > 0 and new_credit >= self._window // 2)
            or self._in.received - self._in.told >= MAX_UNDERWAY // 4
        )

    def ack(self, now: float) -> tuple[Header, Ack]:
        """Return an Ack to send, due or not."""
        return self._header(0, now), Ack(self._out.sent)

    def hello_due(self, now: float) -> bool:
        """Core: whether a Hello must go."""
        if self._role is not Role.CORE or self._open:
            return False
        return self._asked_at is None or now - self._asked_at >= HELLO_INTERVAL

    def hello(self, now: float) -> Header:
        """Core: return the header of a Hello."""
        self._asked_at = now
        return Header(self._incarnation, 0, 0, 0, self._window, self._epoch)

    def open(self, hello: Header, now: float) -> Header:
        """Frontend: open a session with the sender of a Hello and return the Welcome's header."""
        self._peer = hello.incarnation
        self._out.window = hello.credit
        self._heard_at = now
        return self.reopen(now)

    def reopen(self, now: float) -> Header:
        """Frontend: open the session anew with the same core and return the Welcome's header."""
        self._begin(self._epoch + 1, self._out.window, now)
        return self._header(0, now)

    def refusal(self, hello: Header) -> Header:
        """Frontend: return the header of a Refuse for the sender of a Hello."""
        return self._unsolicited(hello.incarnation)

    def nudge(self, stranger: Header, now: float) -> Header | None:
        """Frontend: return the header of an Ack that shows a stranger who is here now, unless it was told just now."""
        if self._nudged_at is not None and now - self._nudged_at < NUDGE_INTERVAL:
            return None
        self._nudged_at = now
        return self._unsolicited(stranger.incarnation)

    def consumed(self, opening: int, size: int) -> None:
        """Give back so many bytes that were delivered when `openings` was `opening`."""
        if opening == self._openings:
            self._in.consumed += size

    def receive(self, header: Header, kind: Kind, size: int, now: float, *, sent: int = 0) -> Verdict:
        """Take in a message that came, of `size` bytes of body and aux frames, and say what to do with it.

        `sent` is an Ack's.
        """
        frontend = self._role is Role.FRONTEND
        if kind is Kind.HELLO:
            return self._receive_hello(header, now) if frontend else Verdict.DROP
        if frontend and kind in (Kind.WELCOME, Kind.REFUSE):
            return Verdict.DROP
        if header.session != self._incarnation:
            return Verdict.STRANGER if frontend else Verdict.DROP
        if kind is Kind.WELCOME:
            return self._receive_welcome(header, now)
        if kind is Kind.REFUSE:
            return Verdict.REFUSED
        return self._receive_inside(header, kind, size, now, sent)

    def check(self) -> None:
        """Raise AssertionError if what it counts does not fit together."""
        out, into = self._out, self._in
        assert out.acked <= out.sent, f"acknowledged {out.acked} of {out.sent}"
        assert into.consumed <= into.bytes, f"worked off {into.consumed} of {into.bytes} bytes"
        assert into.told <= into.received, f"told of {into.told}, received {into.received}"
        assert into.granted <= self._credit(), f"granted {into.granted} of {self._credit()}"
        assert not self._open or self._epoch > 0, "open without an opening"

    def _receive_hello(self, header: Header, now: float) -> Verdict:
        answered = self._open and header.incarnation == self._peer and header.epoch < self._epoch
        return Verdict.DROP if answered and now - self._opened_at < WELCOME_GRACE else Verdict.ASKED

    def _receive_welcome(self, header: Header, now: float) -> Verdict:
        same = header.incarnation == self._peer
        if same and header.epoch <= self._epoch:
            return Verdict.DROP
        new_peer = not same and self._peer != 0
        self._peer = header.incarnation
        self._heard_at = now
        self._begin(header.epoch, header.credit, now)
        return Verdict.OPENED_BY_NEW_PEER if new_peer else Verdict.OPENED

    def _receive_inside(self, header: Header, kind: Kind, size: int, now: float, sent: int) -> Verdict:
        if not self._open:
            return Verdict.DROP
        if header.incarnation != self._peer:
            # A core has one frontend: another one that answers has taken its place. A frontend's late cores are late.
            return self._lose() if self._role is Role.CORE else Verdict.DROP
        self._heard_at = now
        if header.epoch != self._epoch:
            return self._receive_other_epoch(header, now)
        out = self._out
        out.acked = max(out.acked, min(header.ack, out.sent))
        out.credit = max(out.credit, header.credit)
        if kind is Kind.ACK:
            return Verdict.NOTED if sent <= self._in.received else self._lose()
        if header.seq <= self._in.received:
            return Verdict.DROP
        if header.seq > self._in.received + 1:
            return self._lose()
        self._in.received += 1
        self._in.bytes += size
        return Verdict.DELIVER

    def _receive_other_epoch(self, header: Header, now: float) -> Verdict:
        ahead = header.epoch > self._epoch
        overdue = now - self._opened_at >= WELCOME_GRACE
        welcome_lost = ahead if self._role is Role.CORE else overdue
        return self._lose() if welcome_lost else Verdict.DROP

    def _lose(self) -> Verdict:
        if self._role is Role.CORE:
            self._open = False
            self._asked_at = None
        return Verdict.LOST

    def _begin(self, epoch: int, window: int, now: float) -> None:
        self._open = True
        self._epoch = epoch
        self._openings += 1
        self._out = _Outgoing(credit=window, window=window)
        # The opening's own header grants the window, so that only what is worked off later is news.
        self._in = _Incoming(granted=self._window)
        self._opened_at = now
        self._spoke_at = now

    def _credit(self) -> int:
        return self._in.consumed + self._window

    def _header(self, seq: int, now: float) -> Header:
        """Its sending is what was told and granted."""
        self._spoke_at = now
        self._in.told = self._in.received
        self._in.granted = self._credit()
        return Header(self._incarnation, self._peer, seq, self._in.received, self._in.granted, self._epoch)

    def _unsolicited(self, to: int) -> Header:
        """Return the header of a message outside any session."""
        return Header(self._incarnation, to, 0, 0, 0, 0)
