# One tool a line. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
JOBS ?= 4
# Most tests wait for servers, so there are more processes than cores. tests/conftest.py has
# the order of the files.
SUITE := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder tests
FAST := not triton and not slow and not bench and not exhaustive
# Without a package: the frame that all features stand in, and what holds them together.
QUICK := exporter/access exporter/config exporter/network exporter/openai exporter/output exporter/own_requests exporter/runtime exporter/status exporter/system exporter/taps exporter/triton exporter/web grafana/test_dashboards.py
NOT_ALL := -m "not bench and not exhaustive" --timeout 900 --durations 40 --durations-min 20
ONLY ?=
TRITON ?=
PACKAGE ?=
PICTURES := fleet latency
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-all print-test-all test-triton test-gpu test-bounds test-exhaustive bench attack fuzz mutants soak check fmt generate lint types imports lock audit sbom docs man pictures grafana-panels release clean parts

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready: requirements.lock .ci/venv
	.ci/venv $(PYTHON) $(VENV) requirements.lock
	@touch $@

# What pyproject.toml says of commands and versions; seconds, unlike the line above.
$(VENV)/.installed: $(VENV)/.ready pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.triton/.ready: requirements-triton.lock .ci/venv .ci/parts
	.ci/venv $(PYTHON) .triton requirements-triton.lock --no-compile
	.ci/parts demo
	@touch $@

env: $(VENV)/.installed .triton/.ready

# What the sidecar runs with, a seventh of what its tests need. Compiled as it is imported:
# compiling all of scipy would be a third of the installation.
.run/.installed: deploy/docker/requirements.lock pyproject.toml .ci/venv
	.ci/venv $(PYTHON) .run deploy/docker/requirements.lock --editable . --no-compile
	@touch $@

demo:  ## embedded Triton, demo models, sidecar, gentle traffic (ARGS="--duration 20")
	@$(MAKE) --no-print-directory -j 2 .run/.installed .triton/.ready
	.run/bin/tritonwatch demo $(ARGS)

parts: env  ## the real parts the tests need: Debian packages where this is root, else what to install
	.ci/parts test

test: parts  ## everything but the slow tests and the benchmarks
	$(if $(ARGS),$(BIN)/python -m pytest $(ARGS),$(SUITE))

# Without a real Triton: what needs one has the marker. A file at a time on each core.
test-fast: env  ## while editing: no Triton, by package (PACKAGE=exporter/features/drift)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile -m "$(FAST)" $(addprefix tests/,$(or $(PACKAGE),$(QUICK))) $(ARGS)

test-all: parts  ## slow tests included
	$(if $(ARGS),$(BIN)/python -m pytest,$(SUITE)) $(NOT_ALL) $(ARGS)

# For those who need pytest's own exit status, which make does not pass on.
print-test-all:
	@echo '$(SUITE) $(NOT_ALL)'

test-triton: parts  ## what needs a Triton, on one of your own (TRITON=folder with bin/tritonserver and backends)
	@test -n "$(TRITON)" || { echo "give TRITON=FOLDER, with bin/tritonserver and backends in it"; exit 2; }
	TRITONWATCH_TRITON=$(abspath $(TRITON)) $(BIN)/python -m pytest -m "triton and not bench and not exhaustive" $(ARGS)

test-gpu: env  ## energy of models on this machine's NVIDIA GPU
	$(BIN)/python -m pytest -m gpu tests/gpu $(ARGS)

test-bounds:  ## the sidecar's fast tests with the lowest and with the newest versions that pyproject.toml allows
	.ci/bounds lowest-direct $(PYTHON) $(ARGS)
	.ci/bounds highest $(PYTHON) $(ARGS)

test-exhaustive: parts  ## chaos runners ended at every point of every fault: most of an hour
	$(BIN)/python -m pytest -m exhaustive $(ARGS)

bench: env  ## figures as JSON lines, kept in tests/benchmarks/results (ONLY=part-of-a-name)
	.ci/parts test
	$(BIN)/python tests/benchmarks/run_benchmarks.py $(if $(ONLY),--only $(ONLY)) $(ARGS)

fuzz: env  ## every parser of what others wrote, a minute each, the corpora kept (ARGS="--seconds 600 --only config")
	$(BIN)/python tests/fuzz/fuzz_all.py $(ARGS)

# Loopback only, unless a URL is given. In 512 MiB where a control group can be made.
attack: env  ## every known attack on a sidecar, and what honest clients saw (ARGS="--all --seconds 600")
	PYTHONPATH=tests/support $(BIN)/python tests/attacks/run_all.py $(ARGS)

