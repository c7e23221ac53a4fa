"""The server under attack. Small by default; `python3 tests/server/attack_test.py --full` takes about an hour, prints its numbers
and writes docs/benchmarks/server-attack.{md,json}. Standard library only."""
import asyncio
import json
import signal
import socket
import sys
import time
import unittest

import attack_record
from attack_kit import (CHAT, COMPLETIONS, VANISHING_POINTS, drawing, exchange, fuzzed_request, gaps, in_parallel, mutated_bytes,
                        odd_bodies, odd_chats, odd_streams, percentile, post, post_raw, stream_body, vanish, wrong_fields)
from server_process import Server, request_bytes

FULL = "--full" in sys.argv
MIB = 1 << 20


def scaled(small, full):
    return full if FULL else small


def ids(count, seed):
    return [1000 + (i * 7919 + seed * 104729) % 40000 for i in range(count)]


class Attack(unittest.IsolatedAsyncioTestCase):
    flags = ()

    async def asyncSetUp(self):
        asyncio.get_running_loop().set_debug(False)  # it reports slow callbacks

    def setUp(self):
        self.server = Server(*self.flags)
        self.port = self.server.port
        self.server.complete("warm up", max_tokens=2)

    def tearDown(self):
        if self.server.process.poll() is None:
            self.server.assert_idle()
        self.server.stop()

    def record(self, **numbers):
        attack_record.add(self._testMethodName[5:].replace("_", " "), numbers)

    async def greedy(self, count, tokens, seed=1):
        """Texts of greedy streams behind one shared prompt, and the streams."""
        replies = await in_parallel(count, lambda i: post(self.port, COMPLETIONS, stream_body(
            ids(64, seed) + ids(8, seed + 1 + i), tokens), 600))
        for reply in replies:
            self.assertEqual((reply.status, reply.completed), (200, tokens))
        return [reply.text() for reply in replies], replies

    def assert_refused(self, reply, what, allowed=range(200, 500)):
        self.assertTrue(reply.status is None or reply.status in allowed or reply.status == 503, f"{what}: {reply.status} {reply.body[:200]}")


class BadInputs(Attack):
    flags = ("--max-model-len", "8192")

    async def test_bad_inputs_are_refused_by_name(self):
        asked, begun = 0, time.monotonic()
        for name, data in wrong_fields():
            reply = await exchange(self.port, data)
            self.assertEqual(reply.status, 400, (name, data[:200], reply.body[:200]))
            self.assertIn(name, json.loads(reply.body)["error"]["message"])
            asked += 1
        slowest = 0
        for body in odd_bodies():
            began = time.monotonic()
            self.assert_refused(await exchange(self.port, post_raw(body)), body[:80])
            slowest = max(slowest, time.monotonic() - began)
            asked += 1
        for messages in odd_chats():
            self.assert_refused(await post(self.port, CHAT, {"messages": messages, "max_tokens": 2}), messages[:2])
            asked += 1
        for data, more in odd_streams():
            self.assert_refused(await exchange(self.port, data + more, 1), data[:80])
            asked += 1
        self.record(inputs=asked, seconds=time.monotonic() - begun, slowest_odd_body_seconds=slowest)

    async def test_fuzzed_requests_never_get_an_internal_error(self):
        draw, statuses, left = drawing(5), {}, scaled(300, 30_000)
        grown_from = 0

        async def worker(_):
            nonlocal left
            while left > 0:
                left -= 1
                data = fuzzed_request(draw)
                reply = await exchange(self.port, data, 0.5)
                self.assert_refused(reply, data[:2000])
                statuses[str(reply.status)] = statuses.get(str(reply.status), 0) + 1

        warm, left = left, scaled(100, 3000)
        await in_parallel(16, worker)
        grown_from, left = self.server.resident_bytes(), warm
        await in_parallel(16, worker)
        grown = (self.server.resident_bytes() - grown_from) / MIB
        self.assertLess(grown, 600)  # pages of the KV pool count when they are first written
        self.record(requests=sum(statuses.values()), statuses=statuses, grown_MiB=grown)

    async def test_neighbours_of_bad_inputs_are_unharmed(self):
        tokens = scaled(60, 200)
        alone, _ = await self.greedy(16, tokens)
        draw, sent, over = drawing(6), 0, False

        async def attacker(_):
            nonlocal sent
            big = [post_raw(body) for body in odd_bodies()]
            while not over:
                data = draw.choice(big) if draw.random() < 0.2 else fuzzed_request(draw)
                self.assert_refused(await exchange(self.port, data, 0.3), data[:300])
                sent += 1

        attackers = asyncio.gather(*(attacker(i) for i in range(4)))
        attacked, _ = await self.greedy(16, tokens)
        over = True
        await attackers
        self.assertEqual(attacked, alone)
        self.record(streams=16, tokens_each=tokens, bad_requests_meanwhile=sent)


