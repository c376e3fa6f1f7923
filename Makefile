# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The one entry to everything that checks this collection: see CONTRIBUTING.md. Needs python3 (+venv), git and make.
#
# One command per intent:
#   make test               what finds most, in 12 minutes on two cores (tests/harness/parts.py)
#   make test-all           every part, as CI runs it; make nightly has what takes longer
#   make PART               one part:
#     style, lint           formatting, licences, English, types, Ansible's linters
#     unit, floor           unit tests; those of the oldest ansible-core, Python and SQLite
#     sanity                ansible-test sanity
#     integration, molecule real engines, and hosts that are containers
#     fleet                 playbooks on simulated hosts, with faults of all kinds
#     contract, conformance the device plugin's contract; specs beside the reference library
#     fault, world          kills, full disks, power cuts; the life of a host from a seed
#     adversary, machines   attacks; virtual machines
#   make e2e [E2E="-k upgrade"]   real kubelets: the first run builds them for a quarter of an hour
#   make machines WHOLE=1 [REBOOTS=10]   also the cases that take minutes each
#   make machines CUTS=100   also a hundred power cuts in provision, claims, refresh and upgrade
#   make machines MACHINE=selinux   another machine of tests/machines/machines.yml
#   make gpu [OPTIONS='{"driver_root": "/run/nvidia/driver"}']   a host with a GPU beside what its vendor's programs say
#                           of it, by these options of the profile; results in build/gpu.json
#   make nightly            the larger counts, and matrix, docs-site and importer
#   make again PARTS="unit contract" [TIMES=10] [BUSY=2]   parts several times, also beside busy loops
#   make bench [ROOM=payload]   the benchmarks
#   make release-artifacts [REVISION=0.1.0]   what a release consists of, in dist (docs/release.md)
#   make release VERSION=0.2.0 DRY_RUN=1   try to make a release; KEY=FILE instead of DRY_RUN=1 makes it
#   make orders [ORDER="demo test"]   demo, test and demo-undo, each after each, beside other specs and a running docker
#   make reproducible       build what a release consists of twice, elsewhere and under other settings, and compare
#   make changelog [BASE=main]   whether a change that users see has a fragment
#   make matrix [MATRIX=...]   ansible-core and Python, the oldest to the newest
#   make coverage [PARTS="unit contract integration fleet molecule e2e"]   which lines and branches these parts run
#   make mutation [ROOMS="spec hooks"] [NUMBER=100] [SEED=1]   how many small faults the unit tests find
#   make docs-site          the documentation as a site, in build/docs-site
#   make importer           what Galaxy says when it imports the collection
#   make conventions        the table of conventions of good collections, each row by its proof
#   make setup              build/venv, and what the machine lacks
#   make format             ruff's formatting and safe fixes
#   make demo, make demo-undo   from here to a container that sees exactly its device, and back
#   make machine, make machine-plug, make machine-unplug, make machine-stop   a machine to try it on (docs/machine.md)
#   make clean, make help   remove build; print this
# INSTALL=1 lets root install missing real counterparts by apt. QUICK=1 leaves out what `make test` leaves out.
# make adversary takes SEEDS=10000, FAMILY=images and SEED=17; make world SEED=7 and DAYS=1000; make fault LEVEL=L5.

# The distribution's Python, where it is new enough: hosts run it, and it is faster than one that pyenv compiled.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>&- \
  && echo /usr/bin/python3 || echo python3)
PYTHON := $(PYTHON)
INSTALL ?=
QUICK ?=
ROOM ?=
LEVEL ?=
E2E ?=
WORLD ?=
BASE ?=
MATRIX ?=
OPTIONS ?=
export FLEET_CDI_DATA QUICK OPTIONS

# The environments are made anew when what they hold, or the Python, changes.
stamp = build/$(1)/.made-$(shell { cat $(2); $(PYTHON) -V; } | cksum | cut -d' ' -f1)
VENV := $(call stamp,venv,tests/requirements.txt)
FLOOR := $(call stamp,venv-floor,tests/requirements-floor.txt)
MUTATION := $(call stamp,venv-mutation,tests/requirements-mutation.txt)
IMPORTER := $(call stamp,venv-importer,tests/requirements-importer.txt)
DOCS := $(call stamp,venv-docs,tests/requirements-docs.txt)
GPU := $(call stamp,venv-gpu,tests/requirements-gpu.txt)
# No configuration of the user's may change what is tested.
run = env ANSIBLE_CONFIG=$(CURDIR)/tests/harness/ansible.cfg ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/build/pythonpath \
  PATH="$(CURDIR)/build/$(1)/bin:$$PATH"
RUN := $(call run,venv)
# COVERAGE names the parts whose coverage is noted.
noted = $(if $(filter $@,$(COVERAGE)),$(1))
PROCESSES = -m coverage run --rcfile=tests/coverage.toml
COUNTERPARTS = @$(PYTHON) tests/harness/counterparts.py $(if $(INSTALL),install,report)
LINK := build/pythonpath/ansible_collections/fleet/cdi
# Tools that want a collection at its proper path, and nothing but its files, get a copy. Each part has its own, as parts
# run side by side.
COPY = build/collections/$@/ansible_collections/fleet/cdi
MIRROR = @$(PYTHON) tests/harness/mirror.py $(COPY)

