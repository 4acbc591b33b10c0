from evenlane import Message


async def handle(message: Message) -> None:
    print(f"{message.project} {message.priority}: {message.body.decode()}", flush=True)