class Disconnects(Attack):
    flags = ("--max-num-seqs", "32", "--max-num-batched-tokens", "128")

    async def storm(self, clients, seconds):
        draw, points = drawing(7), {}

        async def client(i):
            await asyncio.sleep(seconds * i / clients)
            point = draw.choice(VANISHING_POINTS)
            points[point] = points.get(point, 0) + 1
            shared = draw.random() < 0.5
            prompt = ids(320, 40) + ids(4, i) if shared else ids(draw.randrange(2, 900), 41 + i)
            await vanish(self.port, point, stream_body(prompt, 300, n=draw.choice([1, 1, 1, 3]), stream=draw.random() < 0.7), draw)

        await in_parallel(clients, client)
        return points

    async def test_disconnect_storm(self):
        alone, _ = await self.greedy(4, 40)
        self.server.assert_idle()
        descriptors = self.server.descriptors()
        before = self.server.metrics()
        over = False

        async def bystanders():
            rounds = 0
            while not over:
                texts, _ = await self.greedy(4, 40)
                self.assertEqual(texts, alone)
                rounds += 1
            return rounds

        watched = asyncio.create_task(bystanders())
        points = await self.storm(scaled(150, 2000), scaled(5, 60))
        over = True
        rounds = await watched
        last = time.monotonic()
        self.server.assert_idle(3)
        idle_after = time.monotonic() - last
        again, _ = await self.greedy(4, 40)
        self.assertEqual(again, alone)
        await asyncio.sleep(0.5)
        self.assertLessEqual(abs(self.server.descriptors() - descriptors), 1)
        after = self.server.metrics()
        self.record(clients=sum(points.values()), points=points, rounds_of_bystanders=rounds, idle_after_seconds=idle_after,
                    gone_counted=after["headwater:http_clients_gone_total"] - before["headwater:http_clients_gone_total"],
                    preemptions=after["vllm:num_preemptions_total"] - before["vllm:num_preemptions_total"])

    async def test_all_who_queue_vanish_at_once(self):
        connected = [self.server.raw(request_bytes(COMPLETIONS, stream_body(ids(20, i), 100, n=128, priority=-i)))
                     for i in range(scaled(60, 500))]
        self.assertEqual((await post(self.port, COMPLETIONS, stream_body("x", 2, priority=-2**31))).status in (200, 429), True)
        for client in connected:
            client.close()
        began = time.monotonic()
        self.server.assert_idle(5)
        self.record(clients=len(connected), choices_each=128, idle_after_seconds=time.monotonic() - began)


