"""The node: thin asyncio shells that carry out the decisions of lanes, queues and scheduler. Data flows one way: feed,
queue, schedule, handle, settle.
"""
