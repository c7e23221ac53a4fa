#!/usr/bin/env python3
"""A server with scripted behaviour for the tests of `headwater bench serve`; started as `serve --shared-prefix ARM ...`.

STUB_FIRST_MS, STUB_GAP_MS   delay of the first token and of each later one (40, 4)
STUB_CAPACITY                requests at once; one more is answered 429
STUB_FAIL                    500: that status; drop: the connection ends after 2 tokens; event: an error event does
STUB_SHARED                  0: no step shares a prefix; 1: also those of the arm off
STUB_TEXT                    arm: the text names the arm
STUB_CLOSE                   1: connections end after an answer without a word
STUB_TOKENIZE                0: there is no /tokenize
"""

import asyncio
import json
import os
import signal
import sys

ARM = sys.argv[sys.argv.index("--shared-prefix") + 1] if "--shared-prefix" in sys.argv else "auto"
FIRST_S, GAP_S = (float(os.environ.get(f"STUB_{name}_MS", ms)) / 1e3 for name, ms in (("FIRST", 40), ("GAP", 4)))
CAPACITY = int(os.environ.get("STUB_CAPACITY", 1 << 30))
FAIL = os.environ.get("STUB_FAIL", "")
SHARES = os.environ.get("STUB_SHARED", "0" if ARM == "off" else "1") == "1"
CACHED = 16


class State:
    active, health_calls, steps, hits, queries = 0, 0, {"flat": 0, "shared": 0, "mixed": 0}, 0, 0


def metrics():
    lines = ["# TYPE headwater:attention_steps_total counter"]
    lines += [f'headwater:attention_steps_total{{model_name="stub",path="{path}"}} {count}'
              for path, count in State.steps.items()]
    lines += [f'headwater:shared_prefix_tokens_total{{model_name="stub"}} {100 * State.steps["shared"]}',
              'headwater:kv_bytes_read_total{model_name="stub",arm="actual"} 1e6',
              f'vllm:prefix_cache_hits_total{{model_name="stub"}} {State.hits}',
              f'vllm:prefix_cache_queries_total{{model_name="stub"}} {State.queries}']
    return "\n".join(lines) + "\n"


def answer(writer, status, body, content_type="application/json", extra=""):
    body = body if isinstance(body, str) else json.dumps(body)
    writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
                 f"{body}".encode())


async def chunk(writer, text):
    """Two writes, so that an event arrives in pieces."""
    data = f"{len(text):x}\r\n{text}\r\n".encode()
    writer.write(data[:9])
    await asyncio.sleep(0)
    writer.write(data[9:])
    await writer.drain()


def prompt_tokens(request):
    if "messages" in request:
        return sum(2 * len(message["content"].split()) for message in request["messages"])
    return len(request["prompt"])


async def stream(writer, request, chat):
    assert request["ignore_eos"] is True and request["temperature"] == 0, request
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    await chunk(writer, ": keep-alive\n\n")
    tokens = request["max_tokens"]
    for i in range(tokens):
        await asyncio.sleep(GAP_S if i else FIRST_S)
        if i == 2 and FAIL == "event":
            await chunk(writer, 'data: {"error": {"message": "the device is lost"}}\n\n')
            return False
        if i == 2 and FAIL == "drop":
            return False
        State.steps["shared" if SHARES and (ARM == "off" or State.active > 1) else "flat"] += 1
        text = f" {i}{ARM if os.environ.get('STUB_TEXT') == 'arm' else ''}"
        choice = {"index": 0, "delta": {"content": text}} if chat else {"index": 0, "text": text}
        await chunk(writer, f"data: {json.dumps({'choices': [choice]})}\n\n")
    count = prompt_tokens(request)
    State.hits += CACHED
    State.queries += count
    usage = {"prompt_tokens": count, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": CACHED}}
    await chunk(writer, f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")
    return os.environ.get("STUB_CLOSE") != "1"


async def complete(writer, request, chat):
    """False: the connection ends here."""
    if State.active >= CAPACITY:
        answer(writer, 429, {"error": {"message": "the queue is full"}}, extra="Retry-After: 1\r\n")
        return True
    if request["model"] != "stub":
        answer(writer, 404, {"error": {"message": "the model does not exist"}})
        return True
    if FAIL == "500":
        answer(writer, 500, {"error": {"message": "something broke"}})
        return True
    State.active += 1
    try:
        return await stream(writer, request, chat)
    finally:
        State.active -= 1


async def route(writer, path, body):
    if path == "/health":
        State.health_calls += 1
        answer(writer, 200 if State.health_calls > 1 else 503, "")
    elif path == "/metrics":
        answer(writer, 200, metrics(), "text/plain; version=0.0.4")
    elif path == "/v1/models":
        answer(writer, 200, {"data": [{"id": "stub"}]})
    elif path == "/tokenize" and os.environ.get("STUB_TOKENIZE") != "0":
        answer(writer, 200, {"tokens": [1, 2] * len(json.loads(body)["content"].split())})
    elif path in ("/v1/completions", "/v1/chat/completions"):
        return await complete(writer, json.loads(body), "chat" in path)
    else:
        answer(writer, 404, {"error": {"message": "no such route"}})
    return True


async def connection(reader, writer):
    try:
        while line := await reader.readline():
            length = 0
            while (field := await reader.readline()) not in (b"\r\n", b""):
                if field.lower().startswith(b"content-length:"):
                    length = int(field.split(b":")[1])
            body = await reader.readexactly(length)
            if not await route(writer, line.split()[1].decode(), body):
                break
    except (ConnectionError, asyncio.IncompleteReadError, IndexError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 0)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


asyncio.run(main())
