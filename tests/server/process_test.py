"""The server as a process: start, loading, keys, TLS, configuration, logs, signals, crash."""
import json
import os
import signal
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.request

from server_process import PROGRAM, Server, in_threads, request_bytes, text_of

LONG = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "temperature": 0, "stream": True}


class Loading(unittest.TestCase):
    def test_until_the_model_is_loaded_it_says_so(self):
        server = Server(wait=False)
        try:
            seen = set()
            while True:
                health = server.get("/health")
                seen.add(health.status)
                if health.status == 200:
                    break
                self.assertEqual(health.json["error"]["message"], "Loading model")
                self.assertTrue(health.headers["Retry-After"])
                self.assertIn(b"process_open_fds", server.get("/metrics").body)
                self.assertIn(server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status, (200, 503))
            self.assertEqual(seen, {200, 503})
        finally:
            server.stop()

    def test_a_model_that_is_not_there_ends_the_program_with_its_name(self):
        done = subprocess.run([PROGRAM, "serve", "--port", "0", "-m", "nothing.gguf"], capture_output=True, timeout=30)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"nothing.gguf", done.stderr)

    def test_an_address_in_use_is_named_with_a_remedy(self):
        with Server() as server:
            done = subprocess.run([PROGRAM, "serve", "--port", str(server.port)], capture_output=True, timeout=30)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(str(server.port).encode(), done.stderr)
            self.assertIn(b"choose another port", done.stderr)


class Signals(unittest.TestCase):
    def test_sigterm_lets_answers_end_and_refuses_new_ones(self):
        server = Server()
        stream = server.raw(request_bytes("/v1/completions", LONG))
        idle = server.connection()
        idle.request("GET", "/health")
        idle.getresponse().read()
        received = stream.recv(4000)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        with self.assertRaises(OSError):
            server.get("/health")
        while block := stream.recv(65536):
            received += block
        self.assertIn(b"data: [DONE]", received)
        self.assertEqual(server.process.wait(10), 0)
        server.stop()

    def test_an_upload_in_progress_at_sigterm_is_told_so(self):
        server = Server()
        request = request_bytes("/v1/completions", {"prompt": "x " * 5000, "max_tokens": 1})
        with server.raw(request[:4000]) as upload:
            time.sleep(0.1)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            upload.sendall(request[4000:])
            answer = b""
            while block := upload.recv(65536):
                answer += block
        self.assertRegex(answer, rb"^HTTP/1.1 (503|200|400) ")
        self.assertEqual(server.process.wait(10), 0)
        server.stop()

    def test_with_a_seed_of_the_server_a_restart_answers_alike(self):
        texts = []
        for _ in range(2):
            with Server("--seed", "5") as server:
                texts.append([server.complete("Once", temperature=1, max_tokens=12)["choices"][0]["text"] for _ in range(2)])
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0][0], texts[0][1])

    def test_a_second_sigint_stops_at_once(self):
        server = Server()
        with server.raw(request_bytes("/v1/completions", {**LONG, "max_tokens": 4000})) as stream:
            stream.recv(4000)
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.3)
            self.assertIsNone(server.process.poll())
            begin = time.time()
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(10), 0)
            self.assertLess(time.time() - begin, 1.5)
        server.stop()

    def test_a_drain_has_an_end(self):
        server = Server("--drain-seconds", "0.5")
        with server.raw(request_bytes("/v1/completions", {**LONG, "max_tokens": 4000})) as stream:
            stream.recv(4000)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(10), 0)
            rest = b""
            while block := stream.recv(65536):
                rest += block
        self.assertIn(b'data: {"error"', rest)
        self.assertIn("cut off", server.errors())
        server.stop()

    def test_after_kill_9_the_same_port_serves_again(self):
        server = Server()
        port = server.port
        with server.raw(request_bytes("/v1/completions", LONG)) as stream:
            stream.recv(100)
            server.process.kill()
            server.process.wait()
        server.stop()
        begin = time.time()
        with Server(port=port) as again:
            self.assertLess(time.time() - begin, 10)
            self.assertEqual(again.complete("x", max_tokens=1)["usage"]["completion_tokens"], 1)


class Keys(unittest.TestCase):
    OPEN = ("/health", "/ping", "/version", "/metrics")

    def test_everything_but_the_open_routes_needs_a_key(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# keys\nsecond-key\n")
            file.flush()
            with Server("--api-key", "first-key", "--api-key-file", file.name, env={}) as server:
                for path in self.OPEN:
                    self.assertEqual(server.get(path).status, 200, path)
                bodies = set()
                for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer first-ke"},
                                {"Authorization": "Basic first-key"}):
                    for path in ("/v1/models", "/v1/cache", "/openapi.json", "/nowhere", "/v1/models/x"):
                        answer = server.get(path, headers)
                        self.assertEqual(answer.status, 401, path)
                        bodies.add(answer.body)
                    answer = server.post("/v1/completions", {"prompt": "x"}, headers)
                    self.assertEqual(answer.status, 401)
                    bodies.add(answer.body)
                self.assertEqual(len(bodies), 1)
                for key in ("first-key", "second-key"):
                    self.assertEqual(server.get("/v1/models", {"Authorization": f"Bearer {key}"}).status, 200)
                self.assertEqual(server.get("/nowhere", {"Authorization": "Bearer first-key"}).status, 404)

    def test_with_salts_keys_share_no_prefix(self):
        prompt = "the same words " * 40
        with Server("--api-key", "a", "--api-key", "b", "--salt-per-key") as server:
            cached = []
            for key in ("a", "b", "a"):
                answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1}, {"Authorization": f"Bearer {key}"})
                cached.append(answer.json["usage"]["prompt_tokens_details"]["cached_tokens"])
            self.assertEqual(cached[:2], [0, 0])
            self.assertGreater(cached[2], 0)


