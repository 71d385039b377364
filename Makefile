# Every target does its own set-up: it needs Python 3.11 or later (PYTHON=python3.12 chooses another) and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
GRID = $(if $(QUICK),--quick) $(if $(TRIALS),--trials $(TRIALS)) $(if $(JOBS),--jobs $(JOBS))
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-reproduction test-coverage test-slow chromium test-browser test-lowest test-adapters docs dist format reproduce bench-accuracy bench-selection bench-peers bench-speed bench-forecasting bench-localization bench-command-line bench-leak bench-scale bench-onnx fuzz bench-alarm bench-shift bench-groups bench-gaps bench-slices bench-edges bench-classification bench-species kill bench-serve soak bench-range clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## make .venv with the locked versions (again when the lock or pyproject.toml changes)

# torch first and alone: the rest of the lock then finds it there, whichever build it is.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed: make PYTHON=..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $$(grep '^torch==' requirements.lock)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: venv ## rents with intervals by four methods: print the scores, draw the intervals
	$(BIN)/python examples/demo.py

test: venv ## what CI runs: ruff, mypy, pytest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal --ignore tests/reproduction --ignore tests/benchmarks

test-reproduction: venv ## the paper's experiments and the benchmarks: their tables are made again from the stored lines
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal tests/reproduction tests/benchmarks

test-coverage: venv ## coverage of every calibration on 1,000 random laws, against what it promises: under an hour (QUICK=1: two minutes)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/coverage_test.py $(if $(QUICK),--quick)

test-slow: venv ## the tests that take minutes
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 -m slow

chromium: # Debian's, where there is none
	(command -v chromium && command -v chromedriver) > /dev/null || (apt-get update --quiet && apt-get install --yes --quiet chromium chromium-driver)

test-browser: venv chromium ## the report in headless Chromium at three widths
	$(ONE_THREAD) $(BIN)/python -m pytest -m browser tests/report

# Without ray, whose older versions pull much else; torch first, since its builds differ (TORCH=2.13.0 takes another one).
# Deprecations are let pass: old versions of other packages warn about each other. An export to ONNX needs a newer torch.
test-lowest: TORCH ?= 2.5.0
test-lowest: ## the tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet torch==$(TORCH)
	.venv-lowest/bin/python tests/release/lowest_versions.py data images plots report serve tables > .venv-lowest/requirements.txt
	.venv-lowest/bin/python -m pip install --quiet --requirement .venv-lowest/requirements.txt \
		beartype cloudpickle 'hatchling>=1.26' hypothesis jsonschema 'pandas==2.2.*' 'pyarrow==17.*' 'pytest>=8' pytest-xdist
	.venv-lowest/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(ONE_THREAD) .venv-lowest/bin/python -m pytest -n 2 -W ignore::DeprecationWarning --ignore tests/test_ray.py \
		--ignore tests/test_mlflow.py --ignore src/coverwell/mlflow.py --ignore tests/cli/test_export.py --ignore src/coverwell/onnx.py -k "not export" \
		--deselect "tests/test_shell_blocks.py::test_shell_blocks_run_and_print_what_the_page_shows[command-line.md]" \
		--deselect "tests/test_readme.py::test_python_blocks_run_in_order[integrations.md]"

# Without the lock's pandas, which is newer than both allow.
test-adapters: ## skpro's and sktime's own suites, and our tests, on our adapters for them, in .venv-adapters: five minutes
	$(PYTHON) -m venv --clear .venv-adapters
	.venv-adapters/bin/python -m pip install --quiet $$(grep '^torch==' requirements.lock)
	grep -v '^pandas==' requirements.lock > .venv-adapters/constraints.txt
	.venv-adapters/bin/python -m pip install --quiet --constraint .venv-adapters/constraints.txt \
		--requirement benchmarks/requirements-adapters.txt beartype hatchling hypothesis
	.venv-adapters/bin/python -m pip install --quiet --constraint .venv-adapters/constraints.txt --no-build-isolation --editable .
	$(ONE_THREAD) .venv-adapters/bin/python -m pytest tests/test_skpro.py tests/test_sktime.py
	$(ONE_THREAD) .venv-adapters/bin/python benchmarks/adapters.py

