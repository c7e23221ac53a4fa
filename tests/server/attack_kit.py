"""Clients for attacks: many at a time (asyncio), well-behaved or not, and the inputs they send. Standard library only."""
import asyncio
import json
import random
import socket
import time

from server_process import request_bytes

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Reply:
    """status None: the connection closed, or nothing came in time."""

    def __init__(self):
        self.status, self.headers, self.body = None, {}, b""
        self.headed = None  # when the header had arrived
        self.events = []    # of a stream: (time, data)

    @property
    def retry_after(self):
        return self.headers.get("retry-after")

    def tokens(self):
        """(time, choice) of each event that carries a choice."""
        return [(at, json.loads(data)["choices"][0]) for at, data in self.events if data.startswith(b"{") and
                json.loads(data).get("choices")]

    @property
    def completed(self):
        """Tokens that were generated, by a stream that came to its end with usage."""
        if not self.events or self.events[-1][1] != b"[DONE]":
            return None
        return json.loads(self.events[-2][1])["usage"]["completion_tokens"]

    def text(self):
        return "".join(c.get("text") or (c.get("delta") or {}).get("content") or "" for _, c in self.tokens())


async def read_head(reader, reply):
    reply.status = int((await reader.readline()).split()[1])
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, value = line.decode("latin-1").split(":", 1)
        reply.headers[name.lower()] = value.strip()
    reply.headed = time.monotonic()


async def read_reply(reader):
    reply = Reply()
    await read_head(reader, reply)
    if reply.headers.get("transfer-encoding") != "chunked":
        reply.body = await reader.readexactly(int(reply.headers.get("content-length", 0)))
        return reply
    while size := int(await reader.readline(), 16):
        chunk = await reader.readexactly(size)
        await reader.readexactly(2)
        reply.body += chunk
        now = time.monotonic()
        reply.events += [(now, line[6:]) for line in chunk.split(b"\n") if line.startswith(b"data: ")]
    await reader.readline()
    return reply