class SlowReaders(Attack):
    flags = ("--max-num-seqs", "32", "--kv-cache-memory", "128M")

    async def test_slow_readers(self):
        """Clients with small buffers that take a few bytes now and then, never enough for their stream to go on."""
        readers = scaled(4, 100)
        quiet, harmed, connected = [], [], []
        resident = self.server.resident_bytes()

        def connect(i):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", self.port))
            client.sendall(request_bytes(COMPLETIONS, stream_body(ids(8, 70 + i), 4000, logprobs=20)))
            client.settimeout(0)
            connected.append(client)

        async def measure(into):
            _, replies = await self.greedy(8, scaled(60, 200), seed=90)
            into += [gap for reply in replies for gap in gaps(reply)[8:]]  # once all of them have arrived

        async def trickle():
            while True:
                await asyncio.sleep(8)
                for client in connected:
                    try:
                        client.recv(512)
                    except OSError:
                        pass

        for _ in range(scaled(1, 3)):
            await measure(quiet)
        for i in range(readers):
            connect(i)
        task = asyncio.create_task(trickle())
        await self.wait_until_paused(scaled(60, 400))
        paused = self.server.resident_bytes()
        for _ in range(scaled(1, 3)):
            await measure(harmed)
        task.cancel()
        for client in connected:
            client.close()
        self.server.assert_idle()
        for _ in range(scaled(1, 3)):
            await measure(quiet)
        ratio = percentile(harmed, 0.99) / percentile(quiet, 0.99)
        self.record(readers=readers, grown_MiB=(paused - resident) / MIB, itl_p50_ms=[1e3 * percentile(v, 0.5) for v in (quiet, harmed)],
                    itl_p99_ms=[1e3 * percentile(v, 0.99) for v in (quiet, harmed)], itl_p99_ratio=ratio)
        self.assertLess(ratio, scaled(4, 1.5))  # the small run has few tokens and many neighbours

    async def wait_until_paused(self, seconds):
        """Until no token is made any more."""
        end, last = time.monotonic() + seconds, -1
        while time.monotonic() < end:
            made = self.server.metrics()["vllm:generation_tokens_total"]
            if made == last:
                return
            last = made
            await asyncio.sleep(1)
        self.fail("the slow readers' streams never paused")


class Overload(Attack):
    flags = ("--max-num-seqs", "8", "--max-queued-requests", "8")
    TOKENS = 16

    async def ask(self, prompt):
        began = time.monotonic()
        reply = await post(self.port, COMPLETIONS, stream_body(prompt, self.TOKENS))
        reply.began, reply.ended = began, time.monotonic()
        return reply

    async def closed_loop(self, seconds, prompt_of):
        """Completed requests a second with the batch always full."""
        done, end = 0, time.monotonic() + seconds

        async def worker(i):
            nonlocal done
            while time.monotonic() < end:
                reply = await self.ask(prompt_of())
                done += reply.status == 200 and reply.ended <= end

        await in_parallel(12, worker)
        return done / seconds

    async def open_loop(self, rate, seconds, prompt_of):
        """Requests at a fixed rate, whatever becomes of them; their replies, and tokens a second completed meanwhile."""
        tasks, begun = [], time.monotonic()
        while (now := time.monotonic() - begun) < seconds:
            while len(tasks) < now * rate:
                tasks.append(asyncio.create_task(self.ask(prompt_of())))
            await asyncio.sleep(0.005)
        made = [self.tokens_made(), time.monotonic()]
        replies = await asyncio.gather(*tasks)
        return replies, made

    def tokens_made(self):
        return self.server.metrics()["vllm:generation_tokens_total"]

    async def overload(self, prompt_of):
        """Rounds of a full batch without and with overload, so that both meet the same noise."""
        await self.closed_loop(2, prompt_of)
        peaks, goodputs, replies, rate = [], [], [], 0
        for _ in range(scaled(1, 5)):
            peaks.append(self.TOKENS * await self.closed_loop(scaled(2, 12), prompt_of))
            rate = 4 * peaks[-1] / self.TOKENS
            before, begun = self.tokens_made(), time.monotonic()
            some, (after, ended) = await self.open_loop(rate, scaled(3, 12), prompt_of)
            goodputs.append((after - before) / (ended - begun))
            replies.append(some)
            self.assert_in_order(some)
        every = [r for some in replies for r in some]
        accepted, refused = ([r for r in every if r.status == status] for status in (200, 429))
        self.assertEqual(len(accepted) + len(refused), len(every))
        self.assertTrue(refused)
        self.assertTrue(all(r.retry_after.isdigit() for r in refused))
        self.assertEqual({r.completed for r in accepted}, {self.TOKENS})
        late = [r.ended - r.began for r in refused]
        share = percentile([g / p for g, p in zip(goodputs, peaks)], 0.5)
        self.record(offered_per_second=rate, accepted=len(accepted), refused=len(refused), peak_tokens_per_second=peaks,
                    goodput_tokens_per_second=goodputs, goodput_of_peak_median=share,
                    refusal_p50_ms=1e3 * percentile(late, 0.5), refusal_p99_ms=1e3 * percentile(late, 0.99),
                    places_out_of_order_max=self.displaced,
                    first_token_max_seconds=max(r.tokens()[0][0] - r.headed for r in accepted))
        if FULL:
            self.assertGreaterEqual(share, 0.9)
            self.assertLess(percentile(late, 0.99), 0.1)

    displaced = 0

    def assert_in_order(self, replies):
        """First tokens come in the order of acceptance, within what a step admits."""
        accepted = sorted((r for r in replies if r.status == 200), key=lambda r: r.headed)
        firsts = [r.tokens()[0][0] for r in accepted]
        ranks = sorted(range(len(firsts)), key=firsts.__getitem__)
        self.displaced = max(self.displaced, *(abs(rank - place) for place, rank in enumerate(ranks)))
        self.assertLessEqual(self.displaced, 8)

    async def test_overload_by_unshared_prompts(self):
        draw = drawing(8)
        await self.overload(lambda: ids(64, draw.randrange(1 << 20)))

    async def test_overload_by_shared_prompts(self):
        draw = drawing(9)
        await self.overload(lambda: ids(480, 3) + ids(8, draw.randrange(1 << 20)))


