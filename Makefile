# The one list of commands. Each recipe is one foreground process: a signal to make reaches it, and it ends everything.
.DEFAULT_GOAL := help
SHELL := /bin/sh

# Node 24 comes with the packages; the system's own Node only has to run npm.
export PATH := $(CURDIR)/node_modules/.bin:$(PATH)
export REDOCLY_TELEMETRY := off
export REDOCLY_SUPPRESS_UPDATE_NOTICE := true

# npm writes this file last, so it is there and newer than the lockfile only after a complete installation.
INSTALLED := node_modules/.package-lock.json

# What Node makes of the sources is kept for the next start, which takes half the CPU time and 20 MB less then. Not for npm, which
# empties the folder.
COMPILED := NODE_COMPILE_CACHE="$${NODE_COMPILE_CACHE:-$(CURDIR)/node_modules/.cache/compiled}"

# As in scripts/service-process.ts, which says why.
SERVICE := MALLOC_ARENA_MAX=$${MALLOC_ARENA_MAX:-2} $(COMPILED)

# A field with a default may be left out of a request: without this it would be required.
GENERATE := openapi-typescript --default-non-nullable=false

# Further arguments for vitest: make test ARGS="test/webhooks -t 'deleted'"
ARGS ?=

.PHONY: help fuzz run migrate api daemon test check types mock docs demo operator mutants receiver doctor bench bench-quick bench-long bench-scale profile bench-neighbours bench-delete bench-hostile bench-crash bench-database-faults bench-restarts bench-flaps backup-drill bench-migrations controls bench-ssrf supply-chain sbom fresh-install bench-otp bench-foreign-ids bench-slow-clients bench-races bench-deletions histories simulate bench-soak bench-overload

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-21s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: $(INSTALLED) ## Start everything: private database (unless MYSQL_URL is set), schema, demo data, API, daemon
	@$(COMPILED) exec node scripts/run.ts

migrate: $(INSTALLED) ## Bring the database's schema up to this version
	@$(COMPILED) exec node --disable-proto=delete scripts/migrate.ts

api: $(INSTALLED) ## Start one API process
	@$(SERVICE) exec node --max-semi-space-size=8 --heap-growing-percent=60 --no-parallel-scavenge --no-allocation-site-pretenuring --v8-pool-size=1 --disable-sigusr1 --disable-proto=delete src/server.ts

daemon: $(INSTALLED) ## Start one daemon process
	@$(SERVICE) exec node --max-semi-space-size=16 --no-parallel-scavenge --no-allocation-site-pretenuring --v8-pool-size=1 --disable-sigusr1 --disable-proto=delete --max-inlined-bytecode-size=920 --max-inlined-bytecode-size-cumulative=1840 daemon/main.ts

test: $(INSTALLED) ## Run the whole suite; needs nothing but this machine
	@exec vitest run --config test/vitest.config.ts $(ARGS)

check: $(INSTALLED) ## Generated types, compiler, contracts, formatting, rules of the code, supply chain
	@echo 'check: generated types'
	@drafts=$$(mktemp -d) && trap 'rm -rf "$$drafts"' EXIT && for name in client operator; do \
	  $(GENERATE) openapi/$$name.yaml -o $$drafts/$$name.ts >$$drafts/output 2>&1 || { cat $$drafts/output; exit 1; }; \
	  cmp -s $$drafts/$$name.ts src/generated/$$name.ts || \
	    { echo "check: src/generated/$$name.ts is not what openapi/$$name.yaml makes: run \`make types\` and commit it"; exit 1; }; \
	done && \
	node scripts/contract-requests.ts $$drafts && for name in client operator; do \
	  cmp -s $$drafts/$$name.json src/generated/$$name.json || \
	    { echo "check: src/generated/$$name.json is not what openapi/$$name.yaml makes: run \`make types\` and commit it"; exit 1; }; \
	done
	@echo 'check: compiler'
	@tsc --noEmit
	@echo 'check: contracts'
	@redocly lint --config openapi/redocly.yaml openapi/client.yaml openapi/operator.yaml
	@echo 'check: formatting'
	@prettier --check --log-level warn . || { echo 'check: run `npx prettier --write .`'; exit 1; }
	@echo 'check: rules'
	@node scripts/check-rules.ts
	@echo 'check: supply chain'
	@node scripts/security/supply-chain.ts

