"""/openapi.json against the live server: schemathesis sends what the description allows, and what it does not."""
import os
import subprocess
import sys
import tempfile
import unittest

from server_process import Server

EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "4")


class OpenApi(unittest.TestCase):
    def test_every_route_answers_as_described(self):
        # A short context: requests that name no max_tokens get what fits.
        with Server("--max-model-len", "64", "--kv-cache-memory", "64M") as server, tempfile.TemporaryDirectory() as folder:
            schemathesis = os.path.join(os.path.dirname(sys.executable), "schemathesis")
            run = subprocess.run(
                [schemathesis, "run",
                 f"http://127.0.0.1:{server.port}/openapi.json", "--max-examples", EXAMPLES, "--phases",
                 "examples,coverage,fuzzing", "--seed", "1",
                 "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
                 "negative_data_rejection,unsupported_method", "--request-timeout", "60", "--no-color"],
                capture_output=True, text=True, timeout=280, cwd=folder)
            self.assertEqual(run.returncode, 0, run.stdout[-6000:] + run.stderr[-2000:])
            self.assertEqual(server.complete("Hi", max_tokens=1)["usage"]["completion_tokens"], 1)
            server.assert_idle()


if __name__ == "__main__":
    unittest.main()
