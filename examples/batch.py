"""Up to 100 messages at once, all of one project's queue: one insert into a database, say, for all of them.

    evenlane run --handler examples.batch:handle

It succeeds or fails as a whole: if it raises, each of its messages has had a failed attempt.
"""

from evenlane import Message, batch


@batch(max=100)
async def handle(messages: list[Message]) -> None:
    rows = [(message.id, message.body) for message in messages]
    print(f"{messages[0].project} {messages[0].priority}: {len(rows)} at once", flush=True)