class Soak(Attack):
    flags = ("--kv-cache-memory", "64M", "--max-num-seqs", "16")

    async def test_soak(self):
        draw, left, statuses = drawing(10), 0, {}

        async def one():
            kind = draw.randrange(10)
            if kind == 0:
                await vanish(self.port, draw.choice(VANISHING_POINTS[:6]), stream_body(ids(draw.randrange(1, 400), draw.randrange(99)), 20), draw)
                return "vanished"
            if kind == 1:
                return (await exchange(self.port, fuzzed_request(draw), 0.5)).status
            if kind == 2:
                path = draw.choice(["/metrics", "/v1/models", "/v1/cache?audit=true", "/health", "/openapi.json", "/nowhere"])
                return (await exchange(self.port, b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())).status
            if kind == 3:
                return (await post(self.port, draw.choice(["/tokenize", "/v1/tokenize"]), {"content": "word " * draw.randrange(500)})).status
            body = {"max_tokens": draw.randrange(1, 8), "temperature": draw.choice([0, 1]), "stream": draw.random() < 0.5,
                    "n": draw.choice([1, 1, 1, 2, 4])}
            if kind < 6:
                return (await post(self.port, CHAT, {"messages": [{"role": "user", "content": "tell " * draw.randrange(1, 60)}], **body})).status
            prompt = ids(draw.randrange(1, 60), 5 + draw.randrange(40)) + ids(draw.randrange(1, 200), draw.randrange(1 << 20))
            return (await post(self.port, COMPLETIONS, {"prompt": prompt, **body})).status

        async def worker(_):
            nonlocal left
            while left > 0:
                left -= 1
                status = str(await one())
                statuses[status] = statuses.get(status, 0) + 1

        resident = []
        for count in (scaled(80, 2000), scaled(200, 18_000)):
            left = count
            await in_parallel(16, worker)
            self.server.assert_idle()
            await asyncio.sleep(1)
            resident.append((self.server.resident_bytes(), self.server.descriptors()))
        self.assertFalse({s for s in statuses if s.startswith("5") and s != "503"})
        growth = resident[1][0] / resident[0][0] - 1
        self.record(requests=sum(statuses.values()), statuses=statuses, resident_MiB=[r[0] / MIB for r in resident],
                    growth_percent=100 * growth, descriptors=[r[1] for r in resident])
        self.assertEqual(resident[0][1], resident[1][1])
        self.assertLess(growth, scaled(0.2, 0.02))


