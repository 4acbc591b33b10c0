"""The contract of the store port, for each implementation (E15). To test a third one, subclass `StoreContract` in a
module of its own with a fixture `world` (see tests/support/store/harness.py).
"""

from tests.contract.store.busy import BusyContract
from tests.contract.store.dead_letters import DeadLetterContract
from tests.contract.store.feeds import FeedContract
from tests.contract.store.flood import FloodContract
from tests.contract.store.heads import HeadContract
from tests.contract.store.lanes import LaneContract
from tests.contract.store.limits import LimitContract
from tests.contract.store.log import LogContract
from tests.contract.store.outages import OutageContract
from tests.contract.store.own_streams import OwnStreamContract
from tests.contract.store.puts import PutContract
from tests.contract.store.since import SinceContract
from tests.contract.store.writing import WritingContract


class StoreContract(
    PutContract,
    LaneContract,
    LimitContract,
    HeadContract,
    DeadLetterContract,
    FeedContract,
    FloodContract,
    LogContract,
    OutageContract,
    BusyContract,
    WritingContract,
    OwnStreamContract,
    SinceContract,
):
    """The whole contract."""
