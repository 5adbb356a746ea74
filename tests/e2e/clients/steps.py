"""What the scripts of Python's clients share: where the servers are, what is asked, and how each step is told.

A script runs in the clients' own environment, not octavo's. It prints one JSON line a step and ends with 1 where one
failed; steps that a client has not are not run.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import traceback
from collections.abc import Callable

__all__ = ["ANSWER", "CITY", "FORECAST", "KEY", "LONG", "QUESTION", "REAL", "SCRIPTED", "SYSTEM", "WEATHER", "run"]

#: Addresses, without /v1: of a real model (SmolLM2, as "smollm2") and of a scripted one (as "mock").
REAL, SCRIPTED = os.environ["CLIENTS_REAL"], os.environ["CLIENTS_SCRIPTED"]
KEY = os.environ["CLIENTS_KEY"]

#: The real model's answer at temperature 0 to the question.
SYSTEM = "You are a helpful assistant."
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
#: More than the real model's context.
LONG = "word " * 3000
#: The scripted model, asked this, calls weather(city=CITY, days=3), and tells FORECAST where it got "22 degrees".
WEATHER = "What is the weather there?"
CITY = "Köln"
FORECAST = "It is 22 degrees in Köln."


def run(package: str, steps: dict[str, Callable[[], None]]) -> None:
    """Run the steps, print how each went, and leave."""
    failed = False
    version = importlib.metadata.version(package)
    for name, step in steps.items():
        try:
            step()
            went = "ok"
        except BaseException as error:  # whatever a client raises
            traceback.print_exc()
            went, failed = f"{type(error).__name__}: {error}", True
        print(json.dumps({"client": package, "version": version, "step": name, "went": went}), flush=True)
    sys.exit(failed)