class Crash(Attack):
    async def test_crash(self):
        begun = time.monotonic()
        Server().stop()
        first = time.monotonic() - begun
        expected, _ = await self.greedy(4, 20)
        streams = [self.server.raw(request_bytes(COMPLETIONS, stream_body(ids(20, i), 4000))) for i in range(4)]
        for stream in streams:
            self.assertTrue(stream.recv(100))
        self.server.process.send_signal(signal.SIGKILL)
        self.server.process.wait()
        begun = time.monotonic()
        restarted = Server(port=self.port)
        again = time.monotonic() - begun
        self.server.stop()
        self.server = restarted
        for stream in streams:
            stream.close()
        texts, _ = await self.greedy(4, 20)
        self.assertEqual(texts, expected)
        self.assertLess(again, 3 * first + 2)
        self.record(start_seconds=first, restart_after_kill_seconds=again)


class Keys(Attack):
    KEY = "sk-0123456789abcdefghijklmnopqrstuv"

    def setUp(self):
        self.server = Server("--api-key", self.KEY)
        self.port = self.server.port

    def tearDown(self):
        self.server.stop()

    def get(self, stream, key):
        stream.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + (b"Authorization: Bearer %s\r\n" % key.encode() if key is not None else b"") + b"\r\n")
        data = b""
        while b"\r\n\r\n" not in data or len(data) < data.index(b"\r\n\r\n") + 4 + int(data.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            data += stream.recv(65536)
        return data

    async def test_nobody_without_a_key_sends_large_bodies(self):
        for head in (b"GET /health", b"OPTIONS /health", b"POST /health", b"GET /v1/models", b"POST /v1/completions"):
            for framing in (b"Content-Length: 8388608", b"Transfer-Encoding: chunked", b"Content-Length: 99999999999999999999999"):
                reply = await exchange(self.port, head + b" HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n", 3)
                self.assertIn(reply.status, (400, 401, 405, 413), head + framing)

    async def test_keys_are_not_told_apart(self):
        near, far = self.KEY[:-1] + "!", "!" + self.KEY[1:]
        with self.server.raw() as stream:
            answers = {b"\r\n".join(line for line in self.get(stream, key).split(b"\r\n") if not line.startswith(b"Date"))
                       for key in (None, "", "x", near, far, self.KEY[:5], self.KEY + "x", self.KEY.upper(), "a" * 30_000)}
            self.assertEqual(len(answers), 1)
            self.assertTrue(answers.pop().startswith(b"HTTP/1.1 401"))
            self.assertTrue(self.get(stream, self.KEY).startswith(b"HTTP/1.1 200"))
            draw, times = drawing(11), {near: [], far: []}
            for _ in range(scaled(600, 10_000)):
                for key in draw.sample([near, far], 2):
                    began = time.perf_counter_ns()
                    self.get(stream, key)
                    times[key].append(time.perf_counter_ns() - began)
        limit = percentile(times[near] + times[far], 0.95)  # the machine's pauses say nothing about keys
        a, b = ([t for t in times[key] if t < limit] for key in (near, far))
        mean = [sum(v) / len(v) for v in (a, b)]
        variance = [sum((t - m) ** 2 for t in v) / (len(v) - 1) / len(v) for v, m in zip((a, b), mean)]
        t = (mean[0] - mean[1]) / sum(variance) ** 0.5
        self.record(tries_per_guess=len(times[near]), means_us=[m / 1e3 for m in mean], welch_t=t)
        self.assertLess(abs(t), 4.5)


class Floods(Attack):
    flags = ("--max-connections", "1024", "--log-level", "info")

    async def test_bodies_of_all_connections_have_one_bound(self):
        connections = scaled(48, 400)
        resident = self.server.resident_bytes()
        head = (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 8388608\r\n\r\n")
        data = b'{"prompt": "' + b"a" * (8 * MIB - 100)
        peak = 0

        async def client(_):
            with socket.create_connection(("127.0.0.1", self.port)) as connected:
                connected.setblocking(False)
                loop = asyncio.get_running_loop()
                try:
                    await loop.sock_sendall(connected, head)
                    await loop.sock_sendall(connected, data)
                except ConnectionError:
                    pass  # refused in the middle
                try:
                    return await asyncio.wait_for(loop.sock_recv(connected, 4096), 3)
                except (OSError, asyncio.TimeoutError):
                    return b""

        async def watch():
            nonlocal peak
            while True:
                peak = max(peak, self.server.resident_bytes())
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(watch())
        replies = await in_parallel(connections, client)
        watching.cancel()
        refused = [r for r in replies if r.startswith(b"HTTP/1.1 503")]
        self.assertTrue(refused and all(b"Retry-After: " in r for r in refused))
        self.assertLess(peak - resident, 600 * MIB)
        self.server.complete("still here")
        self.record(connections=connections, bytes_each=8 * MIB, refused_503=len(refused), grown_MiB=(peak - resident) / MIB)

    async def test_pipelined_requests_are_all_answered(self):
        count = 1000
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" * (count - 1) + b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answered = (await reader.read(-1)).count(b"HTTP/1.1 200")
        writer.close()
        self.assertEqual(answered, count)
        self.record(pipelined=count)

    async def test_idle_connections_make_room(self):
        connections = [self.server.raw() for _ in range(1024)]
        for client in connections[::2]:
            client.sendall(b"GET /hea")
        await asyncio.sleep(1.2)
        replies = await in_parallel(50, lambda _: post(self.port, COMPLETIONS, {"prompt": "x", "max_tokens": 1}))
        self.assertEqual({r.status for r in replies}, {200})
        for client in connections:
            client.close()
        self.record(idle_connections=1024, served_meanwhile=len(replies))

    async def test_unknown_fields_do_not_fill_the_log(self):
        for i in range(scaled(100, 2000)):
            await exchange(self.port, post_raw(json.dumps({"prompt": [-1], f"field\n\x1b[2J{i}": 1, "x" * 5000 + str(i): 2})))
            await exchange(self.port, post_raw(json.dumps({"prompt": "x", "max_tokens": 0, f"field\n\x1b[2J{i}": 1, "x" * 5000 + str(i): 2})))
        log = self.server.errors()
        self.assertNotIn("\x1b", log)
        self.assertLess(len(log), 30_000)
        self.record(log_bytes=len(log))

    async def test_large_bodies_do_not_hold_up_small_ones(self):
        slow = post_raw('{"prompt": "x", "max_tokens": 0, %s}' % ",".join(f'"k{i}": 1' for i in range(100_000)))
        attack = asyncio.gather(*(exchange(self.port, slow) for _ in range(scaled(24, 100))))
        await asyncio.sleep(0.2)
        waits = []
        for _ in range(10):
            began = time.monotonic()
            self.assertEqual((await post(self.port, "/tokenize", {"content": "hello"})).status, 200)
            waits.append(time.monotonic() - began)
        for reply in await attack:
            self.assert_refused(reply, "many fields")
        for _ in range(60):  # these are gone before anybody reads them
            with self.server.raw(slow):
                pass
        began = time.monotonic()
        self.assert_refused(await exchange(self.port, slow), "many fields")
        self.assertLess(time.monotonic() - began, 10)
        self.record(large_bodies=scaled(24, 100), small_body_seconds_max=max(waits))
        self.assertLess(max(waits), 2)


if __name__ == "__main__":
    if FULL:
        sys.argv.remove("--full")
        attack_record.write_at_exit()
    unittest.main(verbosity=2 if FULL else 1)
