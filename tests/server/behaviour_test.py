"""The server as its clients see it, standard library only: texts, prefixes, parameters, limits."""
import json
import unittest

from server_process import MODEL, Server, in_threads, request_bytes, text_of

WORDS = "river stone market engine garden winter signal copper harbor letter mountain silver paper window bridge forest".split()


def ids(count, seed=1):
    """Arbitrary token ids of the model's vocabulary, none of them a control token."""
    return [1000 + (i * 7919 + seed * 104729) % 40000 for i in range(count)]


class WithServer(unittest.TestCase):
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        self.server.assert_idle()

    def cached(self, answer):
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class PrefixCache(WithServer):
    flags = ("--block-size", "16")

    def test_a_fully_cached_prompt_computes_one_token_again(self):
        prompt = ids(64, seed=2)
        first = self.server.complete(prompt)
        queries = self.server.metrics()["vllm:prefix_cache_queries_total"]
        second = self.server.complete(prompt)
        self.assertEqual(self.cached(first), 0)
        self.assertEqual(self.cached(second), 48)  # whole pages, without the last token
        self.assertEqual(first["choices"][0]["text"], second["choices"][0]["text"])
        self.assertEqual(self.server.metrics()["vllm:prefix_cache_queries_total"] - queries, 64)  # once

    def test_lengths_around_a_page_cold_warm_and_mixed(self):
        for length in (13, 17):
            prompt = ids(length, seed=3)
            cold = self.server.complete(prompt)
            warm = self.server.complete(prompt)
            mixed = in_threads([lambda p=p: self.server.complete(p) for p in (prompt, ids(length, seed=4 + length), prompt)])
            self.assertEqual({a["choices"][0]["text"] for a in (cold, warm, mixed[0], mixed[2])}, {cold["choices"][0]["text"]})
            self.assertEqual(self.cached(warm), 0 if length == 13 else 16)

    def test_two_system_prompts_both_stay(self):
        a, b = ids(160, seed=5), ids(160, seed=6)
        for prompt in (a, b):
            self.server.complete(prompt)
        for prompt in (a, b, a, b):
            self.assertEqual(self.cached(self.server.complete(prompt + ids(5, seed=7))), 160)

    def test_salts_share_nothing(self):
        prompt = ids(80, seed=8)
        texts = set()
        for salt in ("one", "two", None):
            answer = self.server.complete(prompt, cache_salt=salt)
            self.assertEqual(self.cached(answer), 0, salt)
            texts.add(answer["choices"][0]["text"])
        self.assertEqual(len(texts), 1)
        self.assertEqual(self.cached(self.server.complete(prompt, cache_salt="two")), 64)

    def test_a_prompt_shorter_than_a_page_caches_nothing(self):
        before = self.server.cache()["pages"]["cached"]
        self.server.complete(ids(5, seed=9), max_tokens=4)
        self.assertEqual(self.server.cache()["pages"]["cached"], before)

    def test_twins_in_one_step_leave_one_physical_copy(self):
        before = self.server.cache()["pages"]["cached"]
        prompt = ids(128, seed=10)
        answers = in_threads([lambda: self.server.complete(prompt, max_tokens=2) for _ in range(6)])
        self.assertEqual(len({a["choices"][0]["text"] for a in answers}), 1)
        self.assertEqual(self.server.cache()["pages"]["cached"] - before, 8)

    def test_an_aborted_prefill_publishes_only_whole_pages(self):
        prompt = ids(2000, seed=11)
        with self.server.raw(request_bytes("/v1/completions", {"prompt": prompt, "max_tokens": 4})) as gone:
            while not self.server.cache()["sequences"]:
                pass
            gone.close()
        self.server.assert_idle()
        cold = Server("--block-size", "16")
        try:
            self.assertEqual(self.server.complete(prompt)["choices"][0]["text"], cold.complete(prompt)["choices"][0]["text"])
        finally:
            cold.stop()

    def test_chats_that_overlap_hit_the_cache_and_are_attended_once(self):
        before = self.server.metrics()
        system = " ".join(WORDS[i * 5 % len(WORDS)] for i in range(1200))
        self.server.complete(system, max_tokens=1)
        answers = in_threads([
            lambda i=i: self.server.complete(system + f" question {i}", max_tokens=48, ignore_eos=True) for i in range(8)])
        after = self.server.metrics()
        grown = {name: after[name] - before.get(name, 0) for name in after}
        self.assertTrue(all(self.cached(answer) > 1000 for answer in answers))
        self.assertGreater(grown["vllm:prefix_cache_hits_total"], 0)
        shared = sum(grown[f'headwater:attention_steps_total{{path="{path}"}}'] for path in ("shared", "mixed"))
        reasons = {n: v for n, v in grown.items() if n.startswith("headwater:attention_not_shared_total") and v}
        # A processor on which sharing does not pay stays flat and says so.
        self.assertTrue(shared > 0 or any("below_cost" in name for name in reasons), reasons)
        if shared:
            self.assertGreater(grown["headwater:shared_prefix_tokens_total"], 0)
            self.assertLess(grown['headwater:kv_bytes_read_total{arm="actual"}'], grown['headwater:kv_bytes_read_total{arm="flat"}'])


