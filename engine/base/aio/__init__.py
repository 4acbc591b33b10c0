"""Small tools for asyncio."""
