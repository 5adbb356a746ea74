"""Whether a server gives tokens or vectors, and how: from flags and what a model's files say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, ModelError
from octavo.modelfiles.sentence import SentenceFiles, read_sentence_files
from octavo.models.registry import find
from octavo.pooler_config import PoolerConfig
from octavo.wire.pooling_plan import CLASSIFY, EMBED, TOKEN_CLASSIFY, TOKEN_EMBED, PoolingPlan

if TYPE_CHECKING:
    from octavo.config import ServeConfig
    from octavo.modelfiles import ModelFiles
    from octavo.models.registry import Architecture

__all__ = ["pooling_plan"]

_REWARD = "reward"
#: What cross-encoders of sentence-transformers call the activation of their values.
_ACTIVATIONS = {"Identity": "identity", "Sigmoid": "sigmoid", "Softmax": "softmax"}


def pooling_plan(config: ServeConfig, files: ModelFiles) -> PoolingPlan | None:
    """Return how a model pools; None where it gives tokens.

    Raises ConfigError for flags that contradict each other or the model, ModelError for files that cannot be served.
    """
    made = find(files.architecture)
    sentence = read_sentence_files(files.path)
    convert = _convert(config, made, sentence is not None)
    if convert is None:
        if config.pooler_config is not None:
            raise ConfigError("--pooler-config is for models that pool: give --runner pooling", "pooler_config")
        return None
    pooler, said = config.pooler_config or PoolerConfig(), sentence or SentenceFiles()
    labels = () if convert == EMBED else _labels(files.config)
    matryoshka = tuple(sorted(files.config.get("matryoshka_dimensions") or ()))
    size = int(made.parse(files.config).hidden_size)
    if pooler.dimensions is not None and (convert != EMBED or pooler.dimensions > size):
        raise ConfigError(
            f"--pooler-config: dimensions {pooler.dimensions} is more than the model's {size}, or it gives labels",
            "pooler_config",
        )
    embeds = convert == EMBED
    return PoolingPlan(
        convert=convert,
        encoder=made.encoder,
        tasks=_tasks(convert, made),
        seq_pooling=pooler.seq or _default_pooling(made, convert, said, files.config),
        tok_pooling=pooler.tok or ("STEP" if pooler.step_tag_id is not None else "ALL"),
        use_activation=_first(pooler.activates, said.normalise if embeds and sentence else None, convert != _REWARD),
        activation=_activation(files.config, labels),
        logit_mean=_first(pooler.logit_mean, pooler.logit_bias, 0.0),
        logit_sigma=_first(pooler.logit_sigma, 1 / pooler.logit_scale if pooler.logit_scale else None, 1.0),
        step_tag_id=pooler.step_tag_id,
        returned_token_ids=_columns(pooler, labels),
        embedding_size=size if embeds else 0,
        dimensions=pooler.dimensions,
        matryoshka=embeds and bool(files.config.get("is_matryoshka") or matryoshka),
        matryoshka_dimensions=matryoshka,
        labels=labels,
        max_seq_len=said.max_seq_length,
        lower_case=said.lower_case,
        pairs=made.encoder,
        prompts=said.prompts,
    )


def _convert(config: ServeConfig, made: Architecture, sentence: bool) -> str | None:
    """Return what the model is made to give; None: tokens. Raises ConfigError."""
    if config.runner == "generate" or (config.runner == "auto" and config.convert == "none" and not made.pools):
        if made.pools:
            raise ConfigError(f"{made.name} gives no tokens: --runner generate cannot be; leave it out", "runner")
        if config.convert not in ("auto", "none"):
            raise ConfigError(f"--convert {config.convert} is for --runner pooling", "convert")
        return None
    pools = bool(made.pools) or sentence or config.runner == "pooling" or config.convert not in ("auto", "none")
    if not pools:
        return None
    own = CLASSIFY if made.pools in (CLASSIFY, TOKEN_CLASSIFY) else EMBED if made.pools else ""
    if config.convert == "auto":
        return own or EMBED
    if config.convert == "none":
        if not own:
            raise ConfigError(f"{made.name} gives tokens: --convert none and --runner pooling contradict", "convert")
        return own
    if made.encoder and config.convert != EMBED and own != CLASSIFY:
        raise ConfigError(f"--convert {config.convert}: {made.name} has no head for labels", "convert")
    return config.convert


def _tasks(convert: str, made: Architecture) -> tuple[str, ...]:
    if convert == EMBED:
        return (TOKEN_EMBED, EMBED)
    if convert == _REWARD or made.pools == TOKEN_CLASSIFY:
        return (TOKEN_CLASSIFY,)
    return (CLASSIFY,) if made.encoder else (TOKEN_CLASSIFY, CLASSIFY)


def _default_pooling(made: Architecture, convert: str, said: SentenceFiles, config: dict[str, Any]) -> str:
    if convert == EMBED and said.pooling:
        return said.pooling
    if not made.encoder:
        return "LAST"
    return "MEAN" if convert == CLASSIFY and config.get("classifier_pooling") == "mean" else "CLS"


def _labels(config: dict[str, Any]) -> tuple[str, ...]:
    """Return the labels' names, as Transformers numbers them. Raises ModelError."""
    names = config.get("id2label")
    if not names:
        count = config.get("num_labels", 2)
        if not isinstance(count, int) or count < 1:
            raise ModelError(f"config.json: 'num_labels' is {count!r}, not a positive number. Correct config.json.")
        return tuple(f"LABEL_{number}" for number in range(count))
    try:
        numbered = sorted((int(number), str(name)) for number, name in names.items())
    except (AttributeError, ValueError):
        raise ModelError("config.json: 'id2label' is no object of numbers and names. Correct config.json.") from None
    if [number for number, _ in numbered] != list(range(len(numbered))):
        raise ModelError("config.json: 'id2label' does not number labels from 0. Correct config.json.")
    return tuple(name for _, name in numbered)


def _activation(config: dict[str, Any], labels: tuple[str, ...]) -> str:
    """Return what is made of a classifier's values. Raises ModelError for an activation that is not known."""
    nested = config.get("sentence_transformers")
    given = nested.get("activation_fn") if isinstance(nested, dict) else None
    given = given or config.get("sbert_ce_default_activation_function")
    if given:
        name = str(given).rpartition(".")[2]
        if name not in _ACTIVATIONS:
            raise ModelError(
                f"config.json: the activation {given!r} is not supported; known: {', '.join(_ACTIVATIONS)}."
            )
        return _ACTIVATIONS[name]
    kind = config.get("problem_type")
    if kind == "regression":
        return "identity"
    return "sigmoid" if kind == "multi_label_classification" or len(labels) == 1 else "softmax"


def _columns(pooler: PoolerConfig, labels: tuple[str, ...]) -> tuple[int, ...]:
    beyond = [column for column in pooler.returned_token_ids if not 0 <= column < len(labels)]
    if beyond:
        raise ConfigError(
            f"--pooler-config: returned_token_ids has {beyond[0]}, and the head gives {len(labels)} values",
            "pooler_config",
        )
    return pooler.returned_token_ids


def _first(*values: Any) -> Any:
    """Return the first that is not None."""
    return next(value for value in values if value is not None)
