"""Text to token ids and back: vocabulary, encoding, chat templates, the output stream."""