class Text(WithServer):
    def test_streamed_pieces_are_the_whole_answer(self):
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "Write a Python loop."}]}),
                           ("/v1/completions", {"prompt": "The   quick"}), ("/v1/completions", {"prompt": "日本語の🙂"})):
            body = {**body, "max_tokens": 60, "temperature": 0}
            whole = self.server.post(path, body).json
            events = list(self.server.stream(path, {**body, "stream_options": {"include_usage": True}}))
            text, usage, finish = text_of(events)
            choice = whole["choices"][0]
            self.assertEqual(text, choice["text"] if "text" in choice else choice["message"]["content"])
            self.assertEqual(finish, choice["finish_reason"])
            self.assertEqual({k: v for k, v in usage.items() if "details" not in k},
                             {k: v for k, v in whole["usage"].items() if "details" not in k})
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual(events[-2]["choices"], [])
            self.assertIn("cached_tokens", usage["prompt_tokens_details"])

    def test_a_stream_has_one_chunk_a_token_and_begins_with_the_role(self):
        events = [e for e in self.server.stream("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 20, "temperature": 0})]
        chunks = [e["choices"][0] for e in events if isinstance(e, dict)]
        self.assertEqual(chunks[0]["delta"]["role"], "assistant")
        self.assertGreaterEqual(sum(1 for c in chunks if c["delta"].get("content")), 15)
        self.assertFalse(any("usage" in e and e["usage"] for e in events if isinstance(e, dict)))

    def test_random_bytes_are_valid_text(self):
        for seed in range(6):
            answer = self.server.complete("x", temperature=2, top_k=0, max_tokens=50, seed=seed, ignore_eos=True)
            self.assertEqual(answer["usage"]["completion_tokens"], 50)
            self.assertTrue(answer["choices"][0]["text"])
        for limit in (1, 2, 3):  # the limit falls inside a character
            text = self.server.complete("Emoji: 🙂🙂🙂🙂🙂🙂🙂", max_tokens=limit)["choices"][0]["text"]
            self.assertLessEqual(text.count("\ufffd"), 1)
            self.assertFalse("\ufffd" in text[:-1])

    def test_a_stop_string_ends_the_text_before_it_and_never_leaks(self):
        body = {"prompt": "1, 2, 3, 4, 5,", "max_tokens": 40, "temperature": 0}
        full = self.server.post("/v1/completions", body).json["choices"][0]["text"]
        for stop in (full[3:9], full[10:11], [full[20:26], full[20:23]], ["never there", full[5:12]]):
            stops = [stop] if isinstance(stop, str) else stop
            expected = full[:min(full.find(s) for s in stops if s in full)]
            text, _, finish = text_of(self.server.stream("/v1/completions", {**body, "stop": stop}))
            whole = self.server.post("/v1/completions", {**body, "stop": stop}).json["choices"][0]
            self.assertEqual((text, finish), (expected, "stop"), stop)
            self.assertEqual((whole["text"], whole["finish_reason"]), (expected, "stop"))

    def test_control_strings_of_a_user_stay_text(self):
        def turns(content):
            tokens = self.server.post("/tokenize", {"messages": [{"role": "user", "content": content}], "return_token_strs": True}).json
            return sum(1 for token in tokens["token_strs"] if token == "<|im_end|>")

        self.assertGreater(turns("ab"), 0)
        self.assertEqual(turns("a<|im_end|>b"), turns("ab"))

    def test_tokens_and_text_are_inverse(self):
        for text in ("Hello,  world!", "naïve ☃ 日本 🙂"):
            for body in ({"content": text}, {"model": MODEL, "prompt": text}):
                tokens = self.server.post("/v1/tokenize", body).json
                self.assertEqual(len(tokens["tokens"]), tokens.get("count", len(tokens["tokens"])))
                back = self.server.post("/detokenize", {"tokens": tokens["tokens"]}).json
                self.assertEqual(back["content"], text)
                self.assertEqual(back["prompt"], text)

    def test_render_gives_what_a_chat_would_compute(self):
        body = {"messages": [{"role": "user", "content": "hi"}]}
        rendered = self.server.post("/v1/chat/completions/render", body).json
        self.assertEqual(rendered["token_ids"], self.server.post("/tokenize", body).json["tokens"])
        rendered = self.server.post("/v1/completions/render", {"prompt": ["a b", "c"]}).json
        self.assertEqual(len(rendered), 2)


class Sampling(WithServer):
    def test_a_seed_gives_the_same_choices_whatever_else_runs(self):
        ask = lambda **more: [c["text"] for c in self.server.complete(
            "Once upon a time", temperature=1, seed=7, max_tokens=24, **more)["choices"]]
        four = ask(n=4)
        self.assertEqual(len(set(four)), 4)
        alone = ask()
        crowd = [lambda i=i: self.server.complete(f"noise {i}", temperature=1, max_tokens=30) for i in range(30)]
        among = in_threads([ask, lambda: ask(n=4), *crowd])
        self.assertEqual(among[0], alone)
        self.assertEqual(among[1], four)
        self.assertEqual(alone[0], four[0])

    def test_without_a_seed_answers_differ(self):
        texts = {self.server.complete("Once", temperature=1.5, max_tokens=16)["choices"][0]["text"] for _ in range(4)}
        self.assertGreater(len(texts), 1)

    def test_nothing_to_generate_and_impossible_tokens(self):
        echo = self.server.complete("Hello there", max_tokens=0, echo=True)
        self.assertEqual((echo["choices"][0]["text"], echo["choices"][0]["finish_reason"]), ("Hello there", "length"))
        self.assertEqual(echo["usage"]["completion_tokens"], 0)
        one = self.server.post("/v1/completions", '{"prompt": "Hi", "max_tokens": 3, "top_k": 1, "logprobs": 5}')
        self.assertEqual(one.status, 200)
        self.assertNotIn(b"Infinity", one.body)
        self.assertEqual(len(one.json["choices"][0]["logprobs"]["tokens"]), 3)
        ban = self.server.complete("Hi", max_tokens=4, logit_bias={"28": -100, "30": 100})
        self.assertEqual(ban["choices"][0]["finish_reason"], "length")

    def test_too_long_is_refused_with_both_numbers(self):
        body = {"prompt": ids(8192), "max_tokens": 1}
        answer = self.server.post("/v1/completions", body)
        self.assertEqual((answer.status, answer.json["error"]["code"]), (400, "context_length_exceeded"))
        self.assertIn("8192", answer.json["error"]["message"])
        answer = self.server.post("/v1/completions", {"prompt": ids(8000), "max_tokens": 193})
        self.assertEqual(answer.status, 400)
        self.assertIn("8000", answer.json["error"]["message"])
        self.assertIn("193", answer.json["error"]["message"])

    def test_every_chunk_has_the_usage_so_far_where_it_was_asked_for(self):
        events = [e for e in self.server.stream("/v1/completions", {
            "prompt": "a b", "max_tokens": 6, "temperature": 0, "stream_options": {"continuous_usage_stats": True}})]
        counts = [e["usage"]["completion_tokens"] for e in events if isinstance(e, dict)]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], 6)

    def test_prompts_of_one_request_are_answered_in_order(self):
        answer = self.server.complete(["1 2 3", "a b c"], n=2, temperature=0.8, seed=3, max_tokens=5)
        self.assertEqual([c["index"] for c in answer["choices"]], [0, 1, 2, 3])
        single = self.server.complete("a b c", n=2, temperature=0.8, seed=3, max_tokens=5)
        self.assertEqual([c["text"] for c in answer["choices"][2:]], [c["text"] for c in single["choices"]])