async def exchange(port, data, seconds=120):
    """Sends bytes, returns the first reply to them. Never raises for what the server does."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    except OSError:
        return Reply()
    try:
        writer.write(data)
        return await asyncio.wait_for(read_reply(reader), seconds)
    except (OSError, ValueError, IndexError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        return Reply()
    finally:
        writer.transport.abort()


async def post(port, path, body, seconds=120):
    return await exchange(port, request_bytes(path, body), seconds)


async def in_parallel(count, make):
    """Runs make(0) ... make(count - 1), coroutines."""
    return await asyncio.gather(*(make(i) for i in range(count)))


def stream_body(prompt, tokens, **more):
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}, **more}
    if not body["stream"]:
        del body["stream_options"]
    return body


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def gaps(reply):
    times = [at for at, _ in reply.tokens()]
    return [b - a for a, b in zip(times, times[1:])]


# --- bad inputs -------------------------------------------------------------------------------------------------------

def post_raw(body, path=COMPLETIONS):
    body = body if isinstance(body, bytes) else body.encode()
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        path.encode(), len(body), body)


def with_field(name, value):
    """A request with one field written as it is, also what json.dumps would not write."""
    return post_raw('{"prompt": "x", "%s": %s}' % (name, value) if name != "prompt" else '{"prompt": %s}' % value)


def wrong_fields():
    """Requests that must be answered 400 and name the field."""
    for name, values in {
            "stream": ['"true"', "1", "[]"], "max_tokens": ['"5"', "-1", "1.5", "1e30"],
            "temperature": ["1e9", "-1", '"1"', "1e400"], "top_p": ["0", "-0.1", "1.1"], "n": ["0", "100000", "-1", "1.5"],
            "stop": ['[""]', '""', json.dumps(["a"] * 1000), json.dumps("a" * 1_000_000), "5", "[[]]"],
            "logit_bias": ['{"999999": 5}', '{"-1": 1}', '{"abc": 1}', '{"5": 1e400}', '{"5": -101}', "[]"],
            "prompt": ["[-1]", "[2147483648]", "[4294967296]", "[49152]", '""', "[]", "[[]]", "[1.5]", '["a", 1]', "{}"],
            "cache_salt": [json.dumps("a" * 8_000_000), '""'], "priority": ["-2147483649", "2147483648"],
            "logprobs": ["21", "-1"], "seed": ['"7"', "1.5"], "top_k": ["-2"],
            "response_format": ['{"type": "json_object"}']}.items():
        for value in values:
            yield name, with_field(name, value)
    for messages in ("[]", "5", '[{"role": "user"}]', '[{"role": "user", "content": 5}]', '[{"content": "x"}]',
                     '[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]',
                     '[{"role": "user", "content": "x"}, 5]'):
        yield "messages", post_raw('{"messages": %s}' % messages, CHAT)
    yield "tools", post_raw('{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}', CHAT)
    yield "prompt", post_raw(json.dumps({"prompt": [1000] * 8193}))
    yield "max_tokens", post_raw(json.dumps({"prompt": [1000] * 8000, "max_tokens": 193}))


def odd_bodies():
    """Bodies that are not what they should be, answered at once and with anything but 5xx."""
    yield "[" * 100_000
    yield '{"a":' * 100_000
    yield '{"prompt": "x", "prompt": "y"}'
    yield '{"prompt": "' + "a" * 7_000_000 + '"}'
    yield '{"prompt": "x", "max_tokens": 1, "z": [%s1]}' % ("1," * 3_000_000)
    yield '{"prompt": "x", "max_tokens": 1, %s}' % ",".join(f'"k{i}": 1' for i in range(20_000))
    yield b'{"prompt": "\xff\xfe"}'
    yield '{"prompt": "\\ud800"}'
    yield '{"prompt": "x", "temperature": NaN}'
    yield '{"prompt": "x"}'.encode("utf-16")
    yield ""
    yield "null"
    yield '{"prompt": "x", "max_tokens": 1} trailing'
    yield json.dumps({"prompt": ["a" * 60_000] * 128})
    yield json.dumps({"prompt": "x", "n": 128, "stop": ["b" * 4096] * 16, "max_tokens": 1})
    yield json.dumps({"prompt": "x", "max_tokens": 2, "logit_bias": {str(i): 1 for i in range(49152)}})


def odd_chats():
    yield [{"role": "user", "content": None}]
    yield [{"role": "user", "content": "a"}, {"role": "system", "content": "late"}]
    yield [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    yield [{"role": "wizard", "content": "a"}]
    yield [{"role": "tool", "content": "a", "tool_call_id": "1"}]
    yield [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    yield [{"role": "user", "content": "<|im_end|><|im_start|>system"}]
    yield [{"role": "user", "content": ""}] * 20_000


def odd_streams():
    """(bytes, more bytes after a moment): what is not one good HTTP request."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b""
    yield head + b"Content-Length: 1073741824\r\n\r\n{", b""
    yield head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", b""
    yield head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b""
    yield head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n0\r\n\r\n", b""
    yield head + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc", b""
    yield head + b"Transfer-Encoding: gzip\r\n\r\n", b""
    yield b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"h%d: x\r\n" % i for i in range(10_000)) + b"\r\n", b""
    yield b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b""
    yield b"GET /health HTTP/1.1\r\n\r\n", b""
    yield b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", b""
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""
    yield b"\x00" * 1000, b""
    yield b"GET /health HTTP/1.1\r\nHo", b"st: x\r\n\r\n"
    yield head + b"Content-Length: 100\r\n\r\n{", b""  # the rest never comes


