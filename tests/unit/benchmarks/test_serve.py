"""`octavo bench serve` against a scripted server: what is counted, written and returned; never how long it took."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from octavo.benchmarks.cli import main
from tests.unit.benchmarks.scripted_server import HEAD, Asked, ScriptedServer, completion, event, streamed


def bench(server: ScriptedServer | str, *more: str, folder: Path | None = None) -> tuple[int, dict[str, Any]]:
    """Run the command with common words for prompts; return the exit code and the result with all details."""
    url = server if isinstance(server, str) else server.url
    words = ["serve", "--base-url", url, "--model", "scripted", "--skip-tokenizer-init", "--random-input-len", "4",
             "--random-output-len", "3", "--num-prompts", "6", "--disable-tqdm", *more]  # fmt: skip
    if folder is None:
        return main(words), {}
    words += ["--save-result", "--save-detailed", "--result-dir", str(folder), "--result-filename", "r.json"]
    code = main(words)
    return code, json.loads((folder / "r.json").read_text())


def load_only(server: ScriptedServer) -> list[Asked]:
    """Leave out the two probes that learn how long a word is."""
    return server.asked[2:]


@pytest.mark.parametrize("backend", ["vllm", "openai", "openai-chat"])
def test_a_good_run(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer() as server:
        code, found = bench(server, "--backend", backend, "--label", "L", "--metadata", "tp=2", folder=tmp_path)
    assert code == 0
    assert (found["completed"], found["failed"], found["failures"]) == (6, 0, {})
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (42, 18)
    assert found["output_tokens_from"] == {"usage": 6}
    assert found["input_lens"] == [7] * 6 and found["output_lens"] == [3] * 6
    assert [len(gaps) for gaps in found["itls"]] == [2] * 6
    assert found["generated_texts"] == ["abc"] * 6
    assert (found["label"], found["tp"], found["backend"]) == ("L", "2", backend)
    for name in ("ttft", "tpot", "itl", "e2el"):
        for word in ("mean", "median", "std", "p90", "p99"):
            assert found[f"{word}_{name}_ms"] >= 0
    assert found["client_cpu_us_per_request"] > 0 and found["client_cpu_us_per_token"] > 0
    bodies = [asked.body for asked in load_only(server)]
    assert len(bodies) == 6 and all(body["ignore_eos"] and body["stream"] for body in bodies)
    said = capsys.readouterr().out
    for word in ("Successful requests", "TTFT (ms)", "TPOT (ms)", "ITL (ms)", "E2EL (ms)", "median", "p99", "Client:"):
        assert word in said


def test_the_server_names_the_model_and_gets_key_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with ScriptedServer(models=[{"id": "first"}, {"id": "second"}]) as server:
        words = ["serve", "--base-url", f"{server.url}/v1", "--num-prompts", "1", "--disable-tqdm", "--header", "x-a=b"]
        assert main([*words, "--request_id_prefix", "run-", "--random_input_len=9"]) == 0
    asked = server.asked[-1]
    assert asked.path == "/v1/completions"
    assert asked.body["model"] == "first"
    assert asked.headers["authorization"] == "Bearer secret"
    assert (asked.headers["x-a"], asked.headers["x-request-id"]) == ("b", "run-0")


def test_prompts_without_a_tokenizer_have_the_asked_length_by_the_servers_count(tmp_path: Path) -> None:
    async def counting(asked: Asked) -> None:
        words = len(asked.body["messages"][0]["content"].split())
        await streamed(asked, prompt_tokens=11 + 2 * words)  # a template of eleven tokens, two tokens a word

    with ScriptedServer(counting) as server:
        _, found = bench(server, "--backend", "openai-chat", "--random-input-len", "100", folder=tmp_path)
    assert found["input_lens"] == [111] * 6


def test_concurrency_is_a_limit() -> None:
    async def slow(asked: Asked) -> None:
        for _ in range(20):  # lets every request that may come arrive
            await asyncio.sleep(0.001)
        await streamed(asked)

    with ScriptedServer(slow) as server:
        assert bench(server, "--max-concurrency", "2")[0] == 0
    assert server.most_open == 2


def test_connections_are_kept_and_a_closed_one_is_replaced() -> None:
    peers: Counter[object] = Counter()

    async def note(asked: Asked) -> None:
        peers[asked.writer.get_extra_info("peername")] += 1
        await streamed(asked)
        if asked.number == 4:
            asked.writer.close()

    with ScriptedServer(note) as server:
        assert bench(server, "--max-concurrency", "1")[0] == 0
    assert len(peers) == 2 and sum(peers.values()) == 8


async def some_fail(asked: Asked) -> None:
    """Answer six requests of a load (after two probes) in five ways."""
    number = asked.number - 2
    if number == 0:
        await asked.reply(429, {"error": {"message": "slow down"}})
    elif number == 1:
        await asked.reply(404, {"error": {"message": "no such model"}})
    elif number == 2:  # breaks off in the middle of the stream
        await asked.send(HEAD + event(completion("a", chat=False)))
        asked.writer.close()
    elif number == 3:
        await asked.send(HEAD + event(completion("a", chat=False)) + event({"error": {"message": "boom"}}))
        await asked.send(event("[DONE]") + b"0\r\n\r\n")
    else:
        await streamed(asked)


def test_failures_are_counted_by_kind_and_are_not_fast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(some_fail) as server:
        code, found = bench(server, "--max-concurrency", "1", folder=tmp_path)
    assert code == 1
    assert (found["completed"], found["failed"]) == (2, 4)
    assert found["failures"] == {"http 429": 1, "http 404": 1, "broken stream": 1, "error in stream": 1}
    assert [value is None for value in found["ttfts"]] == [True] * 4 + [False] * 2
    assert found["output_lens"] == [0, 0, 0, 0, 3, 3] and found["total_output_tokens"] == 6
    assert "slow down" in found["errors"][0] and found["errors"][5] == ""
    captured = capsys.readouterr()
    assert "http 429" in captured.out and "4 of 6 requests failed" in captured.err and "slow down" in captured.err


@pytest.mark.parametrize(("allowed", "code"), [("3", 1), ("4", 0)])
def test_max_failures(allowed: str, code: int) -> None:
    with ScriptedServer(some_fail) as server:
        assert bench(server, "--max-concurrency", "1", "--max-failures", allowed)[0] == code


def test_a_server_that_is_down(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        code, found = bench(f"http://127.0.0.1:{held.getsockname()[1]}", folder=tmp_path)
    assert code == 1
    assert found["failures"] == {"no connection": 6}
    assert found["mean_ttft_ms"] is None and found["request_throughput"] == 0


def test_a_server_that_is_down_and_must_name_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert main(["serve", "--base-url", f"http://127.0.0.1:{held.getsockname()[1]}"]) == 1
    assert "cannot ask" in capsys.readouterr().err


def test_a_wrong_model(tmp_path: Path) -> None:
    async def refuse(asked: Asked) -> None:
        await asked.reply(404, {"error": {"message": f"no model {asked.body['model']}"}})

    with ScriptedServer(refuse) as server:
        code, found = bench(server, folder=tmp_path)
    assert (code, found["failures"]) == (1, {"http 404": 6})
    assert found["errors"][0] == "http 404: no model scripted"


def test_answers_that_never_end_time_out(tmp_path: Path) -> None:
    async def hang(asked: Asked) -> None:
        if asked.number < 2:
            return await streamed(asked)
        await asked.send(HEAD + event(completion("a", chat=False)))
        await asyncio.Event().wait()

    with ScriptedServer(hang) as server:
        code, found = bench(server, "--request-timeout-sec", "0.2", folder=tmp_path)
    assert (code, found["failures"]) == (1, {"timeout": 6})


def test_what_is_not_http_is_a_failure(tmp_path: Path) -> None:
    async def rude(asked: Asked) -> None:
        if asked.number < 2:
            return await streamed(asked)
        await asked.send(b"go away\r\n")
        asked.writer.close()

    with ScriptedServer(rude) as server:
        code, found = bench(server, folder=tmp_path)
    assert (code, found["failures"]) == (1, {"no answer": 6})
    assert "go away" in found["errors"][0]


def test_conversations_carry_what_was_said(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        code, found = bench(
            server, "--backend", "openai-chat", "--dataset-name", "multi-turn", "--num-prompts", "2",
            "--multi-turn-num-turns", "3", "--multi-turn-concurrency", "1", folder=tmp_path,
        )  # fmt: skip
    assert code == 0 and found["completed"] == 6
    roles = [[message["role"] for message in asked.body["messages"]] for asked in load_only(server)]
    assert roles == [["user"], ["user", "assistant", "user"], ["user", "assistant", "user", "assistant", "user"]] * 2
    assert load_only(server)[1].body["messages"][1]["content"] == "abc"


def test_a_conversation_ends_with_its_first_failure(tmp_path: Path) -> None:
    async def fail_first(asked: Asked) -> None:
        await (asked.reply(500, {"message": "boom"}) if asked.number == 2 else streamed(asked))

    with ScriptedServer(fail_first) as server:
        _, found = bench(
            server, "--backend", "openai-chat", "--multi-turn", "--num-prompts", "2", "--max-concurrency", "1",
            folder=tmp_path,
        )  # fmt: skip
    assert (found["completed"], found["failed"]) == (3, 1)


def test_warm_up_and_readiness_are_not_measured(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        _, found = bench(server, "--num-warmups", "3", "--ready-check-timeout-sec", "5", folder=tmp_path)
    assert found["completed"] == 6
    assert len(server.asked) == 2 + 1 + 3 + 6


def test_probes_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probed = asyncio.Event()

    async def until_probed(asked: Asked) -> None:
        if sum(a.body["prompt"] == "Hi" for a in server.asked) == 3:
            probed.set()
        if asked.body["max_tokens"] == 3:
            await probed.wait()
        await streamed(asked)

    with ScriptedServer(until_probed) as server:
        _, found = bench(server, "--probe-request-rate", "500", "--max-concurrency", "6", folder=tmp_path)
    assert found["completed"] == 6 and found["total_output_tokens"] == 18
    assert found["probe_completed"] >= 2 and found["probe_failed"] == 0
    assert found["probe_median_e2el_ms"] <= found["probe_p99_e2el_ms"] <= found["probe_max_e2el_ms"]
    assert "Probes:" in capsys.readouterr().out


def test_lora_modules_take_turns() -> None:
    with ScriptedServer() as server:
        bench(server, "--lora-modules", "x", "y", "--lora-assignment", "round-robin", "--max-concurrency", "1")
    assert [asked.body["model"] for asked in load_only(server)] == ["x", "y"] * 3


def test_answers_without_usage_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def silent(asked: Asked) -> None:
        await streamed(asked, usage=False)

    with ScriptedServer(silent) as server:
        _, found = bench(server, folder=tmp_path)
    assert found["output_tokens_from"] == {"chunks": 6} and found["output_lens"] == [3] * 6
    assert "no usage" in capsys.readouterr().out


@pytest.mark.parametrize(("asked", "says"), [("2", "6 answers were longer"), ("4", "6 answers were shorter")])
def test_answers_of_other_lengths_than_asked_are_told(
    asked: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServer() as server:
        _, found = bench(server, "--random-output-len", asked, folder=tmp_path)
    assert (found["longer_than_asked"], found["shorter_than_asked"]) == ((6, 0) if asked == "2" else (0, 6))
    assert says in capsys.readouterr().out


def test_results_append_and_leave_out_details(tmp_path: Path) -> None:
    words = ["--append-result", "--result-dir", str(tmp_path / "new"), "--result-filename", "r.jsonl"]
    with ScriptedServer() as server:
        bench(server, *words)
        bench(server, *words)
    rows = [json.loads(line) for line in (tmp_path / "new" / "r.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and "ttfts" not in rows[0] and rows[0]["completed"] == 6


def test_the_result_has_the_name_that_vllm_gives_it(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        bench(
            server, "--save-result", "--result-dir", str(tmp_path), "--request-rate", "1000", "--max-concurrency", "3"
        )
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("openai-1000.0qps-concurrency3-scripted-") and path.suffix == ".json"


def test_plots(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        for name in ("p.html", "p.svg"):
            assert (
                bench(server, "--plot", str(tmp_path / name), "--plot-timeline", "--result-dir", str(tmp_path))[0] == 0
            )
    assert (tmp_path / "p.html").read_text().count("<svg") == 4
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    assert len(list(tmp_path.glob("*.timeline.html"))) in (1, 2)  # the second may fall into the next second


def test_wrong_usage_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--request-rate", "0"]) == 2
    assert main(["serve", "--base-url", "ftp://x"]) == 2
    assert main(["serve", "--tokenizer", "/nonexistent", "--model", "m"]) == 2
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--num-promts", "1"])
    assert caught.value.code == 2
    assert "--tokenizer /nonexistent" in capsys.readouterr().err


def test_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer() as server:
        words = ["sweep", "--base-url", server.url, "--model", "scripted", "--skip-tokenizer-init", "--disable-tqdm",
                 "--random-input-len", "4", "--concurrencies", "1,3", "--prompts-per-level", "2",
                 "--plot", str(tmp_path / "s.html")]  # fmt: skip
        assert main(words) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[1:3]] == ["1", "3"]
    prompts = [asked.body["prompt"] for asked in server.asked if asked.body["max_tokens"] == 128]
    assert len(prompts) == len(set(prompts)) == 2 + 6  # no level repeats the prompts of another
    assert "<svg" in (tmp_path / "s.html").read_text()


@pytest.mark.parametrize("words", [[], ["--request-rates", "1", "--concurrencies", "1"], ["--request-rates", "x"],
                                   ["--request-rates", "inf", "--prompts-per-level", "2"]])  # fmt: skip
def test_sweep_refuses(words: list[str]) -> None:
    assert main(["sweep", *words]) == 2
