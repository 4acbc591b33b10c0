"""Records as msgspec structs: stored, sent to other processes, or returned as JSON.

Never compiled: msgspec builds its structs from annotations, which a compiled class lacks.
"""
