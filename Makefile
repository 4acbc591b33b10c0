# Every target starts from a bare clone: python3 (3.11 or newer) and make are all it needs. `wheel` and `test-compiled` need
# a C compiler and Python's headers, too.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# Worker processes of pytest, on two cores: many tests wait for servers, but a fifth worker starves the others. 0 runs all
# tests in one process.
WORKERS ?= 4
SPREAD := -n $(WORKERS)
# The folder of the tests that are marked `alone`.
ALONE := tests/prometheus
# The unpacked compiled wheel, next to the tests.
COMPILED := build/compiled
RUN_COMPILED = EVENLANE_PURE=0 PYTHONPATH=$(CURDIR)/$(COMPILED) $(CURDIR)/$(BIN)/python
# Not empty: `test-compiled` takes what `make compiled` has built.
BUILT ?=
# The builds that `bench` measures.
BUILDS ?= pure compiled
# Everything that the image is built from. `docker build $(IMAGE)` does as well, after `make image-context`.
IMAGE := build/image
ISOLATION ?= chroot
ROOMS := dashboards engine priority quota ring spark
# For demo, iot and bench: `make demo ARGS="--seconds 60"`.
ARGS ?=

# What the tests need besides Python: Prometheus and mosquitto_pub are unpacked here from their Debian packages, so that
# no service is started.
TOOLS := .tools
export PATH := $(CURDIR)/$(TOOLS)/usr/bin:$(PATH)

# Tests start hundreds of processes: what one has compiled the next ones read, even where a variable forbids to keep it.
export PYTHONDONTWRITEBYTECODE :=

RUNTIME := $(VENV)/runtime.stamp
DEV := $(VENV)/dev.stamp

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo iot test test-full test-kubernetes test-compiled compiled wheel image-context image release faults rows check audit tools dashboards docs bench lock clean

help: ## Print this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r target text; do \
		printf '  make %-15s %s\n' "$$target" "$$text"; done

install: $(DEV) ## Make .venv with everything to work on Evenlane

demo: $(RUNTIME) ## Show on real servers that one hot project of 20 delays no other, and compare with FIFO
	$(BIN)/evenlane demo $(ARGS)

iot: $(DEV) ## Run a device platform: devices by MQTT, a gateway and a node that are killed, and counts at the end
	$(BIN)/python -m examples.iot $(ARGS)

test: $(DEV) tools ## Run the tests, without the long ones
	$(BIN)/python -m pytest -q -m "not full and not alone and not kubernetes" $(SPREAD)
	$(BIN)/python -m pytest -q -m "not full and alone" $(ALONE)

test-full: $(DEV) tools ## Run all tests, the long ones too
	$(BIN)/python -m pytest -q -m "not alone and not kubernetes" $(SPREAD)
	$(BIN)/python -m pytest -q -m alone $(ALONE)

test-kubernetes: $(DEV) ## Test scaling and the chart on an API server, which is built from Debian's source first (root, 11 min)
	sh tests/kubernetes/build.sh $(TOOLS)
	npm install --silent --no-save --no-package-lock --prefix $(TOOLS)/npm @kubernetes-models/keda@0.4.2 \
		@kubernetes-models/prometheus-operator@6.0.0 typescript@7.0.2
	$(BIN)/python -m pytest -q -m kubernetes tests/contract/scaler tests/kubernetes $(ARGS)

wheel: $(DEV) ## Build two wheels into dist: pure Python, and compiled for this platform (needs a C compiler)
	rm -rf dist
	$(BIN)/hatchling build --target sdist
	$(WHEEL) dist/evenlane-*.tar.gz
	HATCH_BUILD_HOOK_ENABLE_MYPYC=1 $(WHEEL) dist/evenlane-*.tar.gz

compiled: wheel
	rm -rf $(COMPILED) && mkdir -p $(COMPILED)
	cp -r benchmarks deploy docs examples tests *.md mkdocs.yml pyproject.toml requirements*.txt Makefile LICENSE $(COMPILED)
	cd $(COMPILED) && $(CURDIR)/$(BIN)/python -m zipfile -e $(CURDIR)/dist/evenlane-*-cp3*.whl . && \
		for room in $(ROOMS); do mv evenlane/$$room $$room && ln -s ../$$room evenlane/$$room || exit 1; done

