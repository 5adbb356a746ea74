"""What the teacher-forced check sees: in every family, a layer whose attention is lost shows in the tokens."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import pytest
import torch

from tests.families import FAMILIES, make_model
from tests.teacher import Check, check_tokens, reference_model

if TYPE_CHECKING:
    from pathlib import Path

#: In how many of the 96 tokens of a random sequence the loss must show; tests check hundreds and more.
FEWEST = 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_lost_attention_shows(tmp_path: Path, family: str) -> None:
    """With the weights of the tests in fp32, and with the smaller ones of those in bf16, whose tolerance is wider."""
    for dtype, overrides in (("float32", {}), ("bfloat16", {"initializer_range": 0.1})):
        (folder := tmp_path / dtype).mkdir()
        reference = reference_model(make_model(folder, FAMILIES[family], **overrides))
        broken = copy.deepcopy(reference)
        broken.model.layers[1].self_attn.o_proj.weight.data.zero_()
        torch.manual_seed(0)
        ids = torch.randint(3, 256, (1, 96))
        with torch.inference_mode():
            right, wrong = (model(input_ids=ids, use_cache=False).logits[0] for model in (reference, broken))
        best, tokens = right.amax(-1), wrong.argmax(-1)
        ulp = 2.0 ** (math.floor(math.log2(float(right.abs().max()))) - 7)
        lost = best - right.gather(1, tokens[:, None])[:, 0] > (1e-3 if dtype == "float32" else 2 * ulp)
        assert int(lost.sum()) >= FEWEST
        first = int(lost.nonzero()[0])
        with pytest.raises(AssertionError, match="below the best"):
            check_tokens(reference, Check(ids[0, : first + 1].tolist(), [int(tokens[first])]), dtype)
