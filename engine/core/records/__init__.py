"""Records as msgspec structs: what is stored, sent to other processes, or answered as JSON.

Always interpreted, never compiled: msgspec builds its structs from annotations, which a compiled class lacks.
"""
