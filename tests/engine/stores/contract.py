"""What any implementation of the store port must keep (E15). To try a third one, subclass `StoreContract` in a
module of its own with a fixture `world` (see worlds.py).
"""

from tests.engine.stores.contract_busy import BusyContract
from tests.engine.stores.contract_dead_letters import DeadLetterContract
from tests.engine.stores.contract_feeds import FeedContract
from tests.engine.stores.contract_flood import FloodContract
from tests.engine.stores.contract_heads import HeadContract
from tests.engine.stores.contract_lanes import LaneContract
from tests.engine.stores.contract_limits import LimitContract
from tests.engine.stores.contract_log import LogContract
from tests.engine.stores.contract_outages import OutageContract
from tests.engine.stores.contract_puts import PutContract
from tests.engine.stores.contract_writing import WritingContract


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
):
    """All of it."""
