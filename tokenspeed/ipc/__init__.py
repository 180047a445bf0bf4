"""How bytes get from one process to another: shared segments, rings, wake-ups and the codec.

Nothing here knows actors or what a message means. Descriptors travel by inheritance or over a
socket; a name in the file system exists only while a segment is being made.
"""
