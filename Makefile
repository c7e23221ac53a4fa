# Thin verbs; each is one script or one command. `make` alone lists them.
.PHONY: help setup build run serve test check gates lint tidy bench fuzz docs

help: ## list the verbs
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: ## install dependencies, fetch the default model
	tools/setup.sh
build: setup     ## build into build/release (CUDA=1 adds the CUDA back end)
	tools/build.sh headwater
run: build       ## the demo: many chats behind one prompt, the prefix attended once (measures the machine first, once)
	-build/release/headwater tune --once
	build/release/headwater demo
	@echo "Next: make serve starts the server with this model on http://127.0.0.1:8000 (README.md shows two clients)"
serve: build     ## the OpenAI-compatible server on http://127.0.0.1:8000, with the fetched model or MODEL=path
	build/release/headwater serve $(if $(MODEL),-m "$(MODEL)")
test: ## every correctness test, fuzzers 10 s each
	tools/test.sh
check: ## sanitizers, fuzzers 60 s each, CUDA compile where nvcc is
	tools/check.sh
gates: build     ## timing gates, by hand on a quiet machine
	tools/gates.sh
lint: ## formatting and shell syntax
	tools/lint.sh
tidy: build      ## clang-tidy over the sources
	tools/tidy.sh
bench: build     ## attention and planner benches, a short run
	build/release/headwater bench attention --grid none,seed --max-seconds 120
	build/release/headwater bench plan
fuzz: ## every fuzzer, SECONDS each (default 60)
	tools/fuzz.sh $(or $(SECONDS),60)
docs: ## check that documents name only files and commands that exist
	tools/check_docs.sh