types: $(INSTALLED) ## Generate from both contracts: types, and what the API reads of them
	@$(GENERATE) openapi/client.yaml -o src/generated/client.ts
	@$(GENERATE) openapi/operator.yaml -o src/generated/operator.ts
	@node scripts/contract-requests.ts src/generated

mock: $(INSTALLED) ## Answer as the client contract says, on MOCK_PORT
	@exec node scripts/mock.ts

docs: $(INSTALLED) ## Render both contracts, one page each; the API serves them at /docs
	@exec node scripts/docs.ts

demo: $(INSTALLED) ## Walk through the service against a running `make run`
	@exec node scripts/demo.ts

fuzz: $(INSTALLED) ## Send what the contracts allow, and what they do not: ARGS="--n 300 --seed 1"
	@exec node scripts/fuzz.ts $(ARGS)

bench: $(INSTALLED) ## Measure everything beside this machine's own limits, in under 25 minutes; writes bench.json
	@$(COMPILED) exec node scripts/bench/bench.ts $(ARGS)

bench-quick: $(INSTALLED) ## The main ratios of `make bench`, in some 3 minutes
	@$(COMPILED) exec node scripts/bench/bench.ts --quick $(ARGS)

bench-long: $(INSTALLED) ## What takes long: memory over 15 minutes, 10,000,000 events, the first run of a fresh clone
	@$(COMPILED) exec node scripts/bench/bench-long.ts $(ARGS)

bench-scale: $(INSTALLED) ## Deliveries and leads with 1, 2 and 3 daemons and APIs
	@exec node scripts/bench/scale.ts $(ARGS)

profile: $(INSTALLED) ## CPU profiles and flame graphs of API and daemon under load, in DATA_DIR/profile
	@exec node scripts/bench/profile.ts $(ARGS)

bench-neighbours: $(INSTALLED) ## Measure what healthy webhooks notice of others that hang, are slow, refuse, flood, have no name server or a backlog
	@exec node scripts/bench/neighbours.ts $(ARGS)

bench-delete: $(INSTALLED) ## Measure the deletion of a webhook for which 1,000,000 copies wait
	@exec node scripts/bench/delete-webhook.ts $(ARGS)

bench-deletions: $(INSTALLED) ## Delete webhooks while 500 messages wait for each: ARGS="--rounds 200" for the full form
	@exec node scripts/crash/bench-deletions.ts $(ARGS)

bench-hostile: $(INSTALLED) ## Hold a daemon against every faulty endpoint and name server at once: ARGS="--events 50" for the full form
	@exec node scripts/bench/hostile.ts $(ARGS)

bench-otp: $(INSTALLED) ## Whether the time of an answer tells a patient's number from nobody's: ARGS="--n 2000"
	@exec node scripts/bench/otp-timing.ts $(ARGS)

bench-foreign-ids: $(INSTALLED) ## Whether the time of an answer tells another account's id from nobody's: ARGS="--n 60"
	@exec node scripts/bench/foreign-ids.ts $(ARGS)

bench-slow-clients: $(INSTALLED) ## Besiege an API with slow and idle connections: ARGS="--slow 500 --idle 10000"
	@exec node scripts/bench/slow-clients.ts $(ARGS)

bench-overload: $(INSTALLED) ## Three times the calls that the API can answer: ARGS="--seconds 30 --seed 1"
	@exec node scripts/bench/overload.ts $(ARGS)

doctor: $(INSTALLED) ## Recompute what follows from other rows, and name what is off
	@exec node scripts/doctor.ts $(ARGS)

bench-crash: $(INSTALLED) ## Kill everything, at each point and at random: ARGS="--kills 1500 --seed 7" for the full form
	@exec node scripts/crash/bench-crash.ts $(ARGS)

bench-races: $(INSTALLED) ## What must hold when requests meet, over three API processes: ARGS="--rounds 200 --seed 1 --only M1,M5 --minutes 10"
	@exec node scripts/races/bench-races.ts $(ARGS)

