"""A handler of up to 100 messages of one queue at once, with one database insert for all of them, for example.

    evenlane run --handler examples.batch:handle

The batch succeeds or fails as a whole: if the handler raises, the attempt of each of its messages has failed.
"""

from evenlane import Message, batch


@batch(max=100)
async def handle(messages: list[Message]) -> None:
    rows = [(message.id, message.body) for message in messages]
    print(f"{messages[0].project} {messages[0].priority}: {len(rows)} at once", flush=True)
