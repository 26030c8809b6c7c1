#!/usr/bin/env bash
# Runs all checks of CI except govulncheck, which must fetch a database. Run it before a pull request.
# It needs only Go. On Debian, if it runs as root, it installs the programs that the end-to-end tests use.
#
#   scripts/check.sh                everything
#   scripts/check.sh --long         the long mode, which takes hours; see below
#   FUZZTIME=1m scripts/check.sh    fuzzes each target for a minute instead of half a second
#   STREAMS=10000 scripts/check.sh  compares the terminal core with xterm.js on 10,000 random streams
#                                   instead of 300; HOLDFAST_SEED=N repeats the streams of a run
#
# A test is skipped if it lacks one of these. If the variable is 1, the test fails instead:
#
#   HOLDFAST_REQUIRE_ORACLE    xterm.js (Node, npm ci in scripts/oracle), the tools of the npm client
#                              (npm ci in proxy/internal/web/client), and the web page (scripts/web)
#   HOLDFAST_REQUIRE_FIXTURES  fixtures of other projects, in $HOLDFAST_FIXTURES
#   HOLDFAST_REQUIRE_HISTORY   the commits of the last releases
#   HOLDFAST_REQUIRE_PYTHON    Python, and the packages of the examples that are written in it
#   HOLDFAST_REQUIRE_VM        an emulated machine (scripts/vm)
#
# If HOLDFAST_REQUIRE_TESTS is 1, the run fails if a test is skipped that scripts/report/skips.txt does
# not name.
#
# --long sets HOLDFAST_LONG=1. Then these tests run, or run for longer: TestKillStorm, TestGatesChaos,
# TestGateKillsUnderManyClients, TestRecordings, TestRecordingsInBucket, TestFootprint, TestChurn, TestRollout, TestRolloutOfMany,
# TestPythonTypes, TestMoreQuestionsAtStart and TestOtherSystems (scripts/e2e), TestOutOfMemory, TestBadDisk and TestPowerCuts (scripts/vm),
# TestBusySessions (supervisor/internal/linkserver), TestStalledLink (scripts/cli),
# FuzzCost (supervisor/internal/screen), TestAnyOffset and TestLargePast (supervisor/internal/replay),
# TestPowerCuts and TestBrokenDisk (supervisor/internal/past), TestStorm (supervisor/internal/keeper),
# TestPartition, TestCluster and TestSharingMany (proxy/internal/fleet/gate), TestS3Server (proxy/internal/archive),
# TestRename (scripts/tidy), TestRelease with lintian (scripts/release), TestStart (scripts/figures),
# TestMistakes (proxy/internal/conformance).
# TestEsctest (supervisor/internal/vt/vttest) runs in both modes if HOLDFAST_ESCTEST is the directory of the suite.
# --long also sets how much the storms do, unless the environment has another number: HOLDFAST_KILLS, HOLDFAST_HANDOFFS, HOLDFAST_UPGRADES, HOLDFAST_DEATHS,
# HOLDFAST_COST, and the time HOLDFAST_CHAOS.
#
# The steps run in two lanes at the same time. One lane downloads, and then runs the tests that wait
# much. The other lane computes at a low priority, so that it uses the time that the first one leaves. The
# last step belongs to the lane that reaches it first.
# The output of a step is printed when the step has ended. The run ends at the first failure. The last
# line counts the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

FUZZTIME=${FUZZTIME:-500ms}
STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK=github.com/kisielk/errcheck@v1.20.0
LOSTCANCEL=golang.org/x/tools/go/analysis/passes/lostcancel/cmd/lostcancel@v0.51.0
ACTIONLINT=github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
LONGEST="./supervisor/internal/session ./proxy/internal/fleet/gate ./proxy/internal/conformance ./proxy/internal/fleet/directory ./supervisor/internal/ring ./supervisor/internal/keeper"
CORE="./supervisor/internal/vt ./supervisor/internal/vt/vttest ./supervisor/internal/screen ./supervisor/internal/past ./supervisor/internal/replay"

