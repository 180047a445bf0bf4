"""What actors say to each other: one file per receiver.

Messages are tagged, array-like, frozen and outside the garbage collector. Arrays travel as bytes
(int32, native byte order) and are read in place as memoryviews. A field is only ever added at the
end, with a default.
"""
