from collections.abc import Sequence

__version__: str

def hash_blocks(root: bytes, tokens: bytes, block_tokens: int) -> bytes:
    """Hash all full blocks into a chain of keys.

    `root` is a key of 16 bytes: what `root_key` returned, or the key of the block before the first one here, so that a
    chain can be continued. `tokens` is packed little-endian int32. Returns 16 bytes for each full block of
    `block_tokens` tokens, joined; a last block that is not full gets none. Releases the GIL for long inputs.

    Raises ValueError when the root is not 16 bytes, tokens is no multiple of 4 bytes, or block_tokens is below 1.
    """

def root_key(fields: Sequence[tuple[str, bytes]]) -> bytes:
    """Hash a list of (tag, value) into the 16-byte root of a chain.

    Tags say what a value is ("model", "kv_dtype", "weight_version", "salt"). No two lists give the same key: order,
    borders and repeated tags count. Raises ValueError when a tag is empty.
    """
