"""A client of Holdfast, a keeper of terminals: sessions that outlive their viewers.

README.md describes how to use it, and protocol/SPEC.md describes the wire.
"""

from .attachment import (
    Attachment, Event, Exit, InputFull, Output, Resized, Resync, Snapshot, State, StateChanged, Stolen, Typed, View, Warned,
)
from .client import Holdfast, PastOutput
from .connection import Dial, Redial
from .errors import HoldfastError
from .programs import Upgrade
from .subscription import SessionEvent, Subscription

__all__ = [
    "Attachment", "Dial", "Event", "Exit", "Holdfast", "HoldfastError", "InputFull", "Output", "PastOutput", "Redial", "Resized", "Resync", "SessionEvent",
    "Snapshot", "State", "StateChanged", "Stolen", "Subscription", "Typed", "Upgrade", "View", "Warned",
]
