# `make lab` sets up and opens JupyterLab on the tour; `make report` runs the tour without a browser; `make test` runs every test.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
VENV ?= .venv
# The first number of the NVIDIA driver's version, if there is a driver; from 580 on it runs CUDA 13, before that CUDA 12.
DRIVER := $(shell nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | grep -Eo '^[0-9]+' | head -n 1)
# The tour needs few packages; the tests need every extra but `peers`, which manual comparisons alone need.
TOUR := backends$(if $(DRIVER),$(shell test $(DRIVER) -ge 580 && echo ,gpu || echo ,gpu12))
EXTRAS := $(TOUR),cluster,coreml,executorch,fpga,hf,kernels,language,serve,stream,docs,tensorboard,dev
BIN := $(VENV)/bin
# Dependencies are installed anew when these two files change, the project itself when the checkout is another one.
VERSIONS := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
DEPENDENCIES := $(VENV)/.dependencies-$(VERSIONS)
EVERYTHING := $(VENV)/.everything-$(VERSIONS)
INSTALLED := $(VENV)/.installed-$(shell echo $(CURDIR) | cksum | cut -d' ' -f1)
# Python compiles what it imports; compiling all of it takes half of the time.
PIP := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
# A line at the end of an installation: how long it took, and what it takes on the disk.
SIZE = echo "Installed in $$(($$(date +%s) - $$started)) s; $(VENV) has $$(du -sm $(VENV) | cut -f1) MB."
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
# Executed as quick copies, with fewer seconds and rounds; the longest first, so that two workers end together.
COPIES := out/notebooks
LONGEST := $(patsubst %,$(COPIES)/%.ipynb,60_attention 40_precision 50_compress 00_tour)
# Python keeps what it compiles, wherever that is switched off: torch is compiled anew by each of many processes otherwise.
unexport PYTHONDONTWRITEBYTECODE
ARGS ?=
NAME ?=
# What depends on the processor is tested once more as on one with AVX2 alone: no AVX-512, VNNI or bf16.
OLDER := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 PAIFUSER_CPU=avx2
AFFECTED := tests/quantization/test_reduced_range.py tests/quantization/test_formats_side_by_side.py tests/quantization/test_sums.py \
  tests/engines/test_nodes.py tests/profiler/test_engines.py tests/machine/test_host.py \
  $(addprefix tests/converter/test_quantized_export.py::,test_an_engines_output_equals_the_live_models test_the_file_holds_quantizers_and_integers) \
  tests/converter/test_targets.py::test_a_target_s_file_keeps_a_variant_s_roundings \
  tests/importer/test_onnx.py::test_a_file_that_runs_as_it_is_is_quantized_as_onnx_saved_and_loaded \
  $(addprefix tests/memory/test_predict.py::,test_keyword_inputs_and_channels_last_keep_their_layout test_every_option_is_predicted_as_it_is_measured) \
  tests/variant/test_folder.py::test_a_loaded_model_equals_the_saved_one_exactly
# Two workers, a file each, in the order of collection: the longest first (tests/support/durations.py).
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
# What fails beside others is run once more, alone and in a new process: a fault fails twice, a test that a busy machine disturbed is named here.
AGAIN = { test $$? = 1 && echo "=== The tests that failed are run again, alone." && PAIFUSER_PROGRESS=none OMP_NUM_THREADS=1 $(BIN)/pytest --last-failed --last-failed-no-failures none -rA

.PHONY: tour install lab report test forget check docs unit frontend notebooks browser refresh figures pictures bench map weights wheel format clean

tour: $(DEPENDENCIES) $(INSTALLED)

install: $(EVERYTHING) $(INSTALLED)

lab: tour
	$(BIN)/paifuser-lab open $(ARGS)

report: tour
	$(BIN)/paifuser-lab report --out out/report --force $(ARGS)

# The first two take a core each. Each run adds what it skipped to this file, and the last one names all of it.
test: export PAIFUSER_SKIPPED := $(CURDIR)/out/skipped.json
test: forget
	@$(MAKE) --no-print-directory --jobs 2 check docs
	@$(MAKE) --no-print-directory unit frontend notebooks browser

forget:
	@rm -f out/skipped.json

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_house.py

# The site, in out/site: offline, and a warning is an error.
docs: install
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs out/site
	@echo "out/site/index.html"

unit: install
	PAIFUSER_PROGRESS=none OMP_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) --ignore tests/test_house.py -m 'not browser and not gpu' $(ARGS) \
	  || $(AGAIN) --ignore tests/test_house.py -m 'not browser and not gpu' $(ARGS); }