soak: env  ## an hour of random faults: does everything come back, and nothing grow (ARGS="--seed 2")
	$(BIN)/tritonwatch chaos soak $(ARGS)

check: lint types imports  ## lint, types, import direction, and that every test file imports

fmt: env  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: env  ## METRICS.md, CONFIG.md, the config schema, the list of modules and the dashboards
	$(BIN)/tritonwatch metrics --markdown > METRICS.md
	$(BIN)/tritonwatch schema --markdown > CONFIG.md
	$(BIN)/tritonwatch schema > exporter/config.schema.json
	$(BIN)/python -m grafana.build
	$(BIN)/python .ci/modules.py > docs/design/modules.md
	for kind in run capacity comparison efficiency pair; do \
	  $(BIN)/tritonwatch load report --schema $$kind > loadtests/report/$$kind.schema.json; done

lint: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: env
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/basedpyright

imports: env
	@found=$$($(BIN)/python -m pytest --collect-only -qq -n 0 2>&1) || { echo "$$found" | tail -n 30; exit 1; }

lock:  ## resolve the dependencies anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --all-extras --group dev pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header -c requirements.lock pyproject.toml -o deploy/docker/requirements.lock

build/audit/bin/pip-audit:
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet pip-audit

# Apart from the locked environment, as the other tools that no test needs.
build/docs/bin/mkdocs:
	$(PYTHON) -m venv build/docs
	build/docs/bin/python -m pip install --quiet mkdocs-material==9.8.2 mkdocs==1.6.1

man: env  ## the manual page, build/man/tritonwatch.1
	mkdir -p build/man && $(BIN)/tritonwatch --print-man-page > build/man/tritonwatch.1

docs: build/docs/bin/mkdocs  ## the documentation as a searchable site, build/site/index.html; broken links fail
	NO_MKDOCS_2_WARNING=1 $< build

# Apart from the locked environment, and from the tests that mutants run: it brings rich, which
# structlog imports where it is.
build/mutants/cosmic_ray: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --upgrade --target build/mutants cosmic-ray==8.7.0

build/coverage/pytest_cov: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/coverage coverage==7.17.4 pytest-cov==7.0.0

mutants: env build/mutants/cosmic_ray build/coverage/pytest_cov  ## wrong changes that fast tests notice, half an hour (ARGS="--area slo --seed 2")
	PYTHONPATH=build/mutants:build/coverage nice $(BIN)/python tests/benchmarks/mutants.py $(ARGS)

# Grafana's own components, 460 MB of npm, for the test that draws every panel with them.
build/grafana/node_modules/.package-lock.json: tests/grafana/panels/package.json
	mkdir -p build/grafana && cp $< build/grafana/
	npm install --prefix build/grafana --no-audit --no-fund --loglevel=error

build/grafana/panels.js: tests/grafana/panels/panels.jsx build/grafana/node_modules/.package-lock.json
	NODE_PATH=build/grafana/node_modules build/grafana/node_modules/.bin/esbuild $< --outfile=$@ --bundle --minify \
	  --format=iife --jsx=automatic --loader:.ttf=empty --define:process.env.NODE_ENV='"production"' --log-level=warning

grafana-panels: build/grafana/panels.js  ## what tests/grafana/test_grafana_panels.py draws with, 2 minutes

pictures: parts grafana-panels  ## the dashboards' pictures in docs, from the demo (all: build/grafana/pictures)
	$(BIN)/python -m pytest -m slow tests/grafana/test_grafana_panels.py
	for board in $(PICTURES); do cp build/grafana/pictures/$$board-1440-top.png docs/pictures/$$board.png; done

# Asks the network, so no test runs it. --strict: what cannot be looked up is no "none found".
audit: build/audit/bin/pip-audit  ## known vulnerabilities of everything that is locked
	$< --strict --require-hashes --disable-pip -r requirements.lock
	$< --strict --require-hashes --disable-pip -r requirements-triton.lock

release: env sbom  ## wheel, sdist, chart, image context and SBOM with checksums, in dist
	rm -rf dist
	.ci/release $(BIN)/python dist
	cp build/tritonwatch.cdx.json dist/ && cd dist && sha256sum tritonwatch.cdx.json >> SHA256SUMS

build/sbom/bin/cyclonedx-py:
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet cyclonedx-bom

sbom: build/sbom/bin/cyclonedx-py  ## what the image holds, as CycloneDX in build/tritonwatch.cdx.json
	$< requirements --pyproject pyproject.toml --output-reproducible -o build/tritonwatch.cdx.json deploy/docker/requirements.lock

clean:  ## remove both environments and every cache
	rm -rf $(VENV) .run .triton .pytest_cache .mypy_cache .ruff_cache .hypothesis