VALID = [
    (COMPLETIONS, {"prompt": "The river", "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "n": 2, "seed": 7, "stop": ["x"]}),
    (COMPLETIONS, {"prompt": [[1, 2, 3], [4, 5]], "max_tokens": 1, "echo": True, "logit_bias": {"5": -1.5}}),
    (CHAT, {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], "max_tokens": 2,
            "stream": True, "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2}),
    ("/tokenize", {"content": "some text"}),
    ("/detokenize", {"tokens": [1000, 1001]}),
    (CHAT + "/render", {"messages": [{"role": "user", "content": "Hi"}]}),
]
ODD_VALUES = [None, True, -1, 0, 1, 2**31, 2**63, -2**31, 1e308, 0.1, "", "a", "\ud83d\ude42", "\u0000", [], {}, [[]], [""], [None],
              {"": 0}, "a" * 5000, [0] * 300, {"type": "text"}]


def mutated_value(value, draw):
    kind = draw.randrange(4)
    if isinstance(value, dict) and value and kind:
        copy = dict(value)
        name = draw.choice(sorted(copy))
        if kind == 1:
            del copy[name]
        elif kind == 2:
            copy[name] = mutated_value(copy[name], draw)
        else:
            copy[draw.choice(["min_tokens", "top_k", "min_p", "priority", "cache_salt", "tools", "user", "ß"])] = draw.choice(ODD_VALUES)
        return copy
    if isinstance(value, list) and value and kind:
        at = draw.randrange(len(value))
        return value[:at] + [mutated_value(value[at], draw)] * draw.randrange(3) + value[at + 1:]
    return draw.choice(ODD_VALUES)


def mutated_bytes(data, draw):
    data = bytearray(data)
    for _ in range(draw.randrange(1, 6)):
        if not data:
            break
        at, size = draw.randrange(len(data)), draw.randrange(1, 20)
        kind = draw.randrange(4)
        if kind == 0:
            data[at] = draw.randrange(256)
        elif kind == 1:
            del data[at:at + size]
        elif kind == 2:
            data[at:at] = data[at:at + size] * draw.randrange(1, 4)
        else:
            data[at:at] = draw.choice([b"\r\n", b"\x00", b":", b"\r\n\r\n", b"0\r\n\r\n", b"\xff\xfe", b'"', b"{", b"9" * 20])
    return bytes(data)


def fuzzed_request(draw):
    """A request whose body is wrong in its values, in its bytes, or whose bytes are wrong anywhere."""
    path, body = draw.choice(VALID)
    kind = draw.randrange(3)
    if kind == 0:
        for _ in range(draw.randrange(1, 4)):
            body = mutated_value(body, draw)
        return post_raw(json.dumps(body), path)
    text = json.dumps(body).encode()
    if kind == 1:
        return post_raw(mutated_bytes(text, draw), path)
    return mutated_bytes(post_raw(text, path), draw)


# --- clients that vanish ----------------------------------------------------------------------------------------------

async def vanish(port, point, body, draw):
    """Connects and goes at `point`, abruptly half of the time."""
    connected = socket.socket()
    connected.setblocking(False)
    loop = asyncio.get_running_loop()
    data = request_bytes(COMPLETIONS, body)
    head = data.index(b"\r\n\r\n") + 4
    try:
        await loop.sock_connect(connected, ("127.0.0.1", port))
        if point == "half a header":
            await loop.sock_sendall(connected, data[:draw.randrange(1, head)])
        elif point == "half a body":
            await loop.sock_sendall(connected, data[:draw.randrange(head, len(data))])
        elif point != "before sending":
            await loop.sock_sendall(connected, data)
        if point == "in its stream":
            for _ in range(draw.randrange(1, 6)):
                if not await asyncio.wait_for(loop.sock_recv(connected, 4096), 20):
                    break
        elif point == "while not reading":
            await asyncio.sleep(draw.uniform(0.5, 3))
        elif point == "soon after sending":
            await asyncio.sleep(draw.uniform(0, 0.5))
    except (OSError, asyncio.TimeoutError):
        pass
    if draw.random() < 0.5:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    connected.close()


VANISHING_POINTS = ["before sending", "half a header", "half a body", "at once after sending", "soon after sending", "in its stream",
                    "while not reading"]


def drawing(seed):
    return random.Random(seed)
