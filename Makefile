# Each target does its own set-up; the first one takes a few minutes, later ones start within seconds.
PY := .venv/bin/python
# Byte code is kept, whatever the shell says: to compile the sources anew is half of what a process takes to start.
export PYTHONDONTWRITEBYTECODE :=
# These take several virtual machines each: `make cluster`.
CLUSTER := $(patsubst %,tests/spark/test_%.py,cluster connect declarative)
.PHONY: demo test checks collected test-all power-loss faulty-disk models flips fuzz worst-requests matrix held-clients static-groups same-as-spark secured administered soak cluster seed seed-queries soak-queries seed-clients soak-client soak-spark wheels bench clean

demo: setup  ## the main job: flights through the broker, a consumer group and Spark
	$(PY) -m kohort.cli.main demo

SECURED := tests/interop/test_secured_cluster.py
ADMINISTERED := tests/interop/test_admin_apache_cluster.py
TESTS_OF_ALL := $(foreach test,$(CLUSTER) $(SECURED) $(ADMINISTERED),--ignore $(test)) tests

test: setup  ## everything that must hold, under 15 minutes
	@$(MAKE) --no-print-directory -j 2 checks collected
	exec $(PY) -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(TESTS_OF_ALL)  # long files first; half of the time tests wait

checks: setup  ## what holds without running anything: lint, format, types, who imports whom
	$(PY) -m ruff check src tests bench examples tools
	$(PY) -m ruff format --check src tests bench examples tools
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache

# The byte code of the tests is made once, beside the checks, and not by each worker for itself.
collected: setup
	@$(PY) -m pytest --collect-only -qq $(TESTS_OF_ALL) >.venv/collected.log || { tail -n 60 .venv/collected.log; exit 1; }

test-all: test  ## the tests on Python 3.11, 3.12 and 3.13, as far as they are installed; TESTS=tests/unit for a part
	@tools/test_all.sh $(TESTS)

soak: setup  ## 10,000 seeds of the simulation, 5,000 of the queries' world, 1,000 of the clients'; a broker killed 1,000 times
	$(PY) -m kohort.testing.seed --count 10000 --jobs $$(nproc) --progress
	$(PY) -m kohort.testing.queries.seed --count 5000 --jobs $$(nproc)
	$(PY) -m kohort.testing.clients.seed --count 1000 --jobs $$(nproc)
	KILL_CYCLES=1000 exec $(PY) -m pytest -v -n 0 tests/interop/test_kill_cycles.py

wheels: setup  ## wheels with and without a C compiler, by their tags; a minute, needs PyPI
	rm -rf .venv/wheels && $(PY) -m pip wheel -q --no-deps -w .venv/wheels . && CC=false $(PY) -m pip wheel -q --no-deps -w .venv/wheels .
	ls .venv/wheels/kohort-*-py3-none-any.whl .venv/wheels/kohort-*-cp3*.whl

power-loss: setup  ## the power goes at every operation of a broker's files, 200 times each; ten minutes
	POWER_LOSS_SEEDS=200 exec $(PY) -m pytest -v -n 2 tests/unit/broker/test_power_loss.py

faulty-disk: setup  ## every fault at every operation of a day of a broker's disk
	FAULTY_DISK_STRIDE=1 exec $(PY) -m pytest -q -n 2 tests/unit/broker/test_faulty_disk.py

models: setup  ## logs, retention, deletion and compaction against models, 500 histories each; a minute
	MODEL_CASES=500 exec $(PY) -m pytest -q -n 2 tests/unit/storage/test_partition_model.py tests/unit/storage/test_retention.py tests/unit/storage/test_compaction.py

flips: setup  ## one bit flipped in every byte of a data directory; half a minute
	FLIP_STRIDE=1 exec $(PY) -m pytest -q -n 2 tests/unit/storage/test_bit_flips.py