SLOWEST=40m # how long the tests of one package may take; each test has limits of its own, which end it earlier
case ${1:-} in
"") ;;
--long)
	export HOLDFAST_LONG=1 HOLDFAST_KILLS=${HOLDFAST_KILLS:-1000} HOLDFAST_HANDOFFS=${HOLDFAST_HANDOFFS:-200}
	export HOLDFAST_UPGRADES=${HOLDFAST_UPGRADES:-100} HOLDFAST_DEATHS=${HOLDFAST_DEATHS:-50} HOLDFAST_COST=${HOLDFAST_COST:-100} HOLDFAST_CHAOS=${HOLDFAST_CHAOS:-10m}
	SLOWEST=6h
	;;
*) echo "usage: scripts/check.sh [--long]" >&2; exit 64 ;;
esac

# Everything is compiled with the flags of a release, so that vet, staticcheck and tests share the
# results of the compiler. Only the race detector needs cgo.
GOFLAGS="$(go env GOFLAGS) -trimpath -buildvcs=false"
export GOFLAGS CGO_ENABLED=0

# With the race detector, a program sleeps for a second before it exits. The tests of most packages take less time.
export GORACE=${GORACE:-atexit_sleep_ms=20}

# analyse COMMAND... runs a tool that analyses or compiles code. The tools allocate much and live briefly, so they
# need less processor time, the analysing ones less than half of it, if the garbage collector runs rarely.
analyse() { GOGC=400 "$@"; }

# elsewhere NAME=VALUE... checks the packages of the programs for another system, or with another build tag. go
# vet compiles everything that they import, which takes minutes, so it runs in the long mode only. The other mode
# runs one check of vet, lostcancel, as a program of its own: it reads all packages from their sources, the tests
# too, and so finds every error in their types.
elsewhere() {
	local packages="./protocol/... ./shared/... ./supervisor/... ./proxy/..."
	# shellcheck disable=SC2086 # one for each package
	if [ "${HOLDFAST_LONG:-}" = 1 ]; then
		analyse env "$@" go vet $packages
	else
		GOBIN=$work go install "$LOSTCANCEL" && analyse env "$@" "$work/lostcancel" $packages
	fi
}

