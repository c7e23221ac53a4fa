"""Stock clients from PyPI against a live server: openai, langchain-openai, the parser of prometheus-client."""
import threading
import unittest

import openai
from langchain_openai import ChatOpenAI
from prometheus_client.parser import text_string_to_metric_families

from server_process import MODEL, Server, in_threads

QUESTION = [{"role": "user", "content": "Name three rivers."}]


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", "k", "--max-num-seqs", "4", "--max-queued-requests", "4")
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="k", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.stop()

    def chat(self, **more):
        return self.client.chat.completions.create(model=MODEL, messages=QUESTION, **{"max_tokens": 24, "temperature": 0, **more})

    def test_chat_whole_and_streamed(self):
        whole = self.chat()
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertEqual(whole.usage.completion_tokens, 24)
        text, usage, finish = "", None, None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(finish, "length")
        self.assertEqual(usage.total_tokens, whole.usage.total_tokens)
        self.assertIsNotNone(usage.prompt_tokens_details.cached_tokens)

    def test_completions_whole_and_streamed(self):
        ask = dict(model=MODEL, prompt="The capital of France is", max_tokens=12, temperature=0)
        whole = self.client.completions.create(**ask)
        pieces = [chunk.choices[0].text for chunk in self.client.completions.create(**ask, stream=True)]
        self.assertEqual("".join(pieces), whole.choices[0].text)
        self.assertGreater(len(pieces), 6)

    def test_choices_seeds_and_stops(self):
        four = self.chat(n=4, seed=7, temperature=1)
        self.assertEqual([c.index for c in four.choices], [0, 1, 2, 3])
        texts = [c.message.content for c in four.choices]
        self.assertEqual(len(set(texts)), 4)
        self.assertEqual(texts, [c.message.content for c in self.chat(n=4, seed=7, temperature=1).choices])
        full = self.chat().choices[0].message.content
        stopped = self.chat(stop=[full[8:12]]).choices[0]
        self.assertEqual((stopped.message.content, stopped.finish_reason), (full[:full.index(full[8:12])], "stop"))

    def test_log_probabilities(self):
        choice = self.chat(max_tokens=5, logprobs=True, top_logprobs=3).choices[0]
        self.assertEqual(len(choice.logprobs.content), 5)
        for token in choice.logprobs.content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertAlmostEqual(token.logprob, max(t.logprob for t in token.top_logprobs), places=4)
            self.assertEqual(bytes(token.bytes).decode(errors="replace"), token.token)
        plain = self.client.completions.create(model=MODEL, prompt="a b", max_tokens=4, temperature=0, logprobs=2).choices[0]
        self.assertEqual("".join(plain.logprobs.tokens), plain.text)
        self.assertEqual(plain.logprobs.text_offset[0], 0)

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).owned_by, "headwater")

    def test_errors_are_the_clients_exceptions(self):
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="wrong").models.list()
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model="other", messages=QUESTION)
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(temperature=3)
        self.assertEqual(raised.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(max_tokens=100000)
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model=MODEL, input="x")

    def test_it_tries_again_after_429_by_itself(self):
        patient = self.client.with_options(max_retries=40)
        answers = in_threads([lambda: patient.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=60, extra_body={"ignore_eos": True}) for _ in range(24)])
        self.assertTrue(all(answer.usage.completion_tokens == 60 for answer in answers))
        self.assertGreater(self.server.metrics()["headwater:http_rejected_total"], 0)
        impatient = self.client.with_options(max_retries=0)
        refused = []

        def ask():
            try:
                impatient.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=60, extra_body={"ignore_eos": True})
            except openai.RateLimitError as problem:
                refused.append(problem)

        in_threads([ask] * 24)
        self.assertTrue(refused)

    def test_a_closed_stream_frees_its_pages(self):
        stream = self.chat(stream=True, max_tokens=2000, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        deadline = threading.Event()
        for _ in range(200):
            if not self.cache()["sequences"]:
                break
            deadline.wait(0.05)
        self.assertEqual(self.cache()["pages"]["held"], 0)

    def cache(self):
        return self.server.get("/v1/cache", {"Authorization": "Bearer k"}).json


class LangChain(unittest.TestCase):
    def test_invoke_and_stream(self):
        with Server() as server:
            chat = ChatOpenAI(model=MODEL, base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", temperature=0,
                              max_tokens=16, stream_usage=True)
            whole = chat.invoke("Name a colour.")
            chunks = list(chat.stream("Name a colour."))
            self.assertEqual("".join(chunk.content for chunk in chunks), whole.content)
            self.assertEqual(whole.usage_metadata["output_tokens"], 16)
            self.assertEqual(sum((c.usage_metadata or {}).get("output_tokens", 0) for c in chunks), 16)


class Metrics(unittest.TestCase):
    def test_the_page_parses_under_load_and_adds_up(self):
        with Server() as server:
            done = threading.Event()
            pages = []

            def scrape():
                while not done.is_set():
                    pages.append(server.get("/metrics").body.decode())
                    done.wait(0.02)

            scraper = threading.Thread(target=scrape)
            scraper.start()
            in_threads([lambda i=i: server.complete(f"question {i}", max_tokens=20, ignore_eos=True) for i in range(12)])
            done.set()
            scraper.join()
            pages.append(server.get("/metrics").body.decode())
            self.assertGreater(len(pages), 5)
            last = {}
            for page in pages:
                now = {}
                for family in text_string_to_metric_families(page):
                    for sample in family.samples:
                        if family.name.startswith("vllm:"):
                            self.assertEqual(sample.labels.get("model_name"), MODEL, sample)
                        if family.type in ("counter", "histogram"):
                            now[(sample.name, tuple(sorted(sample.labels.items())))] = sample.value
                for key, value in last.items():
                    self.assertGreaterEqual(now[key], value, key)
                last = now
            total = {name: value for (name, _), value in last.items()}
            self.assertEqual(total["vllm:generation_tokens_total"], 12 * 20)
            self.assertEqual(total["vllm:time_to_first_token_seconds_count"], 12)
            self.assertEqual(sum(v for (n, _), v in last.items() if n == "vllm:request_success_total"), 12)


if __name__ == "__main__":
    unittest.main()
