"""Embeddings, labels and scores over HTTP, through the official SDK where there is one; the EM cases by id."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
import transformers

from tests.e2e.server import Server, running
from tests.encoders import make_encoder, make_sentence_files, make_word_pieces

#: The cases of the bank, each with its tests here.
CASES = {
    "EM01": ("test_em01_dimensions", "test_em01_and_em04_of_a_model_in_bf16_that_cannot_be_cut"),
    "EM03": ("test_em03_and_em04_the_official_client_gets_what_transformers_gives",),
    "EM04": (
        "test_em03_and_em04_the_official_client_gets_what_transformers_gives",
        "test_em04_formats",
        "test_em01_and_em04_of_a_model_in_bf16_that_cannot_be_cut",
    ),
    "EM06": ("test_em06_inputs",),
}
TEXTS = ["abc", "a much longer text of many words 0123", "z", "abc", "same length"]
#: Of the model: texts are this long at most.
CONTEXT = 64


@dataclass
class Embedder:
    """A server of a Matryoshka model, and Transformers' own model and tokenizer."""

    server: Server
    model: Any
    tokenizer: Any

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.server.url}{path}", json=body, timeout=60)

    def reference(self, text: str) -> Any:
        """Mean over tokens, of length 1."""
        ids = torch.tensor([self.tokenizer.backend_tokenizer.encode(text).ids])
        with torch.no_grad():
            hidden = self.model(ids).last_hidden_state[0].mean(0).numpy()
        return hidden / np.linalg.norm(hidden)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    folder = tmp_path_factory.mktemp("tiny-emb")
    model = make_encoder(folder, "bert")
    make_sentence_files(folder, "mean")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "is_matryoshka": True}))
    tokenizer = make_word_pieces()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    with running(folder, "--served-model-name", "tiny-emb") as server:
        yield Embedder(server, model, tokenizer)


def vectors(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return np.array([item["embedding"] for item in response.json()["data"]], dtype=np.float32)


def refused(response: httpx.Response, param: str) -> str:
    """The message of a 400 that names the field."""
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param, error
    return str(error["message"])


def test_each_case_has_its_tests() -> None:
    assert all(callable(globals()[name]) for names in CASES.values() for name in names)


def test_em03_and_em04_the_official_client_gets_what_transformers_gives(embedder: Embedder) -> None:
    """One vector for each text, in order, through the client, which asks for base64 by itself."""
    client = embedder.server.client()
    answer = client.embeddings.create(model="tiny-emb", input=TEXTS)
    assert [item.index for item in answer.data] == list(range(len(TEXTS)))
    counts = [len(embedder.tokenizer.backend_tokenizer.encode(text).ids) for text in TEXTS]
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(counts)
    for text, item in zip(TEXTS, answer.data, strict=True):
        np.testing.assert_allclose(item.embedding, embedder.reference(text), rtol=1e-4, atol=1e-5)
    floats = client.embeddings.create(model="tiny-emb", input=TEXTS, encoding_format="float")
    for one, other in zip(answer.data, floats.data, strict=True):
        np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-6)


def test_em01_dimensions(embedder: Embedder) -> None:
    """Cut first, then of length 1; sizes that cannot be are refused."""
    whole = vectors(embedder.post("/v1/embeddings", model="tiny-emb", input="abc"))[0]
    cut = vectors(embedder.post("/v1/embeddings", model="tiny-emb", input="abc", dimensions=8))[0]
    assert abs(np.linalg.norm(cut) - 1) < 1e-3 and cut.shape == (8,)
    np.testing.assert_allclose(cut, whole[:8] / np.linalg.norm(whole[:8]), rtol=1e-4, atol=1e-6)
    for wrong in (0, -1, 49, 1 << 40, "8", 8.5):
        refused(embedder.post("/v1/embeddings", model="tiny-emb", input="abc", dimensions=wrong), "dimensions")
    raw = vectors(embedder.post("/v1/embeddings", input="abc", use_activation=False))[0]
    np.testing.assert_allclose(raw / np.linalg.norm(raw), whole, rtol=1e-4, atol=1e-6)
    assert abs(np.linalg.norm(raw) - 1) > 1e-3