work=$(mktemp -d)
mkdir "$work/done"
export HOLDFAST_BUILDS="$work/builds" # the packages of tests share the programs that they build
lanes=
stop() {
	trap '' TERM
	local lane
	for lane in $lanes; do kill -TERM -- "-$lane" 2>/dev/null || true; done
	wait
	rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' TERM INT HUP

# step NAME COMMAND... runs a step, and then prints its output, how long it took, and the processor time
# of the processes that it has waited for. If the variable low is set, its priority is low. If the step fails, the
# run ends. set -e has no effect within a step, so the commands of a step must end with "|| return".
step() {
	local name=$1 began=$SECONDS out status=0 TIMEFORMAT='%U + %S'
	out=$(mktemp "$work/step.XXXXXX")
	shift
	{ time prioritised "$@" >"$out" 2>&1 </dev/null; } 2>"$out.cpu" || status=$?
	until mkdir "$work/printing" 2>/dev/null; do sleep 0.05; done
	echo "== $name"
	cat "$out"
	if [ "$status" -ne 0 ]; then
		echo "== $name FAILED after $((SECONDS - began)) s" >&2
		kill -TERM $$ # ends both lanes; no other step prints, because "printing" still exists
		exit 1
	fi
	echo "== $name: $((SECONDS - began)) s ($(tail -n 1 "$out.cpu") s of CPU)"
	rmdir "$work/printing"
}

# prioritised COMMAND... runs a command, at a low priority if the variable low is set.
prioritised() {
	(
		[ -z "${low:-}" ] || renice -n 10 -p "$(exec sh -c 'echo $PPID')" >/dev/null 2>&1 || true
		"$@"
	)
}

# lane COMMAND... starts a lane. COMMAND runs the steps of the lane one after another.
lane() {
	set -m # gives the lane a process group, which stop ends
	( "$@" ) </dev/null &
	set +m
	lanes="$lanes $!"
}

# finished NAME ends the waiting of "after NAME" in the other lane.
finished() { touch "$work/done/$1"; }
after() { until [ -e "$work/done/$1" ]; do sleep 0.2; done; }

# programs installs the programs that the end-to-end tests run. The list has each program with its Debian
# packages. A test skips a program that is missing. On Linux, -race needs the C compiler.
programs() {
	local program packages missing=
	while read -r program packages; do
		command -v "$program" >/dev/null || missing="$missing $packages"
	done <<-EOF
		bash bash
		vim  vim
		zsh  zsh
		fish fish
		ps   procps
		tmux tmux
		cc   gcc libc6-dev
		git  git
		less less
		curl curl
		mc   mc
		htop htop
		btop btop
		nvim neovim
		node nodejs
		npm  npm
		chromium-headless-shell chromium-headless-shell
		systemd-analyze systemd
		man      man-db
		groff    groff-base
		mandoc   mandoc
		lintian  lintian
		buildah  buildah
		asciinema asciinema
		/usr/sbin/sshd openssh-server
		ssh      openssh-client
		qemu-system-x86_64 qemu-system-x86
		busybox  busybox-static
		cpio     cpio
		mkfs.ext4 e2fsprogs
		nix-instantiate nix-bin
		/usr/bin/pytest-3 python3-pytest
		/usr/bin/pip3 python3-pip
		mypy     mypy
	EOF
	# The Python example of a policy imports these modules. It uses the Python of the system.
	/usr/bin/python3 -c 'import grpc, google.protobuf, cryptography' 2>/dev/null ||
		missing="$missing python3-grpcio python3-protobuf python3-cryptography"
	if [ -z "$missing" ]; then
		echo "all there"
	elif [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
		echo "installing$missing"
		# shellcheck disable=SC2086 # several packages
		if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$work/apt" 2>&1 </dev/null; then
			tail -n 20 "$work/apt"
			echo "COULD NOT INSTALL THEM: tests that need them are skipped"
		fi
	else
		echo "MISSING, tests that need them are skipped:$missing"
	fi
}

# packages DIR installs the npm packages of a directory.
packages() {
	if ! command -v npm >/dev/null; then
		echo "NO NPM: tests that need $1 are skipped"
		[ "${HOLDFAST_REQUIRE_ORACLE:-}" != 1 ]
	elif [ "$1/node_modules/.package-lock.json" -nt "$1/package-lock.json" ]; then
		echo "all there"
	else
		npm ci --prefix "$1"
	fi
}

# page builds the web page and the npm client, and runs the tests of the page that need no browser.
page() {
	if ! command -v npm >/dev/null; then
		echo "NO NPM: the proxy is built without its web page"
		[ "${HOLDFAST_REQUIRE_ORACLE:-}" != 1 ]
	else
		scripts/web --if-older && npm run --silent test --prefix proxy/internal/web/page
	fi
}

format() {
	local bad
	bad=$(find . -name '*.go' -not -path '*/node_modules/*' -print0 | xargs -0 gofmt -l) || return
	[ -z "$bad" ] || { echo "gofmt -w these:"; echo "$bad"; return 1; }
}

# race prints the flag of the race detector. It prints nothing on Linux without a C compiler.
race() {
	if [ "$(go env GOOS)" != linux ] || command -v cc >/dev/null; then
		echo -race
	fi
}

# report NAME summarises the output of go test -json, and writes the total to the file total.NAME.
report() {
	local skips=
	[ "${HOLDFAST_REQUIRE_TESTS:-}" != 1 ] || skips="-skips scripts/report/skips.txt"
	# shellcheck disable=SC2086 # none, or two words
	"$work/report" $skips -total "$work/total.$1" || { cat "$work/total.$1"; return 1; }
}

# packages_raced prints the packages except those of scripts/ and the terminal core. The packages whose
# tests take longest come first, so that they do not run alone at the end.
packages_raced() {
	local all
	all=$(go list ./...) || return
	# shellcheck disable=SC2086 # one for each package
	all=$(echo "$all" | grep -v /scripts/ | grep -vxF "$(go list $CORE)")
	# shellcheck disable=SC2086 # one for each package
	go list $LONGEST
	echo "$all" | grep -vxF "$(go list $LONGEST)"
}

# compile FLAG... PACKAGE... compiles all that go test needs for these packages, with the collector of analyse, which
# the tests must not have.
compile() { analyse go list -test -export "$@" >/dev/null; }

# tests runs the tests of the packages. The step "go vet" has run, so go test need not run vet. Some packages wait for
# half of their time, so more of them run at once than there are processors. The terminal core, of three packages, is compiled
# without the race detector, for the reasons that are given at core. Two goroutines that use the same screen at the
# same time are found nevertheless, because each use reads or writes a field of package screen.
tests() {
	local flag packages inner
	flag=$(race)
	[ -n "$flag" ] || echo "NO RACE DETECTOR: it needs a C compiler"
	for inner in ${flag:+vt picture packed}; do flag="$flag -gcflags=$(go list -m)/supervisor/internal/$inner=-race=false"; done
	packages=$(packages_raced) || return
	# shellcheck disable=SC2086 # no argument if there is none; one for each package
	CGO_ENABLED=1 compile $flag $packages && CGO_ENABLED=1 go test -vet=off $flag -p $(($(getconf _NPROCESSORS_ONLN) * 3 / 2)) -timeout "$SLOWEST" -json $packages | report packages
}

# ALIKE are tests that do not depend on the internal representation of the core, and tests of its cost.
ALIKE='^(TestCost|TestResizeMemory|Test.*Width.*|Test.*Xterms.*)$'

# core tests the terminal core and the packages that store and replay its screens without the race detector,
# which would take up to ten times as long. It would find nothing in the core, because the core starts no
# goroutine: core checks this first. The tests that use these packages from several goroutines (CONCURRENT) do
# run with the race detector.
CONCURRENT='AtOnce|^TestKey|^TestLocked|^TestSearch'
core() {
	local files timeout="-timeout $SLOWEST" flag
	flag=$(race)
	if [ -n "${STREAMS:-}" ]; then
		export HOLDFAST_STREAMS=$STREAMS
		timeout="-timeout $((10 + STREAMS / 100))m"
	fi
	files=$(go list -f '{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}} {{end}}' ./supervisor/internal/vt ./supervisor/internal/screen ./supervisor/internal/picture ./supervisor/internal/packed) || return
	# shellcheck disable=SC2086 # one for each file
	if grep -nE '^[[:space:]]*(go|defer go) |\.Go\(|time\.AfterFunc' $files; then
		echo "the terminal core starts a goroutine: test it with the race detector"
		return 1
	fi
	# shellcheck disable=SC2086 # no argument if there is none; one for each package
	go test -vet=off $timeout -skip "$MEASURED" -json $CORE | report core &&
		CGO_ENABLED=1 go test -vet=off $flag -run "$CONCURRENT" $CORE &&
		go test -vet=off -tags vtother -skip "$MEASURED|$ALIKE" ./supervisor/internal/vt ./supervisor/internal/screen
}

# scripts NAME PACKAGE... tests packages of scripts/. -count 1 prevents cached results, because go test does not
# see which programs these tests build. The tests wait for half of their time, so more of them run at once than
# there are processors. GOGC is that of analyse while go test compiles, and not while the tests run.
scripts() {
	local name=$1 flag
	shift
	flag=$(race)
	# shellcheck disable=SC2086 # no argument if there is none
	CGO_ENABLED=1 compile $flag "$@" && CGO_ENABLED=1 go test -vet=off $flag -count 1 -parallel $(($(getconf _NPROCESSORS_ONLN) * 3 / 2)) -timeout "$SLOWEST" -json "$@" | report "$name"
}

# others tests the packages of scripts/ except the longest one, unless the other lane does it already. So the lane
# that ends first helps the other one. The packages that take longest come first.
others() {
	mkdir "$work/done/others" 2>/dev/null || return 0
	# shellcheck disable=SC2046 # one for each package
	step "other tests of the programs" scripts others $(go list ./scripts/release ./scripts/vm; go list ./scripts/... | grep -vE '/scripts/(e2e|release|vm)$')
}

# measures checks the speed of the terminal core and of the past in CPU time, and the memory that they
# hold, without the race detector. Then it compares the speed with that of xterm.js.
MEASURED='^(Test.*NotSlow|TestMemory|TestLargePast)$'
measures() {
	go test -vet=off -count 1 -run "$MEASURED" ./supervisor/internal/vt ./supervisor/internal/keeper ./supervisor/internal/replay &&
		go test -vet=off -run '^$' -bench AgainstXterm -benchtime 1x ./supervisor/internal/vt
}

# fuzz fuzzes each target of each package. A run of -fuzz takes one target, so fuzz compiles each package
# once and runs the program once for each target. It uses one worker, because the other lane runs at the
# same time. Only the packages of this module get the counters that guide the fuzzer. go test -fuzz would
# also compile all others anew, the standard library too, and their counters make each run slower. Before
# Go 1.27 the end of the time may be reported as a failure without an input (golang/go issue 75804).
fuzz() {
	local dir path name cache counters
	cache=$(go env GOCACHE)/fuzz
	counters="-gcflags=$(go list -m)/...=-d=libfuzzer"
	grep -rlE --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]*' . | xargs -n 1 dirname | sort -u >"$work/fuzz" || return
	while read -r dir; do
		path=$(go list "$dir") && analyse go test -c -vet=off "$counters" -ldflags='-s -w' -o "$work/fuzz.test" "$dir" || return
		for name in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go); do
			name=${name#func }
			[ "$name" != func ] || continue
			echo "$dir $name"
			(cd "$dir" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 1x -test.parallel 1 -test.fuzzcachedir "$cache/$path") >"$work/out" 2>&1 </dev/null ||
				{ grep -q '^ *context deadline exceeded$' "$work/out" && ! grep -q 'Failing input' "$work/out"; } ||
				{ cat "$work/out"; return 1; }
			! grep 'without coverage guidance' "$work/out" || return
		done
	done <"$work/fuzz"
}

# fetching downloads everything that the tests need, and then runs the tests that run the programs.
fetching() {
	step "programs for the tests" programs
	step "xterm.js" packages scripts/oracle
	step "the npm client" packages proxy/internal/web/client
	step "web page" page
	finished fetching
	after report
	step "end-to-end tests" scripts e2e ./scripts/e2e
	others
}

# computing runs the steps that only compute. Their priority is lower than that of fetching.
computing() {
	local low=1
	step "gofmt" format
	step "the tool that reports" go build -o "$work/report" ./scripts/report
	finished report
	step "go vet" analyse go vet ./...
	step "staticcheck" analyse go run "$STATICCHECK" ./...
	step "actionlint" analyse go run "$ACTIONLINT" .github/workflows/*.yml
	step "errcheck" analyse go run "$ERRCHECK" -ignoretests -exclude scripts/errcheck.txt ./...
	step "darwin, with the tag manual" elsewhere GOOS=darwin GOARCH=arm64 GOFLAGS="$GOFLAGS -tags=manual"
	step "windows" elsewhere GOOS=windows GOARCH=amd64
	step "fuzz, $FUZZTIME each" fuzz
	after fetching
	step "tests of the terminal core" core
	step "tests" tests
	low='' # these tests have limits of time
	others
}

lane fetching
lane computing
for lane in $lanes; do
	wait "$lane" || exit 1
done
step "the terminal core, measured" measures
cat "$work"/total.* | awk '{ passed += $1; failed += $3 } END { printf "%d passed, %d failed\n", passed, failed }'