test-compiled: $(if $(BUILT),,compiled) tools ## Build the wheels, and test the compiled one (ARGS="tests/unit": one folder)
	cd $(COMPILED) && $(RUN_COMPILED) -m pytest -q -m "not full and not alone and not source and not kubernetes" \
		$(SPREAD) $(ARGS)

image-context: $(DEV)
	rm -rf $(IMAGE) && mkdir -p $(IMAGE)/wheels
	cp deploy/image/Containerfile deploy/image/install.py $(IMAGE)
	$(BIN)/hatchling build --target sdist --directory $(IMAGE)/sdist
	$(PIP) wheel --no-deps --no-build-isolation --no-index --wheel-dir $(IMAGE)/wheels $(IMAGE)/sdist/*.tar.gz
	$(PIP) wheel --require-hashes --no-build-isolation --wheel-dir $(IMAGE)/wheels -r deploy/image/requirements.txt
	$(PIP) download --no-deps --dest $(IMAGE)/wheels pip

image: image-context ## Build the image into build/image/evenlane, as OCI layout (needs buildah, and mmdebstrap or BASE=...)
ifndef BASE
	sh deploy/image/base.sh $(IMAGE)/base.tar
	sh deploy/image/base.sh $(IMAGE)/build-base.tar binutils
	set -e; for each in base build-base; do \
		container=$$(buildah from scratch) && buildah add --quiet $$container $(IMAGE)/$$each.tar / && \
		buildah commit --quiet --rm $$container oci:$(CURDIR)/$(IMAGE)/$$each; done
endif
	buildah bud --quiet --isolation $(ISOLATION) --tag oci:$(CURDIR)/$(IMAGE)/evenlane \
		--build-arg BASE=$(or $(BASE),oci:$(CURDIR)/$(IMAGE)/base) \
		--build-arg BUILD_BASE=$(or $(BUILD_BASE),$(BASE),oci:$(CURDIR)/$(IMAGE)/build-base) $(IMAGE)
	@echo "oci:$(IMAGE)/evenlane"

release: $(DEV) ## Build a release, check that version, changelog and chart agree, and tag it (VERSION=x.y.z)
	$(BIN)/python deploy/generate_chart.py --check
	$(BIN)/python deploy/release.py check "$(VERSION)"
	$(MAKE) wheel
	$(BIN)/python deploy/release.py tag "$(VERSION)"

faults: $(DEV) ## Run the fault tests on real servers and processes, all seeds
	$(BIN)/python -m pytest -q $(SPREAD) tests/ledger

rows: $(DEV) ## List the tests of each requirement (ARGS="E5 X11": of these), and requirements without one
	$(BIN)/python -m tests.support.rows $(ARGS)

tools: ## Get Prometheus, mosquitto_pub, libfaketime and Chromium, which some tests need (Debian packages; Chromium only as root)
	@command -v promtool > /dev/null || $(UNPACK) prometheus
	@test -d $(TOOLS)/usr/lib/*/faketime || $(UNPACK) libfaketime
	@command -v mosquitto_pub > /dev/null || { $(UNPACK) mosquitto-clients libmosquitto1 libcjson1; $(WRAP_MOSQUITTO); }
	@command -v chromium > /dev/null || $(INSTALL) chromium

check: $(DEV) ## Check style, format, types and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

audit: $(DEV) ## Look for known vulnerabilities, and write build/sbom.json (ADVISORIES=FILE_OR_URL: instead of asking a service)
	$(BIN)/python -m tests.support.audit --advisories "$(ADVISORIES)" $(ARGS)

dashboards: $(DEV) ## Rebuild the Grafana dashboards, and the parts of the Helm chart that come from elsewhere
	$(BIN)/python -m evenlane.dashboards.build
	$(BIN)/python deploy/generate_chart.py