def test_em04_formats(embedder: Embedder) -> None:
    wanted = vectors(embedder.post("/v1/embeddings", input=["abc", "z"]))
    coded = embedder.post("/v1/embeddings", input=["abc", "z"], encoding_format="base64").json()["data"]
    seen = [np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in coded]
    np.testing.assert_allclose(seen, wanted, atol=1e-6)
    for dtype, read, size in (("float16", "<f2", 2), ("float32", ">f4", 4)):
        order = "little" if read[0] == "<" else "big"
        body = {"encoding_format": "bytes", "embed_dtype": dtype, "endianness": order}
        answer = embedder.post("/v1/embeddings", input=["abc", "z"], **body)
        about = json.loads(answer.headers["metadata"])
        assert [item["shape"] for item in about["data"]] == [[48], [48]] and about["usage"]["prompt_tokens"] == 8
        assert about["data"][1]["end"] == len(answer.content) == 2 * 48 * size
        np.testing.assert_allclose(np.frombuffer(answer.content, read).reshape(2, 48), wanted, atol=1e-3)
    alone = embedder.post("/v1/embeddings", input="abc", encoding_format="bytes_only")
    assert "metadata" not in alone.headers and len(alone.content) == 48 * 4
    refused(embedder.post("/v1/embeddings", input="abc", encoding_format="hex"), "encoding_format")


def test_em01_and_em04_of_a_model_in_bf16_that_cannot_be_cut(tmp_path: Path) -> None:
    """Numbers are float32 on the way whatever the model computes in; a model that is not Matryoshka is never cut."""
    reference = make_encoder(tmp_path, "bert")
    make_sentence_files(tmp_path, "mean")
    tokenizer = make_word_pieces()
    tokenizer.backend_tokenizer.no_padding()
    with running(tmp_path, "--served-model-name", "tiny-emb", "--dtype", "bfloat16") as server:
        client, url = server.client(), f"{server.url}/v1/embeddings"
        coded = client.embeddings.create(model="tiny-emb", input=["abc", "z"])
        wanted = vectors(httpx.post(url, json={"input": ["abc", "z"]}, timeout=30))
        refused(httpx.post(url, json={"input": "abc", "dimensions": 8}, timeout=30), "dimensions")
    assert wanted.shape == (2, 48)
    np.testing.assert_allclose([item.embedding for item in coded.data], wanted, atol=1e-6)
    ids = torch.tensor([tokenizer.backend_tokenizer.encode("abc").ids])
    with torch.no_grad():
        theirs = torch.nn.functional.normalize(reference(ids).last_hidden_state[0].mean(0), dim=0).numpy()
    assert float(np.dot(theirs, wanted[0])) > 0.999
    assert np.abs(theirs - wanted[0]).max() > 1e-6  # it did compute in bf16


def test_em06_inputs(embedder: Embedder) -> None:
    """Too long: 400, or cut where that is asked for. Lists, token ids, and entries that are wrong by their number."""
    post = embedder.post
    message = refused(post("/v1/embeddings", input="a " * 3 * CONTEXT), "input")
    assert str(CONTEXT) in message
    refused(post("/v1/embeddings", input=["ok", "a " * 3 * CONTEXT]), "input.1")
    cut = vectors(post("/v1/embeddings", input="a " * 3 * CONTEXT, truncate_prompt_tokens=-1))[0]
    np.testing.assert_allclose(cut, embedder.reference("a " * (CONTEXT - 2)), rtol=1e-4, atol=1e-5)
    some = vectors(post("/v1/embeddings", input="a b c d", truncate_prompt_tokens=4, truncation_side="left"))[0]
    np.testing.assert_allclose(some, embedder.reference("c d"), rtol=1e-4, atol=1e-5)
    refused(post("/v1/embeddings", input="a", truncate_prompt_tokens=CONTEXT + 1), "truncate_prompt_tokens")
    refused(post("/v1/embeddings", input="a", truncate_prompt_tokens=0), "truncate_prompt_tokens")
    for wrong in ([], {}, 7, [[]], [True]):
        assert post("/v1/embeddings", input=wrong).status_code == 400
    refused(post("/v1/embeddings"), "input")
    refused(post("/v1/embeddings", input=["ok", 7]), "input.1")
    refused(post("/v1/embeddings", input=[[5, 6], [999]]), "input.1")
    # The tokenizer's own special tokens make an empty text one of two tokens.
    assert vectors(post("/v1/embeddings", input=["ok", ""])).shape == (2, 48)
    refused(post("/v1/embeddings", input="", add_special_tokens=False), "input")
    nested = vectors(post("/v1/embeddings", input=[[5, 7, 9], [11]]))
    flat = vectors(post("/v1/embeddings", input=[5, 7, 9]))
    np.testing.assert_allclose(nested[0], flat[0], atol=1e-6)
    one, listed = (vectors(post("/v1/embeddings", input=text)) for text in ("abc", ["abc"]))
    np.testing.assert_allclose(one, listed, atol=1e-6)
    # A context of texts alone: as many tokens as the model takes, none left for an output.
    assert vectors(post("/v1/embeddings", input=[5] * CONTEXT)).shape == (1, 48)


