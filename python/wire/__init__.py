"""Messages between octavo's processes: records, codec, version. No torch, no I/O."""
