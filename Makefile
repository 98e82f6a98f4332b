# Each target does its own set-up; the first one takes a few minutes, later ones start within seconds.
PY := .venv/bin/python
# Byte code is kept, whatever the shell says: to compile the sources anew is half of what a process takes to start.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: demo quick test soak bench docs seed clean

demo:  ## the main job: flights through the broker, a consumer group and Spark
	@tools/setup.sh
	$(PY) -m kohort.cli.main demo

quick:  ## unit tests and the rules of the KIPs that start no process, in 2 minutes
	@tools/setup.sh
	@exec $(PY) -m pytest -n 2 --dist loadfile --no-process -m "not large" tests/unit tests/kips

# Four at a time on two cores, since half of the time tests wait; tests/support/distribution.py has the order. What `make soak` alone runs is left out.
test:  ## everything that must hold, under 15 minutes
	@tools/system.sh & tools/setup.sh && wait
	@tools/checks.sh
	@exec $(PY) -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(SOAK_ALONE:%=--ignore %) tests/spark tests

soak:  ## the long tests: thousands of seeds, whole tables, clusters; ONLY=list says which, ONLY="fuzz matrix", DEPTH=2, SEED=7
	@tools/setup.sh
	@exec $(PY) tools/soak.py $(ONLY)

bench:  ## every claim of docs/reference/performance.md beside its peer; fails where one no longer holds
	@tools/setup.sh
	@exec $(PY) bench/run.py

docs:  ## the site of docs/, with its tables made, into build/site; fails where a link leads nowhere
	@tools/setup.sh docs
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@echo "the site is build/site/index.html"

seed:  ## one seed of a simulated world again, with its story: make seed SEED=17; WORLD=queries, clients, transactions, sinks
	@tools/setup.sh
	@exec $(PY) -m kohort.simulation.seed $(SEED) $(WORLD:%=--world=%) --verbose

clean:
	rm -rf .venv .venv-3.* .cache build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	# What else lies there is the user's.
	[ ! -f demo-output/.kohort-demo ] || rm -rf demo-output/data demo-output/flights.png demo-output/report.html demo-output/.kohort-demo
	find src -name '*.so' -o -name 'kernels.c' | xargs -r rm -f

# Each of these takes several virtual machines, but for the wheels, which take compilers.
SOAK_ALONE := $(patsubst %,tests/%.py,spark/test_cluster spark/test_connect spark/test_declarative \
	interop/test_secured_cluster interop/test_admin_apache_cluster interop/test_wheels)
