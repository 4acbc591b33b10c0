"""HTTP push: POSTs each message to the address in its topic's `push`.

`pusher.Pusher` does it on any node. docs/how-to/push-to-http.md says what endpoints can rely on.
"""