.DEFAULT_GOAL := help
.PHONY: help test test-all setup style lint sanity unit floor integration fleet contract conformance fault world adversary molecule machines gpu e2e bench changelog docs-site importer matrix nightly conventions coverage mutation again format clean

help:
	@sed -n '/^# The one entry/,/^$$/s/^# \{0,1\}//p' Makefile

test:
	+@$(PYTHON) tests/harness/parts.py

test-all:
	+@$(PYTHON) tests/harness/parts.py all

setup: $(VENV) $(LINK)
	$(COUNTERPARTS)

$(VENV): tests/requirements.txt
$(FLOOR): tests/requirements-floor.txt
$(MUTATION): tests/requirements-mutation.txt
$(IMPORTER): tests/requirements-importer.txt
$(DOCS): tests/requirements-docs.txt
$(GPU): tests/requirements-gpu.txt
$(VENV) $(FLOOR) $(MUTATION) $(IMPORTER) $(DOCS) $(GPU):
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(LINK):
	@mkdir -p $(@D)
	@ln -sfn ../../../.. $@

style: $(VENV)
	$(COUNTERPARTS) style
	@$(RUN) python tests/harness/lint.py

lint: $(VENV) $(LINK)
	$(MIRROR)
	@$(RUN) python tests/harness/lint.py $(COPY)

# What Galaxy says when it imports the collection.
importer: $(IMPORTER)
	$(MIRROR)
	@$(call run,venv-importer) python tests/harness/importer.py $(COPY)

# The documentation as a site, in build/docs-site/html.
docs-site: $(DOCS)
	$(MIRROR)
	@$(call run,venv-docs) python tests/harness/docs_site.py $(COPY)

# What users see of the changes since BASE has a changelog fragment.
changelog:
	@$(PYTHON) tests/harness/changelog.py $(or $(BASE),origin/main)

sanity: $(VENV)
	$(COUNTERPARTS) sanity
	$(MIRROR)
	@$(RUN) python tests/harness/sanity.py $(COPY)

unit: $(VENV) $(LINK)
	$(COUNTERPARTS) unit
	@$(RUN) python tests/harness/halves.py tests/unit $(call noted,pyproject.toml)

# What meets SQLite, asyncio and the kernel also runs under the oldest Python of hosts; `make matrix` runs all units there.
OLDEST = $(addprefix tests/unit/plugins/module_utils/,allocation/ledger device_plugin/process system)
floor: $(FLOOR) $(LINK)
	$(COUNTERPARTS) floor
	@$(call run,venv-floor) python tests/harness/floor.py
	$(if $(QUICK),,@$(call run,venv-floor) python tests/harness/host_pythons.py bullseye $(OLDEST))

integration: $(VENV) $(LINK)
	$(COUNTERPARTS) integration
	$(MIRROR)
	@$(RUN) python $(call noted,$(PROCESSES)) tests/harness/integration.py $(COPY)

fleet: $(VENV) $(LINK)
	$(COUNTERPARTS) fleet
	@$(RUN) python $(call noted,$(PROCESSES)) -m pytest -q tests/fleet

contract: $(VENV) $(LINK)
	$(COUNTERPARTS) contract
	@$(RUN) python tests/harness/halves.py tests/contract $(call noted,tests/coverage.toml)

conformance: $(VENV) $(LINK)
	@$(RUN) python tests/harness/conformance.py $(if $(INSTALL),install)

fault: $(VENV) $(LINK)
	$(COUNTERPARTS) fault
	@$(RUN) python tests/fault/main.py $(LEVEL)

# SEED=7 DAYS=1000: other worlds, so many host-days; WORLD=trace prints one world, WORLD=controls finds old defects.
world: $(VENV) $(LINK)
	@$(RUN) python tests/world/main.py $(WORLD)

adversary: $(VENV) $(LINK)
	$(COUNTERPARTS) adversary
	@$(RUN) python tests/adversary/main.py

molecule: $(VENV) $(LINK)
	$(COUNTERPARTS) molecule
	@$(RUN) python $(call noted,$(PROCESSES)) tests/harness/scenarios.py

# Virtual machines with a kernel and devices of their own. The first run makes their image. Status 75 says that an
# emulated machine froze, with what it showed: a second run tells whether that was by chance.
MACHINES = $(RUN) python -m pytest -q tests/machines
machines: $(VENV) $(LINK)
	$(COUNTERPARTS) machines
	@$(MACHINES) || { test $$? = 75 && echo "Once more, on a new machine." && $(MACHINES); }

# Where an NVIDIA or AMD GPU with its driver is; elsewhere it says so and is skipped. The host stays as it is.
gpu: $(GPU) $(LINK)
	@$(call run,venv-gpu) python -m pytest -q tests/gpu

