"""Domains: what must never meet in the prefix cache."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys

from octavo_native import hash_blocks

from octavo.engine_core.cache.domain import Base, domain_root
from octavo.wire.frontend import Domain
from tests.engine.harness import Harness, Setup, request

BASE = Base("model", "bfloat16")
PROMPT = list(range(64))


def test_kv01_trap_prefix_keys_of_different_kinds_and_borders_give_different_roots() -> None:
    domains = [
        None,
        Domain(salt="X"),
        Domain(adapter="X"),
        Domain("X", "X"),
        Domain("ab", "c"),
        Domain("a", "bc"),
        Domain(salt="weight_version"),
        Domain(salt="0"),
        Domain(adapter="bfloat16"),
        Domain(media=("X",)),
        Domain(media=("X", "X")),
        Domain(media=("a", "b")),
        Domain(media=("b", "a")),
        Domain(media=("ab",)),
    ]
    bases = [BASE, Base("model", "float32"), Base("model", "bfloat16", "1"), Base("modelbfloat16", "")]
    roots = [domain_root(base, domain) for base, domain in itertools.product(bases, domains)]
    assert len(set(roots)) == len(roots)
    assert domain_root(BASE, Domain()) == domain_root(BASE, None), "no tag, no difference"


def test_kv01_a_salt_named_like_an_adapter_or_an_image_finds_nothing_of_it() -> None:
    h = Harness(Setup())
    domains = [
        Domain(adapter="X"),
        Domain(salt="X"),
        None,
        Domain(salt="Y"),
        Domain(media=("X",)),
        Domain(salt="X"),
        Domain(media=("X",)),
    ]
    for number, domain in enumerate(domains, start=1):
        h.add(request(number, PROMPT, 3, domain=domain))
        h.run()
    h.verify_all()
    assert [h.seen[number].cached for number in range(1, 8)] == [0, 0, 0, 0, 0, 60, 60]


def test_requests_of_other_domains_are_not_waited_for() -> None:
    h = Harness(Setup())
    h.add(request(1, PROMPT, 3, domain=Domain(salt="a")))
    h.add(request(2, PROMPT, 3, domain=Domain(salt="b")))
    h.step()
    assert h.core.stats(0).waiting == 0 or h.core._scheduler.requests()[1].waits == 0
    h.run()
    h.verify_all()


def test_kv07_keys_are_equal_in_every_process() -> None:
    code = (
        "from array import array; from octavo.engine_core.cache.block_hash import BlockHashes;"
        "from octavo.engine_core.cache.domain import Base, domain_root; from octavo.wire.frontend import Domain;"
        "chain = BlockHashes(domain_root(Base('m', 'bfloat16'), Domain('tenant')), 4);"
        "chain.extend(array('i', range(8))); print(chain[1].hex())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        for _ in range(2)
    ]
    assert runs == [KEY, KEY], "the vector of docs/architecture.md"


#: Of block 1 of the tokens 0 to 7 in blocks of 4, model "m", KV in bfloat16, weight version "0", salt "tenant".
KEY = "d9355c7829d4a56b720480f94f3ed69e"


def test_dp04_keys_are_those_of_the_router() -> None:
    """The same values stand in rust_frontend/engine/src/affinity.rs."""
    tokens = struct.pack("<40i", *range(40))

    def last(base: Base, domain: Domain | None = None) -> str:
        return hash_blocks(domain_root(base, domain), tokens, 16)[16:32].hex()

    base = Base("/models/tiny", "float32")
    assert last(base) == "2d12875964fcd67b2b98bc8baf4a12bc"
    assert last(base, Domain(salt="tenant-2")) == "7f5cb31345a2518b95a61b8694dd4f84"
    assert last(base, Domain("s", "a", ("x", "y"))) == "345283afd21f8b9aa2b9744887bebbe5"
    assert last(Base("/models/tiny", "float32", "step-7")) == "461b542ec71bcd1edfd87686e360960a"
