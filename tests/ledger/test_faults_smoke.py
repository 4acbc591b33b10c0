from engine.producer import Put


async def test_smoke(world):
    await world.node("obey")
    await world.topics("acme")
    producer = await world.producer()
    await world.put(producer, [Put("acme", b"x", id=f"m{n}") for n in range(100)])
    await world.handled()
