"""instructor: structured answers by schema and by a forced call, whole and in parts."""

from __future__ import annotations

from typing import Any, Literal

import instructor
import openai
from openai import OpenAI
from pydantic import BaseModel, ConfigDict
from steps import KEY, LONG, QUESTION, REAL, SYSTEM, run

ASKED: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
MODES = (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA)


class Capital(BaseModel):
    city: Literal["Paris", "Berlin"]
    country: Literal["France", "Germany"]


class Closed(Capital):
    """By a schema that allows no other keys: so small a model adds some for ever where it may, as under `Capital`."""

    model_config = ConfigDict(extra="forbid")


PARIS = Capital(city="Paris", country="France")


def client(mode: Any, key: str = KEY) -> Any:
    return instructor.from_openai(OpenAI(base_url=f"{REAL}/v1", api_key=key, max_retries=0, timeout=120), mode=mode)


def create(mode: Any, key: str = KEY, kind: type[Capital] = Capital, **changed: Any) -> Any:
    asked = {"model": "smollm2", "messages": ASKED, "temperature": 0, "max_tokens": 80, "max_retries": 0} | changed
    return client(mode, key).chat.completions.create(response_model=kind, **asked)


def structured() -> None:
    """By a forced call and by a schema."""
    for mode in MODES:
        assert create(mode, kind=Closed).model_dump() == PARIS.model_dump()


def streamed() -> None:
    for mode in MODES:
        parts = list(
            client(mode).chat.completions.create_partial(
                model="smollm2", messages=ASKED, temperature=0, max_tokens=80, response_model=Capital
            )
        )
        assert parts[-1].model_dump() == PARIS.model_dump()
        assert len(parts) > 3


def errors() -> None:
    refused(openai.NotFoundError, model="nope")
    refused(openai.BadRequestError, temperature=-1)
    refused(openai.BadRequestError, messages=[{"role": "user", "content": LONG}])
    refused(openai.AuthenticationError, key="wrong")


def refused(kind: Any, **changed: Any) -> None:
    for mode in MODES:
        try:
            create(mode, **changed)
        except Exception as error:
            # It wraps what the SDK raised once its tries are over.
            causes: list[Any] = [error, error.__cause__, error.__context__]
            assert any(isinstance(cause, kind) for cause in causes) or kind.__name__ in repr(error), repr(error)
        else:
            raise AssertionError(f"{changed} was taken")


run("instructor", {"stream": streamed, "structured": structured, "errors": errors})