def test_many_texts_keep_their_order(embedder: Embedder) -> None:
    texts = [f"{number} {'x ' * (number % 9)}" for number in range(600)]
    seen = vectors(embedder.post("/v1/embeddings", input=texts))
    for place in (0, 8, 299, 300, 599):
        np.testing.assert_allclose(seen[place], embedder.reference(texts[place]), rtol=1e-4, atol=1e-5)
    refused(embedder.post("/v1/embeddings", input=["a"] * 2049), "input")


def test_scores_are_cosines(embedder: Embedder) -> None:
    query, documents = "abc", ["abd", "abc", "9 8 7"]
    wanted = [float(embedder.reference(query) @ embedder.reference(text)) for text in documents]
    for path, body in (
        ("/score", {"text_1": query, "text_2": documents}),
        ("/v1/score", {"queries": query, "documents": documents}),
    ):
        answer = embedder.post(path, model="tiny-emb", **body).json()
        np.testing.assert_allclose([item["score"] for item in answer["data"]], wanted, atol=1e-4)
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        answer = embedder.post(path, query=query, documents=documents, top_n=2).json()
        assert [item["index"] for item in answer["results"]] == sorted(range(3), key=lambda at: -wanted[at])[:2]
        assert answer["results"][0]["document"] == {"text": "abc"} and answer["results"][0]["relevance_score"] > 0.999
    refused(embedder.post("/score", text_1=["a", "b"], text_2=["a", "b", "c"]), "text_1")
    refused(embedder.post("/score", text_1="a"), "text_2")
    refused(embedder.post("/rerank", query="a"), "documents")
    refused(embedder.post("/rerank", query="a", documents=["b", {"image": "c"}]), "documents.1")


def test_pooling_and_coheres_api(embedder: Embedder) -> None:
    tokens = embedder.post("/pooling", input="abc").json()["data"][0]["data"]
    assert np.array(tokens).shape == (5, 48)
    np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1, atol=1e-5)
    one = embedder.post("/pooling", input="abc", task="embed").json()["data"][0]["data"]
    np.testing.assert_allclose(one, embedder.reference("abc"), rtol=1e-4, atol=1e-5)
    refused(embedder.post("/pooling", input="abc", task="classify"), "task")
    kinds = ["float", "base64", "binary", "ubinary"]
    body = {"model": "tiny-emb", "texts": ["abc", "z"], "input_type": "search_query", "embedding_types": kinds}
    answer = embedder.post("/v2/embed", **body).json()
    found = answer["embeddings"]
    np.testing.assert_allclose(found["float"][1], embedder.reference("z"), rtol=1e-4, atol=1e-5)
    signs = np.packbits(np.array(found["float"]) > 0, axis=1)
    np.testing.assert_array_equal(found["ubinary"], signs)
    np.testing.assert_array_equal(found["binary"], signs.astype(np.int16) - 128)
    assert answer["meta"]["billed_units"]["input_tokens"] == 8 and set(found) == set(kinds)
    refused(embedder.post("/v2/embed", texts=["a"], input_type="image"), "input_type")
    refused(embedder.post("/v2/embed", texts=["a"], embedding_types=["int4"]), "embedding_types")


def test_routes_of_tokens_refuse(embedder: Embedder) -> None:
    client = embedder.server.client()
    with pytest.raises(openai.BadRequestError, match="gives vectors, not tokens"):
        client.completions.create(model="tiny-emb", prompt="a")
    refused(embedder.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}]), "model")
    refused(embedder.post("/classify", input="a"), "model")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="a")
    bodies: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/v1/embeddings", {"input": "a", "user": "me"}),
        ("/pooling", {"input": "a"}),
        ("/v2/embed", {"texts": ["a"]}),
        ("/score", {"text_1": "a", "text_2": "b"}),
        ("/rerank", {"query": "a", "documents": ["b"]}),
    )
    for path, body in bodies:
        answer = embedder.post(path, **body, colour="red")
        assert answer.headers["x-octavo-warning"] == "ignored fields: colour", path


def test_a_crash_is_a_pause(embedder: Embedder) -> None:
    """A worker that dies is replaced; the texts that it had are computed again. Last: the server is another then."""
    before = vectors(embedder.post("/v1/embeddings", input="abc"))
    embedder.server.kill("worker-0")
    np.testing.assert_allclose(vectors(embedder.post("/v1/embeddings", input="abc")), before, atol=1e-6)


