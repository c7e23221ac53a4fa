"""A server of the binary under test, and a small HTTP client for it. Standard library only."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

PROGRAM = os.environ.get("HEADWATER_PROGRAM", "build/release/headwater")
MODEL = "SmolLM2-135M-Instruct.Q4_1"
READY_SECONDS = 60


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Server:
    """with Server("--max-num-seqs", "8") as server: ... ; `port` 0 takes a free one."""

    def __init__(self, *flags, port=0, env=None, wait=True):
        self.log = tempfile.TemporaryFile()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
        environment["HEADWATER_COSTS"] = "none"
        environment.update(env or {})
        flags = ["--kv-cache-memory", "512M", *flags] if "--kv-cache-memory" not in flags else list(flags)
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", str(port), *flags], stdout=subprocess.PIPE,
                                        stderr=self.log, env=environment)
        line = self.process.stdout.readline().decode()
        found = re.fullmatch(r"listening on https?://.*:(\d+)\n", line)
        if not found:
            self.process.wait()
            raise RuntimeError(f"the server did not start: {line!r}\n{self.errors()}")
        self.port = int(found.group(1))
        if wait:
            self.wait_until_ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def errors(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def wait_until_ready(self):
        end = time.time() + READY_SECONDS
        while time.time() < end:
            if self.process.poll() is not None:
                raise RuntimeError("the server ended while loading:\n" + self.errors())
            if self.get("/health").status == 200:
                return
            time.sleep(0.02)
        raise RuntimeError("the server did not become ready")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(0.1)  # two signals sent at once may be one
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        self.process.stdout.close()
        self.log.close()

    def connection(self, timeout=120):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def get(self, path, headers=None):
        connection = self.connection()
        connection.request("GET", path, headers=headers or {})
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def post(self, path, body, headers=None):
        connection = self.connection()
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request("POST", path, data, {"Content-Type": "application/json", **(headers or {})})
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def complete(self, prompt, **fields):
        fields = {"temperature": 0, "max_tokens": 16, **fields}
        answer = self.post("/v1/completions", {"prompt": prompt, **fields})
        assert answer.status == 200, answer.body
        return answer.json

    def chat(self, content, **fields):
        fields = {"temperature": 0, "max_tokens": 16, **fields}
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        answer = self.post("/v1/chat/completions", {"messages": messages, **fields})
        assert answer.status == 200, answer.body
        return answer.json

    def stream(self, path, body):
        """Events of a streaming answer: JSON objects, and the strings "[DONE]" and ": comment"."""
        connection = self.connection()
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        try:
            for line in response:
                line = line.decode().rstrip("\n")
                if line.startswith(":"):
                    yield line
                elif line == "data: [DONE]":
                    yield "[DONE]"
                elif line.startswith("data: "):
                    yield json.loads(line[6:])
                else:
                    assert line == "", line
        finally:
            connection.close()

    def metrics(self):
        """{"name{labels}": value} without the label of the model and the engine."""
        values = {}
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith("#"):
                continue
            name, value = line.rsplit(" ", 1)
            name = re.sub(r'model_name="[^"]*",?|engine="[^"]*",?', "", name).replace(",}", "}").replace("{}", "")
            values[name] = float(value)
        return values

    def cache(self):
        return self.get("/v1/cache?audit=true").json

    def assert_idle(self, seconds=10):
        """No sequence is left, no page is held, the books agree."""
        end = time.time() + seconds
        while True:
            cache = self.cache()
            pages = cache["pages"]
            if not cache["sequences"] and pages["held"] == 0:
                break
            assert time.time() < end, f"still busy: {cache}"
            time.sleep(0.02)
        assert cache["audit"] == "ok", cache
        assert pages["free"] + pages["cached"] == pages["total"], pages

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def raw(self, data=b"", timeout=10):
        """A connected socket that has sent `data`."""
        connected = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        if data:
            connected.sendall(data)
        return connected


def request_bytes(path, body, close=True):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
            f"Connection: {'close' if close else 'keep-alive'}\r\n\r\n").encode() + data


def text_of(events):
    """The joined text, the last usage and the finish reason of a stream's events, choice 0."""
    text, usage, finish = "", None, None
    for event in events:
        if not isinstance(event, dict):
            continue
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            if choice["index"] == 0:
                text += choice.get("text") or (choice.get("delta") or {}).get("content") or ""
                finish = choice["finish_reason"] or finish
    return text, usage, finish


def in_threads(functions):
    """Runs them side by side; returns their results in order, raises the first of their errors."""
    results = [None] * len(functions)

    def call(index):
        try:
            results[index] = functions[index]()
        except BaseException as problem:  # noqa: BLE001: raised again below
            results[index] = problem

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