class Settings(unittest.TestCase):
    def refuse(self, *flags, expect):
        done = subprocess.run([PROGRAM, "serve", "--port", "0", *flags], capture_output=True, timeout=30)
        self.assertNotEqual(done.returncode, 0, flags)
        self.assertEqual(done.stdout, b"", flags)
        self.assertIn(expect, (done.stderr + done.stdout).decode(), flags)

    def test_flags_of_other_servers_are_answered(self):
        for flags, answer in ((["-ngl", "99"], "one device"), (["-np", "4"], "--max-num-seqs"), (["-ctk", "q8_0"], "--kv-cache-dtype"),
                              (["-fa"], "always"), (["--jinja"], "--chat-template"), (["-hf", "x/y"], "--model"),
                              (["--gpu-memory-utilization=0.9"], "--kv-cache-memory"), (["--tensor-parallel-size", "2"], "one device")):
            self.refuse(*flags, expect=answer)

    def test_what_cannot_be_is_refused_before_anything_starts(self):
        self.refuse("--host", "0.0.0.0", expect="--allow-remote")
        self.refuse("--ssl-certfile", "x.pem", expect="--ssl-keyfile")
        self.refuse("--ssl-certfile", "x.pem", "--ssl-keyfile", "y.pem", expect="x.pem")
        self.refuse("--api-key-file", "no-file", expect="no-file")
        self.refuse("--port", "70000", expect="port")
        self.refuse("--config", "no-file.yaml", expect="no-file.yaml")

    def test_a_flag_beats_the_environment_which_beats_the_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("served-model-name: [from-file, alias]\nmax-model-len: 300\nmax-num-seqs: 3\napi-key: k\n")
            file.flush()
            env = {"HEADWATER_MAX_MODEL_LEN": "400", "HEADWATER_MAX_NUM_SEQS": "4"}
            with Server("--config", file.name, "--max-num-seqs", "5", env=env) as server:
                models = server.get("/v1/models", {"Authorization": "Bearer k"}).json["data"]
                self.assertEqual([m["id"] for m in models], ["from-file", "alias"])
                self.assertEqual(models[0]["max_model_len"], 400)
                self.assertIn("5 sequences", server.errors())
        for text, expect in (("nonsense: 1\n", "nonsense"), ("port: [1, 2\n", "line"), ("max-num-seqs: many\n", "max-num-seqs"), ("- port\n", "mapping")):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(text)
                file.flush()
                self.refuse("--config", file.name, expect=expect)

    def test_a_chat_template_of_ones_own(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}<think>\n{# </think> #}")
            file.flush()
            with Server("--chat-template", file.name) as server:
                body = {"messages": [{"role": "user", "content": "hi"}]}
                tokens = server.post("/tokenize", body).json["tokens"]
                self.assertEqual(server.post("/detokenize", {"tokens": tokens}).json["content"], "[user] hi\n<think>\n")
                message = server.chat("hi", max_tokens=8)["choices"][0]["message"]
                self.assertTrue(message["reasoning_content"])  # the block was never closed
                self.assertFalse(message["content"])
                self.assertIn("reasoning_content", server.errors())


class Logs(unittest.TestCase):
    def test_prompts_and_keys_are_not_logged_and_access_lines_only_at_debug(self):
        for level, lines in (("info", 0), ("debug", 3)):
            with Server("--log-level", level, "--api-key", "topsecretkey") as server:
                headers = {"Authorization": "Bearer topsecretkey"}
                for _ in range(2):
                    server.post("/v1/completions", {"prompt": "xyzzyplugh", "max_tokens": 1, "mystery_field": 1}, headers)
                server.get("/v1/models", headers)
                errors = server.errors()
                self.assertNotIn("xyzzyplugh", errors)
                self.assertNotIn("topsecretkey", errors)
                self.assertEqual(errors.count("mystery_field"), 1)
                self.assertEqual(sum(1 for line in errors.splitlines() if " 200 " in line and "/v1/" in line), lines)


class Tls(unittest.TestCase):
    def test_https_streams_and_plain_http_is_turned_away(self):
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = os.path.join(folder, "c.pem"), os.path.join(folder, "k.pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days",
                            "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
            server = Server("--ssl-certfile", certificate, "--ssl-keyfile", key, wait=False)
            try:
                context = ssl.create_default_context(cafile=certificate)
                url = f"https://127.0.0.1:{server.port}"
                end = time.time() + 30
                while True:
                    try:
                        urllib.request.urlopen(url + "/health", context=context, timeout=10).read()
                        break
                    except urllib.error.HTTPError as problem:
                        self.assertEqual(problem.code, 503)
                        self.assertLess(time.time(), end)
                request = urllib.request.Request(url + "/v1/completions", json.dumps({**LONG, "max_tokens": 20}).encode(),
                                                 {"Content-Type": "application/json"})
                body = urllib.request.urlopen(request, context=context, timeout=60).read()
                self.assertTrue(body.endswith(b"data: [DONE]\n\n"))
                self.assertEqual(server.get("/health").status, 400)
                urllib.request.urlopen(url + "/health", context=context, timeout=10).read()
            finally:
                server.stop()


if __name__ == "__main__":
    unittest.main()
