"""Test kit: tests of handlers and applications without servers, with a clock of their own."""

from evenlane.engine.testing.attempts import FailedAttempt
from evenlane.engine.testing.driver import Stuck
from evenlane.engine.testing.made_message import message
from evenlane.engine.testing.placement_contract import PlacementContract
from evenlane.engine.testing.test_app import TestApp

__all__ = ["FailedAttempt", "PlacementContract", "Stuck", "TestApp", "message"]
