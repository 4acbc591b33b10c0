"""A handler that asks for retries, rejects messages, and handles a repeated message only once.

    evenlane topics set shop --qps 50 --max-attempts 3 --backoff-base 1s
    evenlane run --handler examples.retry:handle

A body of `later` asks for another attempt, `broken` is hopeless, `crash` fails like any defect would.
"""

from evenlane import Message, Reject, Retry

done: set[str] = set()  # in production: a unique column in the same transaction as the work


async def handle(message: Message) -> None:
    key = f"{message.project}:{message.id}"  # the same over all attempts
    if key in done:
        return
    match message.body:
        case b"later" if message.attempt == 1:
            raise Retry(after=2)  # seconds; counts as an attempt
        case b"broken":
            raise Reject("no order number")  # to the dead letters at once
        case b"crash":
            raise RuntimeError("any other error")  # retried by the topic's backoff, then a dead letter
    print(f"{message.id}: done in attempt {message.attempt}", flush=True)
    done.add(key)