# Not part of `make test`: the first run builds kubelets for a quarter of an hour.
e2e: $(VENV) $(LINK)
	$(COUNTERPARTS) e2e
	@$(RUN) python $(call noted,$(PROCESSES)) tests/harness/e2e.py $(E2E)

bench: $(VENV) $(LINK)
	$(COUNTERPARTS)
	@for file in tests/bench/$(or $(ROOM),*).py; do $(RUN) python $$file || exit 1; done

# Every ansible-core from the floor to the newest, and every Python of hosts, in root directories: half an hour, for nightly.
matrix: $(VENV) $(LINK)
	$(COUNTERPARTS) matrix
	@$(RUN) python tests/harness/matrix.py $(MATRIX)

OTHER_MACHINES = $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' tests/machines/machines.yml | grep -vx trixie)
nightly: matrix docs-site importer
	$(COUNTERPARTS)
	@$(RUN) HYPOTHESIS_PROFILE=nightly python -m pytest -q tests/unit
	@$(RUN) SEEN=100000 python tests/harness/conformance.py $(if $(INSTALL),install)
	@$(RUN) FLEET_CDI_FAULT=full python tests/fault/main.py L9
	@$(RUN) ACTIONS=1000 python -m pytest -q tests/integration/test_shared_host.py
	@$(RUN) HOSTS=1000 WHOLE=1 KILLS=100 python -m pytest -q -s tests/fleet
	@$(RUN) SEED=$$(date +%Y%j)000 DAYS=100000 python tests/world/main.py  # other worlds each night
	@$(RUN) python tests/world/main.py controls
	@$(RUN) python tests/harness/reproducible.py
	@$(RUN) NIGHTLY=1 python -m pytest -q tests/integration/test_air_gap.py tests/integration/test_typed_blocks.py \
	  tests/integration/test_release.py
	@$(RUN) CROWD=50 python -m pytest -q tests/integration/test_claim_lifetime.py -k crowd
	@$(RUN) WHOLE=1 REBOOTS=10 CUTS=12 python -m pytest -q tests/machines
	@for machine in $(OTHER_MACHINES); do MACHINE=$$machine $(RUN) python -m pytest -q tests/machines || exit 1; done

# Which lines and branches the unit and contract tests run, or PARTS; red below the floor in pyproject.toml.
coverage: PARTS := $(or $(PARTS),unit contract)
coverage:
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(MAKE) --no-print-directory COVERAGE="$(PARTS)" $(PARTS)
	@$(RUN) python tests/harness/covered.py $(PARTS)
	@$(RUN) coverage report

# How many of the small faults that are put into rooms their unit tests find: NUMBER=200 SEED=2 ROOMS="spec hooks".
mutation: $(VENV) $(LINK) $(MUTATION)
	@$(RUN) PYTHONPATH=tests/harness build/venv-mutation/bin/python tests/harness/mutation.py $(or $(NUMBER),100) $(or $(SEED),1) \
	  $(or $(ROOMS),allocation spec hooks device_plugin)

# The conventions of good collections, each with its proof, after `make test-all`: docs/conventions.md.
conventions: $(VENV) $(LINK)
	@$(RUN) python tests/harness/conventions.py

# What fails now and then: each of PARTS, as often as TIMES says, beside BUSY busy loops.
again: $(VENV) $(LINK)
	@$(PYTHON) tests/harness/again.py $(or $(TIMES),10) $(or $(BUSY),0) $(PARTS)

# The same commit gives the same bytes everywhere; `make reproducible` builds it in two distributions.
.PHONY: release release-artifacts reproducible
release: $(VENV)
	@$(RUN) python release/procedure.py $(VERSION) $(if $(DRY_RUN),--dry-run,--key $(KEY))

release-artifacts: $(VENV)
	@$(RUN) python release/artifacts.py $(or $(REVISION),HEAD)

reproducible: $(VENV)
	$(COUNTERPARTS) reproducible
	@$(RUN) python tests/harness/reproducible.py

format: $(VENV)
	@build/venv/bin/ruff format .
	@build/venv/bin/ruff check --fix .

clean:
	rm -rf build

# From a bare checkout to a container that sees exactly its device, on this machine; demo-undo takes it back.
.PHONY: demo demo-undo orders
demo:
	@$(PYTHON) examples/demo/run.py $(ARCHIVE)

demo-undo:
	@$(PYTHON) examples/demo/run.py undo

# Both, and `make test`, each after each, beside specs of another tool and a running docker: three quarters of an hour.
orders:
	$(COUNTERPARTS) orders
	@$(PYTHON) tests/harness/orders.py $(ORDER)

# A virtual machine to try the collection on; machine-stop takes it back.
.PHONY: machine machine-plug machine-unplug machine-stop
machine: $(VENV)
	$(COUNTERPARTS) machines
	@$(RUN) python examples/machine/run.py

machine-plug machine-unplug machine-stop: machine-%: $(VENV)
	@$(RUN) python examples/machine/run.py $*
