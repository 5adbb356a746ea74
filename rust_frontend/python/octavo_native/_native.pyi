from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

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

    def __init__(self, folder: str | PathLike[str], seed: int | None = None, max_logprobs: int = 20) -> None:
        """Read tokenizer.json, tokenizer_config.json, the chat template, generation_config.json and config.json.

        `seed` starts the generator that requests without a seed draw theirs from; None: the system's randomness.
        `max_logprobs`: how many log probabilities a request may ask for with each token; -1: any number. Raises ValueError for a file that is missing, damaged or not supported.
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

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, **fields: Any
    ) -> str:
        """Return the text of the prompt that messages give; `fields` are further ones of /v1/chat/completions.

        Among them: documents, add_generation_prompt (True unless continue_final_message is), continue_final_message,
        chat_template_kwargs, reasoning_effort. Raises RenderError, ValueError for values that JSON cannot hold.
        Releases the GIL.
        """

    def render_tokens(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, **fields: Any
    ) -> list[int]:
        """Return the token ids of the prompt that messages give: `encode` of what `render` returns, in one step.

        Raises what they raise. Releases the GIL, but for short conversations.
        """

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of a text. Releases the GIL."""

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id by itself, special tokens included. Releases the GIL."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens left out. Releases the GIL."""

class IncrementalDecoder:
    """Text of a growing list of ids, special tokens left out. For one thread at a time.

    The pieces joined, and what `finish` adds, equal `Renderer.decode` of all ids at once, however they are cut.
    """

    def __init__(self, renderer: Renderer, prompt: Sequence[int] = ()) -> None:
        """Start behind the ids of `prompt`, whose own text is not given out."""

    def push(self, ids: Sequence[int]) -> str:
        """Return the text that the ids make certain. Releases the GIL."""

    def finish(self) -> str:
        """Return what was held back: an unfinished character becomes U+FFFD."""

def render_template(template_text: str, case: Mapping[str, Any]) -> str:
    """Return the text that a chat template gives for a case, as Transformers' apply_chat_template does.

    `case` has the fields of a line of a template oracle: messages (or conversation, which wins), tools, documents,
    add_generation_prompt, continue_final_message, special, kwargs, chat_template_kwargs (variables of the template), now
    (the time that it sees; the clock's where it is absent). Others are ignored.

    Raises ValueError for a template that cannot be compiled or is not supported, and RenderError for a conversation that
    it does not render; its code is "refused" where the template called raise_exception, whose message it then has.
    Releases the GIL.
    """

class Prepared:
    """A rendered request."""

    @property
    def prompt(self) -> bytes:
        """Token ids, packed little-endian int32."""

    @property
    def n(self) -> int:
        """Outputs that are asked for."""

    def sampling(self, index: int) -> bytes:
        """Return the parameters of output `index`, complete: the wire's SamplingParams as MessagePack."""

    @property
    def grammar(self) -> tuple[str, str] | None:
        """What the output must be: the kind and text of the wire's Grammar; None: any text."""

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

class Event:
    """One thing that the parser says. Events only append; the same text gives the same fold, however it is cut."""

    @property
    def kind(self) -> Literal["reasoning", "content", "call", "arguments", "close", "malformed", "end"]:
        """What it is. `call` opens a call, `arguments` adds to one, `close` ends one."""

    @property
    def text(self) -> str | None:
        """Of reasoning, content, arguments (JSON) and malformed."""

    @property
    def tokens(self) -> int | None:
        """Of reasoning: how many tokens ended in the text; 0 where text was fed."""

    @property
    def index(self) -> int | None:
        """Of call, arguments and close: the call's place, from 0."""

    @property
    def id(self) -> str | None:
        """Of call: its id."""

    @property
    def name(self) -> str | None:
        """Of call: the tool's name."""

    @property
    def reason(self) -> str | None:
        """Of malformed: what is wrong. Of end: "stop", "length" or "abort"."""

class ToolCall:
    """One call of a message."""

    @property
    def id(self) -> str:
        """By which a tool's result refers to it."""

    @property
    def name(self) -> str:
        """Name of the tool."""

    @property
    def arguments(self) -> str:
        """As the model gave them: JSON unless the model or a limit broke off."""

class Message:
    """Everything that a model said."""

    @property
    def content(self) -> str:
        """The answer."""

    @property
    def reasoning(self) -> str:
        """The thoughts."""

    @property
    def calls(self) -> list[ToolCall]:
        """The calls, in order."""

    @property
    def malformed(self) -> str:
        """Text that broke the format and is neither shown nor part of a call."""

class Parser:
    """Parses one answer as it comes. For one thread at a time."""

    def __init__(
        self,
        tool: str | None = None,
        reasoning: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        start: str | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        *,
        parallel: bool = True,
        format_files: Sequence[str | PathLike[str]] = (),
        renderer: Renderer | None = None,
    ) -> None:
        """Make a parser from names of `--tool-call-parser` and `--reasoning-parser`; `auto` needs a renderer.

        `tools` are those of a request: types of arguments come from them; None: any name is a tool, an empty list: no
        calls. `start` is "content", "reasoning" or the end of the prompt; None: what the format says. `parallel` is
        whether more than one call is wanted. `format_files` hold further formats. `renderer` gives the vocabulary for
        ids.
        Raises ValueError for a name that no format has (with the nearest), and for a wrong file or field.
        """

    def feed(self, piece: str | Sequence[int]) -> list[Event]:
        """Take text, or token ids, and return what that sets free. Releases the GIL for long pieces and for ids.

        Raises ValueError for ids without a renderer.
        """

    def finish(self, finish: Literal["stop", "length", "abort"] = "stop") -> list[Event]:
        """End the answer and return the rest; the last event is `end`. Later calls return nothing."""

    @property
    def done(self) -> bool:
        """Whether the answer is complete although the model may go on: the one call that was wanted is closed."""

def parse(
    text: str,
    tool: str | None = None,
    reasoning: str | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    start: str | None = None,
    tool_choice: str | Mapping[str, Any] = "auto",
    *,
    parallel: bool = True,
    format_files: Sequence[str | PathLike[str]] = (),
    renderer: Renderer | None = None,
    finish: Literal["stop", "length", "abort"] = "stop",
) -> Message:
    """Parse a whole text, as `Parser` would; the arguments are the same. Releases the GIL."""

def parser_names() -> tuple[list[str], list[str]]:
    """Return all names of `--tool-call-parser` and of `--reasoning-parser`, sorted."""