ifndef ARGS
	@echo "=== What depends on the processor, as on one with AVX2 alone."
	export $(OLDER); PAIFUSER_PROGRESS=none OMP_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) $(AFFECTED) || $(AGAIN) $(AFFECTED); }
endif

# Playwright brings its own Node, so that the front end's unit tests need nothing else; types are checked where npm is.
frontend: install
	$(shell $(BIN)/python -c "import pathlib, playwright; print(pathlib.Path(playwright.__file__).parent / 'driver' / 'node')" 2>/dev/null) --test "widgets/**/*.test.js"
	@if command -v npx >/dev/null; then npx --yes --package typescript@7.0.2 tsc -p widgets && npx --yes prettier@3.6.2 --print-width 100 --check "widgets/**/*.js"; \
	else echo "no npx: the front end's types and formatting are not checked"; fi

notebooks: install
	$(BIN)/python -m tests.support.quick_notebooks $(COPIES)
	PAIFUSER_PROGRESS=none PAIFUSER_STATIC=1 OMP_NUM_THREADS=1 $(if $(PAIFUSER_RUN_CACHE),PAIFUSER_CACHE='$(PAIFUSER_RUN_CACHE)') \
	  $(BIN)/pytest $(PARALLEL) --nbval-lax --nbval-sanitize-with tests/notebooks/sanitize.cfg -p no:cacheprovider $(LONGEST) $(filter-out $(LONGEST),$(NOTEBOOKS:notebooks/%=$(COPIES)/%))

browser: install
	OMP_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL) tests/browser -m browser || $(AGAIN) tests/browser -m browser; }

refresh: install
	PAIFUSER_PROGRESS=none PAIFUSER_STATIC=1 $(BIN)/jupyter nbconvert --to notebook --execute --inplace --ExecutePreprocessor.store_widget_state=False $(NOTEBOOKS)

# What README.md and docs/ show: figures from docs/measured, pictures of the workbench, the map in CONTRIBUTING.md.
figures: install
	$(BIN)/python -m benchmarks pages $(ARGS)

pictures: install
	$(BIN)/python -m benchmarks pictures $(ARGS)

# make bench NAME=fuse ARGS="resnet18 --json docs/measured/fuse.json"; without a name, what there is.
bench: install
	$(BIN)/python -m benchmarks $(or $(NAME),--help) $(ARGS)

map: install
	$(BIN)/python -m tests.support.draw_map

# Trains the zoo's models again and writes paifuser_lab/zoo/pretrained.
weights: install
	$(BIN)/python -m paifuser_lab.zoo.trained $(ARGS)

wheel: install
	$(BIN)/python -m build --no-isolation --wheel

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv dist build out

$(DEPENDENCIES): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "PAIFuser Lab needs Python 3.11 or later; none was found. Name one: make PYTHON=/path/to/python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing what the tour needs into $(VENV) …"
	@started=$$(date +%s); $(PIP) torch hatchling editables && $(PIP) --no-build-isolation --editable '.[$(TOUR)]' && $(SIZE)
	@rm -f $(VENV)/.dependencies-* $(VENV)/.everything-* $(VENV)/.installed-*
	@touch $@ $(INSTALLED)

$(EVERYTHING): $(DEPENDENCIES)
	@echo "Installing what the tests need, with every exporter, Ray and Playwright …"
	@started=$$(date +%s); $(PIP) --no-build-isolation --editable '.[$(EXTRAS)]' && $(SIZE)
	@touch $@ $(INSTALLED)

$(INSTALLED): $(DEPENDENCIES)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.installed-*
	@touch $@