def test_scores_by_what_comes_next(server: Server, tiny: Path) -> None:
    """A model of tokens: the probability of the first label behind query and item."""
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny).eval()
    query, items, labels = [5, 6, 7], [[8, 9], [10]], [20, 30]
    with torch.no_grad():
        logits = [model(torch.tensor([query + item])).logits[0, -1] for item in items]
    wanted = [logit[labels].softmax(-1)[0].item() for logit in logits]
    body = {"query": query, "items": items, "label_token_ids": labels}
    url = f"{server.url}/generative_scoring"
    answer = httpx.post(url, json=body, timeout=30).json()
    np.testing.assert_allclose([item["score"] for item in answer["data"]], wanted, rtol=1e-3)
    assert answer["usage"]["prompt_tokens"] == 9
    alone = httpx.post(url, json={**body, "apply_softmax": False}, timeout=30).json()["data"]
    np.testing.assert_allclose(alone[0]["score"], logits[0].softmax(-1)[20].item(), rtol=1e-3)
    refused(httpx.post(url, json={**body, "label_token_ids": [5, 5]}, timeout=30), "label_token_ids")
    refused(httpx.post(url, json={**body, "items": [[8], [10**6]]}, timeout=30), "items.1")


def test_routes_of_vectors_refuse(server: Server) -> None:
    """A model of tokens."""
    for path in ("/v1/embeddings", "/v2/embed", "/classify", "/pooling", "/score", "/rerank"):
        body = {"input": "a", "texts": ["a"], "text_1": "a", "text_2": "a", "query": "a", "documents": ["a"]}
        answer = httpx.post(f"{server.url}{path}", json=body, timeout=10)
        assert "makes tokens, not vectors" in refused(answer, "model")


def test_a_cross_encoder(tmp_path: Path) -> None:
    """Labels, and scores by a model that reads both texts."""
    model = make_encoder(tmp_path, "bert", "ForSequenceClassification", num_labels=1, seed=2)
    tokenizer = make_word_pieces()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    documents = ["ab cd", "e", "0 1 2 3 4"]

    def wanted(query: str, document: str) -> float:
        found = tokenizer.backend_tokenizer.encode(query, document)
        with torch.no_grad():
            logits = model(torch.tensor([found.ids]), token_type_ids=torch.tensor([found.type_ids])).logits
        return float(logits.sigmoid())

    with running(tmp_path, "--served-model-name", "cross") as server:
        answer = httpx.post(f"{server.url}/rerank", json={"query": "a b", "documents": documents}, timeout=30).json()
        scores = {item["index"]: item["relevance_score"] for item in answer["results"]}
        np.testing.assert_allclose(
            [scores[at] for at in range(3)], [wanted("a b", text) for text in documents], rtol=1e-4
        )
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        body = {"text_1": "a b", "text_2": "0 1 2", "use_activation": False}
        (score,) = httpx.post(f"{server.url}/score", json=body, timeout=30).json()["data"]
        raw = wanted("a b", "0 1 2")
        np.testing.assert_allclose(score["score"], np.log(raw / (1 - raw)), rtol=1e-3, atol=1e-4)
        (label,) = httpx.post(f"{server.url}/classify", json={"input": "a b"}, timeout=30).json()["data"]
        assert label["num_classes"] == 1 and label["label"] == "LABEL_0"
        assert refused(httpx.post(f"{server.url}/v1/embeddings", json={"input": "a"}, timeout=30), "model")


@pytest.mark.skipif("OCTAVO_MINILM" not in os.environ, reason="OCTAVO_MINILM is not set to all-MiniLM-L6-v2's folder")
def test_the_real_minilm() -> None:
    """The vectors of sentence-transformers' way through Transformers: mean over tokens, of length 1."""
    folder = Path(os.environ["OCTAVO_MINILM"])
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [
        "The capital of France is Paris.",
        "Paris is in France.",
        "Ein Pferd frisst keinen Gurkensalat. 🐎",
        "",
        "x",
    ]
    texts.append("word " * 200)
    with running(folder, "--served-model-name", "minilm") as server:
        answer = server.client().embeddings.create(model="minilm", input=texts)
    for text, item in zip(texts, answer.data, strict=True):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            wanted = torch.nn.functional.normalize(model(ids).last_hidden_state[0].mean(0), dim=0).numpy()
        assert float(np.dot(wanted, item.embedding)) > 0.9999
        np.testing.assert_allclose(item.embedding, wanted, atol=1e-5)
