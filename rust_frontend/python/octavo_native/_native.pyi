from collections.abc import Sequence
from os import PathLike
from typing import Any

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

class GrammarError(ValueError):
    """A schema, grammar or token that is refused, with the reason."""

def check_schema(schema: dict[str, Any] | bool | str) -> None:
    """Raise GrammarError unless a JSON schema can be enforced; the message names the keyword. A str is JSON text."""

def accepts(schema: dict[str, Any] | bool | str, text: str) -> bool:
    """Tell whether a text is an instance of a schema, its keys in the schema's order. Raises as `check_schema`."""

class Vocabulary:
    """The words of a model's tokenizer, as grammars see them."""

    def __init__(self, folder: str | PathLike[str], vocab_size: int) -> None:
        """Read tokenizer.json and the end tokens of a folder; `vocab_size` is the width of the logits.

        Raises ValueError for files that are missing or damaged, and for a model without an end token.
        """

    def compile(self, kind: str, text: str) -> Grammar:
        """Compile a grammar of the wire: "lark", "json_schema" or "regex". Raises GrammarError. Releases the GIL."""

class Grammar:
    """A compiled grammar."""

    def matcher(self) -> Matcher:
        """Start an output."""

class Matcher:
    """Where one output stands in its grammar."""

    def accept(self, token: int) -> bool:
        """Take the next token. Returns whether the output is complete: nothing may follow.

        Raises GrammarError for a token that is not allowed here.
        """

    def accepting(self) -> bool:
        """Tell whether the output may end here."""

def fill_masks(matchers: Sequence[Matcher], vocab_size: int) -> tuple[bytes, list[str | None]]:
    """Return which tokens may come next in each output, and what went wrong with each.

    A mask is ceil(vocab_size / 32) little-endian u32: bit t % 32 of word t // 32 allows token t. Releases the GIL.
    """

class RenderError(ValueError):
    """A request that cannot be rendered. `args` is (message, code, param); param is None where no field is at fault."""

class Renderer:
    """Turns requests for one model into prompts, and tokens into text. May be shared between threads."""

    def __init__(self, folder: str | PathLike[str], seed: int | None = None) -> None:
        """Read tokenizer.json, tokenizer_config.json, the chat template, generation_config.json and config.json.

        `seed` starts the generator that requests without a seed draw theirs from; None: the system's randomness.
        Raises ValueError for a file that is missing, damaged or not supported.
        """

    @property
    def warnings(self) -> list[str]:
        """What was found and not used while loading, one line each."""

    def chat(self, body: bytes, max_model_len: int, vocab_size: int) -> Prepared:
        """Check and render the body of a request to /v1/chat/completions. Raises RenderError. Releases the GIL."""

    def completion(self, body: bytes, max_model_len: int, vocab_size: int) -> Prepared:
        """Check and render the body of a request to /v1/completions. Raises RenderError. Releases the GIL."""

    def chat_text(self, body: bytes) -> str:
        """Return the text of the prompt that a conversation gives. Raises RenderError. Releases the GIL."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Return the token ids of a text. Releases the GIL."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens left out. Releases the GIL."""

class Prepared:
    """A rendered request."""

    @property
    def prompt(self) -> bytes:
        """Token ids, packed little-endian int32."""

    @property
    def sampling(self) -> tuple[int, int, float, float, int, list[int]]:
        """Seed, max_tokens, temperature, top_p, top_k, stop ids: complete, as the engine takes them."""

    def output(self) -> OutputText:
        """Start the text of an output."""

class OutputText:
    """Text of one output, as its tokens come. For one thread at a time."""

    def advance(
        self, tokens: bytes, reason: str | None = None, stop_token: int | None = None
    ) -> tuple[str, tuple[str, int | str | None, int] | None]:
        """Take the tokens (packed int32) of a step and, in the last step, why the engine ended the request.

        Returns the text that is certain now and, once, the end: finish reason, the stop string or id of the request
        that ended it, and how many tokens count. An end without a reason from the engine is a stop string: abort the
        request. Raises ValueError when `tokens` is no multiple of 4 bytes.
        """
