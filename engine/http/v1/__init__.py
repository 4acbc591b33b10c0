"""Version 1 of the HTTP API for programs: messages, topics, and their OpenAPI document."""
