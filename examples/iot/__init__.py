"""A device platform: devices publish by MQTT, gateways put their data into Evenlane, handlers store it in a database.

    python -m examples.iot            # all of it for half a minute, with simulated devices and crashes
    python -m examples.iot up         # the platform alone, for devices of your own

docs/tutorials/device-platform.md explains it. Read `subjects.py`, `gateway.py` and `handlers.py` first.
"""
