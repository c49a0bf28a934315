PYTHON ?= python3
BIN := .venv/bin
OUT := out

help:  ## show this list (the default, so that a bare make changes nothing)
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 8

$(BIN)/.can-run: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or later is needed: install it, or name it with make PYTHON=…'; exit 1; }
	$(PYTHON) -m venv .venv
	@echo 'Installing into .venv: Spark is most of it, 450 MB …'
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable $(if $(SPARK),".[spark]" 'pyspark==$(SPARK)',".[local]")
	touch $@

$(BIN)/.installed: $(BIN)/.can-run
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group dev
	-npm install --silent --no-save --prefix .venv axe-core@4.14.1  # checks the page; its test skips where npm is not here
	touch $@

$(OUT)/captures/truth.json: $(BIN)/.can-run $(wildcard jobs/simulator/*.py)
	$(BIN)/msmq-replay simulate --scenario demo --out $(OUT)/captures > /dev/null

run: $(OUT)/captures/truth.json  ## install, simulate a morning on which something went wrong, and say what became of each message
	$(BIN)/msmq-replay nightly --captures '$(OUT)/captures/*.pcap' --warehouse $(OUT)/warehouse --names-file $(OUT)/captures/names.toml

test test-all: export POLARS_MAX_THREADS = 1  # three parts share the cores

test: $(BIN)/.installed  ## what a merge needs: lint, types, import contracts, tests
	$(MAKE) --jobs 3 --output-sync=target checks plain-tests spark-tests TIER='not slow'

test-all: $(BIN)/.installed  ## the same with the slow tests, before a release
	$(MAKE) --jobs 3 --output-sync=target checks plain-tests spark-tests TIER='slow or not slow'

checks:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	nice -n 19 $(BIN)/pytest -m 'not spark and ($(TIER))' tests/test_[a-l]*.py  # the tests on Spark take longest

plain-tests:
	nice -n 19 $(BIN)/pytest -m 'not spark and ($(TIER))' tests/test_[!a-l]*.py

spark-tests:
	$(BIN)/pytest -m 'spark and ($(TIER))' --durations 15

bench: $(BIN)/.installed  ## measure all that is promised of speed; MB=500 for a larger capture, LARGEST=2000 for growth, ROUNDS=3 for medians, PAGE=docs/speed-and-cost.md to keep it
	$(BIN)/python tests/bench_nights.py --megabytes $(or $(MB),100) --largest $(or $(LARGEST),0) --rounds $(or $(ROUNDS),1) $(and $(PAGE),--page $(PAGE))

bench-replay: $(BIN)/.installed  ## time the replay on made rows; MESSAGES=… and SCOPES='1 1000' set how many, HEAP=4g the JVM's heap
	$(BIN)/python tests/bench_replay.py --messages $(or $(MESSAGES),1000000) --scopes $(or $(SCOPES),1 1000 100000) --heap $(or $(HEAP),4g)

docs: $(BIN)/.installed  ## write docs/wire-format.md, docs/tables.md, a page for each table and conf/base.toml from their declarations
	$(BIN)/python tests/document.py

screenshot: run  ## the pictures in docs/: report.png, report-dark.png, report-phone.png and console.png; needs Chromium
	$(BIN)/msmq-replay look '$(OUT)/captures/*.pcap' --names-file $(OUT)/captures/names.toml > $(OUT)/look.txt
	$(BIN)/python tests/browser.py $(OUT)/warehouse/report.html $(OUT)/look.txt docs

zip: $(BIN)/.installed  ## dist/msmq_replay.zip for spark-submit --py-files
	mkdir -p dist && $(BIN)/python tests/archive.py dist/msmq_replay.zip

clean:  ## remove everything that was made
	rm -rf .venv $(OUT) dist

.PHONY: help run test test-all checks plain-tests spark-tests bench bench-replay docs screenshot zip clean
