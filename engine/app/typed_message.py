"""`Message` as type checkers see it: generic in the type of its body. At runtime it is the class of `core.message`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Generic

    from typing_extensions import TypeVar

    from evenlane.engine.core.message import message

    T = TypeVar("T", default=Any)

    class Message(message.Message, Generic[T]):
        """`Message` alone is `Message[Any]`."""

        @property
        def data(self) -> T: ...