fuzz: setup  ## a million inputs each: frames, record batches, what reads each kind of file, directories with such files; FUZZ_INPUTS=10000, FUZZ_SEED=1; hours
	FUZZ_INPUTS=$(or $(FUZZ_INPUTS),1000000) exec $(PY) -m pytest -s -n 2 -o timeout=0 tests/fuzz/test_frames.py tests/fuzz/test_batches.py tests/fuzz/test_readers.py tests/fuzz/test_files.py

worst-requests: setup  ## the longest request of each API that the limits let through: turns and memory; two minutes
	WORST_REQUESTS=whole exec $(PY) -m pytest -q -n 2 tests/unit/broker/test_worst_requests.py

matrix: setup  ## what may happen to a cluster, ours and Apache Kafka's, to every kind of member; half an hour
	MATRIX=whole exec $(PY) -m pytest -n 2 --dist loadfile -k "go_on or share" tests/interop/test_client_*.py

held-clients: setup  ## every client in every protocol while its heartbeats are held, stopped, killed and committing; half an hour, needs Maven
	HELD_CLIENTS=whole exec $(PY) -m pytest -s -n 0 tests/interop/test_held_clients.py
	PYTHONPATH=tests $(PY) -m support.java_cost  # three minutes

static-groups: setup  ## static groups of every client in every protocol; five minutes, needs Maven
	STATIC_GROUPS=whole exec $(PY) -m pytest -v -n 2 tests/interop/test_static_groups.py

same-as-spark: setup  ## every option of the Spark source beside Spark's own; two minutes, needs Maven
	SAME_AS_SPARK=whole exec $(PY) -m pytest tests/spark/test_same_as_spark.py

secured: setup  ## three brokers of Apache Kafka behind TLS and logins, every way in, brokers restarted; five minutes
	exec $(PY) -m pytest -v -n 0 $(SECURED)

administered: setup  ## three brokers of Apache Kafka administered by commands, and while one is away; a minute
	exec $(PY) -m pytest -v -n 0 $(ADMINISTERED)

cluster: setup  ## Spark on a standalone cluster, an executor killed, both brokers; Spark Connect; a pipeline; ten minutes
	$(PY) -m pip install -q --disable-pip-version-check 'pyspark[connect,pipelines]'
	exec $(PY) -m pytest -v $(CLUSTER)

seed: setup  ## one seed again, with its story: make seed SEED=17
	$(PY) -m kohort.testing.seed $(SEED) --verbose

seed-queries: setup  ## one seed of the queries' world again: make seed-queries SEED=17
	$(PY) -m kohort.testing.queries.seed $(SEED) --verbose

soak-queries: setup  ## 5,000 seeds of the queries' world
	$(PY) -m kohort.testing.queries.seed --count 5000 --jobs $$(nproc)

seed-clients: setup  ## one seed of the clients' world again: make seed-clients SEED=17
	$(PY) -m kohort.testing.clients.seed $(SEED) --verbose

soak-client: setup  ## ten minutes of real clients while brokers and members come and go; memory has to stay flat
	$(PY) -m kohort.testing.clients.soak --seconds 600

soak-spark: setup  ## what may happen to two real Spark queries of a group; ROUNDS=200, two minutes each; one again: SEED=17 ROUNDS=1
	PYTHONPATH=tests $(PY) -m support.handover_soak $(or $(SEED),0) --rounds $(or $(ROUNDS),200)

bench: setup  ## every claim of docs/performance.md beside its peer; fails where one no longer holds
	$(PY) bench/run.py

clean:
	rm -rf .venv .venv-3.* .cache build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	# What else lies there is the user's.
	[ ! -f demo-output/.kohort-demo ] || rm -rf demo-output/data demo-output/flights.png demo-output/report.html demo-output/.kohort-demo
	find src -name '*.so' -o -name 'kernels.c' | xargs -r rm -f

setup:
	@tools/setup.sh
.PHONY: setup
