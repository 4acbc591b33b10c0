"""HTTP push: POSTs each message to the address in its topic's `push`.

`pusher.Pusher` does it on any node. docs/reference/http-push.md says what endpoints can rely on.
"""
