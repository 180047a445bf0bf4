"""What lies in a checkpoint's files: metadata and tensor indexes, read without torch."""