docs: venv chromium ## the documentation site, in docs/_build/html; warnings are errors, links and pages are checked
	rm -rf docs/_build docs/api/generated
	$(ONE_THREAD) $(BIN)/python -m sphinx -E -W --keep-going --quiet --nitpicky -c docs . docs/_build/html
	$(BIN)/python -m pytest -m docs tests/docs

dist: venv ## wheel and sdist, tested in a clean environment
	rm -rf dist .venv-dist
	$(BIN)/python -m hatchling build
	mkdir dist/again && tar --extract --gzip --file dist/*.tar.gz --directory dist/again --strip-components 1
	cd dist/again && $(abspath $(BIN))/python -m hatchling build --target wheel
	cmp dist/*.whl dist/again/dist/*.whl
	rm -r dist/again
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet $$(grep '^torch==' requirements.lock)
	.venv-dist/bin/python -m pip install --quiet --constraint requirements.lock "$$(echo dist/*.whl)[tables]"
	.venv-dist/bin/python tests/release/installed_package.py $$($(BIN)/python -m hatchling version) .

format: venv ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reproduce: venv ## Tables 1 to 3 and Figures 2 to 5 of the paper (QUICK=1: minutes; TRIALS=20; JOBS=2)
	$(BIN)/python -m reproduction table1 $(GRID) --peers benchmarks/results/peers.jsonl
	$(BIN)/python -m reproduction figure3 $(GRID)
	$(BIN)/python -m reproduction figure2 $(if $(QUICK),--quick)
	$(BIN)/python -m reproduction table2 $(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS))
	$(BIN)/python -m reproduction figure4 $(if $(QUICK),--quick)
	$(BIN)/python -m reproduction table3 $(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS))
	$(BIN)/python -m reproduction figure5 $(if $(QUICK),--quick)

bench-accuracy: venv ## accuracy and calibration of the default next to the best competitors (QUICK=1: small tables, short rounds; JOBS=2)
	PYTHONPATH=. $(BIN)/python benchmarks/accuracy.py $(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS))

bench-speed: venv ## speed next to UQ360, time and memory by number of rows
	PYTHONPATH=. $(BIN)/python benchmarks/speed.py

bench-forecasting: venv ## speed of LSTMs, of a live step, a refit and a test period; also on a GPU, if available (QUICK=1: seconds)
	PYTHONPATH=. $(BIN)/python benchmarks/forecasting.py $(if $(QUICK),--quick)

bench-localization: venv ## speed on images: features, an epoch with and without them, prediction; also on a GPU, if available (QUICK=1: seconds)
	PYTHONPATH=. $(BIN)/python benchmarks/localization.py $(if $(QUICK),--quick)

bench-command-line: venv ## rows per second and memory of `coverwell predict` (QUICK=1: seconds)
	PYTHONPATH=. $(BIN)/python benchmarks/command_line.py $(if $(QUICK),--quick)

bench-selection: venv ## the default with and without each ingredient, the scores that chose other settings (QUICK=1: small tables, short rounds; JOBS=2)
	PYTHONPATH=. $(BIN)/python benchmarks/selection.py $(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS))
	PYTHONPATH=. $(BIN)/python benchmarks/selection_baselines.py $(if $(QUICK),--quick)
	PYTHONPATH=. $(BIN)/python benchmarks/selection_forecasting.py $(if $(QUICK),--quick)
	PYTHONPATH=. $(BIN)/python benchmarks/selection_localization.py $(if $(QUICK),--quick)

bench-peers: venv ## MAPIE, NGBoost, conformal-tights, forests, boosting, RealMLP and TabM on the same splits, in .venv-peers (QUICK=1: one split)
	PYTHONPATH=. $(BIN)/python benchmarks/peers.py $(if $(QUICK),--quick)

bench-leak: venv ## how much of a row's own target reaches its width
	PYTHONPATH=. $(BIN)/python benchmarks/leak.py

bench-scale: venv ## scale: members, floors, precision and studies on a GPU if available, curves, workers and peers on the CPU (QUICK=1: two minutes)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/scale.py $(if $(QUICK),--quick)

bench-onnx: venv ## rows per second of exported models next to torch, and how far those of images differ (QUICK=1: seconds)
	PYTHONPATH=. $(BIN)/python benchmarks/onnx_speed.py $(if $(QUICK),--quick)
	PYTHONPATH=. $(BIN)/python benchmarks/onnx_images.py $(if $(QUICK),--quick)

fuzz: venv ## 10,000 random inputs to fit, predict, load, report and serve: only our errors, no hang, bounded memory (QUICK=1: a minute)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/fuzz.py $(if $(QUICK),--quick)

bench-alarm: venv ## rows until the coverage alarm rings, false alarms, time per row (QUICK=1: seconds)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/alarm.py $(if $(QUICK),--quick)

bench-shift: venv ## coverage after a covariate shift, with and without `recalibrate` (QUICK=1: one split of two tables)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/shift.py $(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS))

bench-groups: venv ## coverage within groups, with `hold_for` and without (QUICK=1: one split of made-up rows)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/groups.py $(if $(QUICK),--quick)

bench-gaps: venv ## coverage of rows with a missing value in an important column (QUICK=1: seconds)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/gaps.py $(if $(QUICK),--quick)

bench-slices: venv ## how often a fit names the rows that it covers too little (QUICK=1: a minute)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/worst_slices.py $(if $(QUICK),--quick)

bench-edges: venv ## coverage of rows outside the training range (QUICK=1: a minute; JOBS=2)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/edges.py $(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS))

bench-range: venv ## live coverage of series that leave the range they were trained in (QUICK=1: seconds; JOBS=2)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/left_range.py $(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS))

bench-classification: venv ## sets and probabilities of classes next to MAPIE, TorchCP, crepes, venn-abers and scikit-learn, in .venv-class-peers (QUICK=1: a minute; JOBS=2)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/classification.py $(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS))

bench-species: venv ## sets of bird species beside a plain fine-tuned head: 20 species in 12 minutes of one thread (QUICK=1: seconds; CLASSES=200 SIZE=224 DEVICE=cuda: all of them; WEIGHTS=file)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/species.py $(if $(QUICK),--quick) $(if $(CLASSES),--classes $(CLASSES)) $(if $(SIZE),--size $(SIZE)) $(if $(DEVICE),--device $(DEVICE)) $(if $(WEIGHTS),--weights $(WEIGHTS))

kill: venv ## kill -9 at 100 random moments of fits, predictions, reports and grids: a quarter of an hour (QUICK=1: a minute or two)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/kill.py $(if $(QUICK),--quick)

bench-serve: venv ## the service under load: rows per second, latency, memory (QUICK=1: seconds)
	PYTHONPATH=. $(ONE_THREAD) $(BIN)/python benchmarks/serve.py $(if $(QUICK),--quick)

soak: venv ## an hour of live updates and of the service, at a third of a core: memory flat, results the same (QUICK=1: a minute; SECONDS=3600)
	PYTHONPATH=. $(ONE_THREAD) nice -n 10 $(BIN)/python benchmarks/soak.py $(if $(QUICK),--quick) $(if $(SECONDS),--seconds $(SECONDS))

clean: ## remove the environment, caches and build output
	rm -rf $(VENV) .venv-uq360 .venv-peers .venv-class-peers .venv-lowest .venv-adapters .venv-dist build dist docs/_build docs/api/generated docs/auto_gallery .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
