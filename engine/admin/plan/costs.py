"""Measured costs of a message, for `evenlane plan size`.

docs/explanation/benchmarks.md has the same figures with their circumstances: `make bench` measures the first two,
`python -m benchmarks.message_costs` the others. A test compares both places.
"""

from typing import Literal

Build = Literal["pure", "compiled"]

NODE_CPU_US: dict[Build, float] = {"pure": 10.8, "compiled": 5.2}
"""CPU time of a node for a message with an empty handler, in us."""
STORED_BYTES = 154
"""What a lane stores for a message besides its body: headers, subject, and the frame of the record, in bytes."""
PUTS_PER_S = 12_997
"""Puts of one producer that a server acknowledges with `sync_interval: always`."""
SERVER_WRITE_US = 66.0
"""CPU time of a server for a message that it writes and syncs, in us."""
SERVER_DELIVERY_US = 2.5
"""CPU time of a server for a message that it sends to a node, in us."""
PROCESS_BYTES = 92_000_000
"""Memory of a node after 10 million messages, without payloads that wait."""
METER_BYTES = 50_000
"""The size of a record for reports of 3,000 busy queues, at most, in bytes."""
ETCD_REQUESTS = 3
"""Requests of a node to etcd in each half of `lease_ttl`."""