docs: $(DEV) ## Build the documentation into build/docs, without a network; a broken link or an orphan page fails
	$(BIN)/python docs/generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: $(DEV) $(filter compiled,$(BUILDS)) ## Measure throughput on this machine, of both builds (BUILDS=pure: needs no compiler)
	mkdir -p build/bench
ifneq ($(filter pure,$(BUILDS)),)
	$(BIN)/python -m benchmarks.throughput --save build/bench/pure.json $(ARGS)
endif
ifneq ($(filter compiled,$(BUILDS)),)
	cd $(COMPILED) && $(RUN_COMPILED) -m benchmarks.throughput --save $(CURDIR)/build/bench/compiled.json $(ARGS)
	cp $(COMPILED)/benchmarks/recorded_compiled.json benchmarks
endif
ifeq ($(BUILDS),pure compiled)
	@echo; $(BIN)/python -m benchmarks.tables build/bench/pure.json build/bench/compiled.json
endif

lock: $(DEV) ## Renew the lock files from pyproject.toml (UPGRADE=--upgrade takes newer versions)
	$(PIP) install uv
	$(LOCK) --group build --output-file requirements-build.txt
	$(LOCK) pyproject.toml --extra servers --extra top --constraints requirements-build.txt \
		--output-file requirements.txt
	$(LOCK) pyproject.toml --constraints requirements.txt --constraints requirements-build.txt \
		--output-file deploy/image/requirements.txt
	$(LOCK) pyproject.toml --extra servers --extra top --extra spark --group dev --constraints requirements.txt --constraints requirements-build.txt \
		--output-file requirements-dev.txt

clean: ## Remove .venv, caches and what was built
	rm -rf $(VENV) $(TOOLS) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# `apt-get update` only where the list of packages is too old, or none is there.
UNPACK = sh -c 'mkdir -p $(TOOLS) && cd $(TOOLS) && for each in "$$@"; do \
	{ apt-get -qq download "$$each" 2> /dev/null || { apt-get -qq update && apt-get -qq download "$$each"; }; } && \
	dpkg-deb -x "$$each"_*.deb . && rm "$$each"_*.deb || echo "$$each: its tests will fail without it" >&2; done' sh
# A program finds its libraries only where a system installs them.
WRAP_MOSQUITTO = test ! -x $(TOOLS)/usr/bin/mosquitto_pub || { mv $(TOOLS)/usr/bin/mosquitto_pub $(TOOLS)/usr/lib/ && printf '%s\n' '\#!/bin/sh' \
	'here=$$(cd "$$(dirname "$$0")/../lib" && pwd)' \
	'LD_LIBRARY_PATH=$$(echo "$$here"/*-linux-*) exec "$$here/mosquitto_pub" "$$@"' > $(TOOLS)/usr/bin/mosquitto_pub && \
	chmod +x $(TOOLS)/usr/bin/mosquitto_pub; }
INSTALL = sh -c 'get="apt-get -qq install --yes --no-install-recommends"; export DEBIAN_FRONTEND=noninteractive; \
	$$get "$$@" > /dev/null 2>&1 || { apt-get -qq update && $$get "$$@" > /dev/null; } || \
	echo "not installed: $$*; as root: $$get $$*. Its tests will fail without it" >&2' sh

# From the source archive: a walk over this checkout leaves linked folders out.
WHEEL = $(PIP) wheel --no-deps --no-build-isolation --no-index --wheel-dir dist

LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock" $(UPGRADE)

# The build tools come first and by hash, so that a package that comes as source (etcd3) is built with them and
# pip fetches nothing that no lock names.
define install_locked
@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Evenlane needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
$(PIP) install --require-hashes -r requirements-build.txt
$(PIP) install --require-hashes --no-build-isolation -r $(1)
$(PIP) install --no-deps --no-build-isolation --no-index --editable .
endef

$(RUNTIME): requirements-build.txt requirements.txt pyproject.toml
	$(call install_locked,requirements.txt)
	touch $@

# requirements-dev.txt holds the runtime as well.
$(DEV): requirements-build.txt requirements.txt requirements-dev.txt pyproject.toml
	$(call install_locked,requirements-dev.txt)
	touch $(RUNTIME) $@