class Limits(WithServer):
    flags = ("--max-num-seqs", "2", "--max-queued-requests", "3", "--keep-alive-seconds", "0.02")

    def test_a_full_queue_gets_429_at_once_and_nothing_accepted_is_lost(self):
        ask = lambda i: self.server.post("/v1/completions", {"prompt": ids(300, seed=40 + i), "max_tokens": 40, "ignore_eos": True})
        answers = in_threads([lambda i=i: ask(i) for i in range(16)])
        statuses = sorted(answer.status for answer in answers)
        self.assertEqual(set(statuses), {200, 429})
        for answer in answers:
            if answer.status == 429:
                self.assertTrue(answer.headers["Retry-After"].isdigit())
                self.assertEqual(answer.json["error"]["type"], "rate_limit_error")
            else:
                self.assertEqual(answer.json["usage"]["completion_tokens"], 40)

    def test_comments_keep_a_silent_stream_alive(self):
        events = list(self.server.stream("/v1/completions", {"prompt": ids(4000, seed=60), "max_tokens": 3, "temperature": 0}))
        first_text = next(i for i, e in enumerate(events) if isinstance(e, dict))
        self.assertGreater(first_text, 2)
        self.assertTrue(all(e == ": keep-alive" for e in events[:first_text]))

    def test_routes_and_methods(self):
        for path, status in (("/v1/responses", 404), ("/v1/embeddings", 404), ("/nowhere", 404), ("/v1/completions", 405)):
            answer = self.server.get(path)
            self.assertEqual(answer.status, status, path)
            self.assertTrue(answer.json["error"]["message"])
        self.assertEqual(self.server.get("/v1/completions").headers["Allow"], "POST")
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "x", "model": "gpt-4"}).status, 404)
        self.assertEqual(self.server.get(f"/v1/models/{MODEL}").json["max_model_len"], 8192)
        self.assertEqual(self.server.get("/v1/models/none").status, 404)
        self.assertGreaterEqual(self.server.metrics()["headwater:http_connections"], 1)
        before = self.server.metrics()["headwater:http_bad_requests_total"]
        with self.server.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200 + b"\r\n") as crowded:
            self.assertIn(b" 431 ", crowded.recv(100))
        self.assertEqual(self.server.metrics()["headwater:http_bad_requests_total"], before + 1)
        connection = self.server.connection()
        connection.request("POST", "/v1/completions", '{"prompt": "x"}')  # without a content type
        self.assertEqual(connection.getresponse().status, 415)
        connection.close()
        self.assertEqual(self.server.post("/v1/completions", {"prompt": ["x"] * 4, "max_tokens": 1}).status, 400)  # queue: 3
        form = self.server.post("/v1/completions", "a=b", {"Content-Type": "application/x-www-form-urlencoded"})
        self.assertEqual(form.status, 415)
        self.assertIn("version", self.server.get("/version").json)
        self.assertEqual(self.server.get("/ping").status, 200)
        self.assertIn("/v1/chat/completions", self.server.get("/openapi.json").json["paths"])


if __name__ == "__main__":
    unittest.main()
