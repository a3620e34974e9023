# `make demo` and `make test` set up all they need; both may be run again and again.

VENV := .venv
PYTHON := $(VENV)/bin/python
QUESTION := Which files are here, and what is today's date?
# The reaper of testcontainers is an image that cannot be pulled everywhere; the tests clean up after themselves.
export TESTCONTAINERS_RYUK_DISABLED := true

.PHONY: demo situations test test-podman test-rules test-escape test-slow soak check setup engine format lock clean

demo: setup engine  ## ask the demo agent a question in a sandbox, with the built-in scripted model
	$(VENV)/bin/sbx run hooks-demo --demo -p "$(QUESTION)"

test: check engine  ## style, types, all tests but the slow ones
	$(PYTHON) -m pytest -m "not slow"

test-slow: setup engine  ## what takes longer than 15 minutes on two cores
	$(PYTHON) -m pytest -m slow

test-podman: setup  ## whole runs and batches on an engine of its own: podman's Docker socket
	scripts/with-podman $(PYTHON) -m pytest -m "engine and not slow" tests/conformance/main tests/conformance/batch

soak: setup engine  ## 500 throwaway runs while hosts, models, engines and disks fail; needs root
	$(PYTHON) -m tests.soak

test-rules: setup  ## take each rule of the model client out in turn: its row must fail
	$(PYTHON) -m tests.conformance.model_servers.mutations

test-escape: setup engine  ## attacks from inside a sandbox, each with its control and without it
	$(PYTHON) -m tests.escape

situations: setup engine  ## every way a command line can end, caused for real, as a table
	$(PYTHON) -m tests.situations

check: setup  ## style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

setup:  ## the virtual environment, from the lock
	@scripts/setup

engine:  ## a Docker engine that answers; installed and started where this user may
	@scripts/engine

format: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

lock: setup  ## resolve the dependencies anew
	$(VENV)/bin/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --quiet \
		--python-version 3.11 pyproject.toml --group dev -o requirements.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