bench-database-faults: $(INSTALLED) ## Stop, cut, kill and fill the database under load: ARGS="--rounds 20 --seconds 30 --cuts 500"
	@exec node scripts/crash/bench-database-faults.ts $(ARGS)

bench-restarts: $(INSTALLED) ## Rolling restarts of API and daemon under load: ARGS="--rolls 50 --rate 100" for the full form
	@exec node scripts/crash/bench-restarts.ts $(ARGS)

bench-flaps: $(INSTALLED) ## Endpoints that fail and recover, and late answers of the database, without any fault: ARGS="--seconds 60 --daemons 2"
	@exec node scripts/crash/bench-flaps.ts $(ARGS)

backup-drill: $(INSTALLED) ## Back up under load, lose the database, restore: ARGS="--seconds 60 --rate 60"
	@exec node scripts/crash/backup-drill.ts $(ARGS)

bench-job-store: $(INSTALLED) ## Stop, slow, kill, wipe and set back the daemons' job store under load, a minute each (needs Go)
	@exec node scripts/crash/bench-job-store.ts $(ARGS)

bench-clocks: $(INSTALLED) ## Let the clocks of processes and database jump under load (needs libfaketime)
	@exec node scripts/crash/bench-clocks.ts $(ARGS)

bench-limits: $(INSTALLED) ## Answers about the ten seconds, bodies without an end, rows that nobody can use
	@exec node scripts/crash/bench-limits.ts $(ARGS)

bench-daemons: $(INSTALLED) ## Share 100,000 copies among four daemons, one of which stands still for a while
	@exec node scripts/bench/daemons.ts $(ARGS)

bench-backlog: $(INSTALLED) ## 1,000,000 waiting copies with dead endpoints, and an endpoint that is back: ARGS="--n 40000 --due 3000" for the quick form
	@exec node scripts/bench/backlog.ts $(ARGS)

bench-soak: $(INSTALLED) ## Everybody's usual work, with faulty endpoints and a burst: ARGS="--minutes 10 --seed 1 --chaos --every 60"
	@exec node scripts/soak/bench-soak.ts $(ARGS)

bench-ssrf: $(INSTALLED) ## Try to make a daemon call refused addresses, each of which has a canary (Linux): ARGS="--rounds 1000"
	@exec node scripts/security/ssrf.ts $(ARGS)

supply-chain: $(INSTALLED) ## What production installs, its licences, and what the registry's audit knows: ARGS=--list for every package
	@exec node scripts/security/supply-chain.ts $(ARGS)

sbom: $(INSTALLED) ## What production installs, as CycloneDX JSON: make -s sbom > lis.cdx.json
	@exec node scripts/security/sbom.ts

fresh-install: $(INSTALLED) ## Install a copy without any package's scripts, compile it, start it on production's packages alone
	@exec node scripts/security/fresh-install.ts

bench-migrations: $(INSTALLED) ## Kill each migration at its statement; run them on full tables under load: ARGS="--rows 100000"
	@KILL_EVERY=1 vitest run --config test/vitest.config.ts test/db/migrate.test.ts
	@exec node scripts/crash/bench-migrations.ts $(ARGS)

controls: $(INSTALLED) ## Switch each of twelve guards off in a copy of the code: its test must turn red
	@exec node scripts/controls.ts

histories: $(INSTALLED) ## Random histories of failing webhooks against the specification: ARGS="--rules 200000 --runs 2000 --commands 40 --seed 7"
	@exec node scripts/histories.ts $(ARGS)

simulate: $(INSTALLED) ## Webhooks through months, judged by the specification: ARGS="--webhooks 1000 --days 90 --stored 100 --seed 7"
	@exec node scripts/simulate.ts $(ARGS)

mutants: $(INSTALLED) ## Break the life cycle in a copy of the code, twenty ways: its tests must find each; ARGS="--list rules": other rules
	@exec node scripts/mutants.ts $(ARGS)

operator: $(INSTALLED) ## The operator API from the command line: make operator ARGS="--help"
	@exec node scripts/operator.ts $(ARGS)

receiver: $(INSTALLED) ## Receive webhooks on this machine and show them
	@exec node scripts/receiver.ts

$(INSTALLED): package-lock.json
	@echo 'make: installing packages (npm ci, about 20 s) …'
	@npm ci --include=dev --include=optional --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@
