#!/usr/bin/env bash
# What CI runs, and what to run before a commit. It needs Go and nothing else;
# on Debian, as root, it installs what the end-to-end tests use.
#
#   scripts/check.sh                everything
#   scripts/check.sh --long         hours of it: see below
#   FUZZTIME=1m scripts/check.sh    each fuzz target for a minute instead of 3 s
#   STREAMS=10000 scripts/check.sh  the terminal core against xterm.js for so many
#                                   random streams instead of 300; HOLDFAST_SEED=N
#                                   makes those of an earlier run
#
# Tests that lack xterm.js (Node, npm ci in scripts/oracle), what the npm client is
# built with (npm ci in proxy/internal/web/client) or the page (scripts/web), other projects'
# fixtures ($HOLDFAST_FIXTURES) or the history of the last releases are skipped,
# and fail instead where HOLDFAST_REQUIRE_ORACLE=1, HOLDFAST_REQUIRE_FIXTURES=1 or
# HOLDFAST_REQUIRE_HISTORY=1. So do those that need an emulated machine (scripts/vm),
# and HOLDFAST_REQUIRE_VM=1. With HOLDFAST_REQUIRE_TESTS=1 every skipped test fails the
# run unless scripts/report/skips.txt names it.
#
# --long sets HOLDFAST_LONG=1, with which these tests run, or run for longer: TestKillStorm
# (scripts/e2e), TestOutOfMemory (scripts/vm), TestBusySessions (supervisor/internal/linkserver),
# TestStalledLink (scripts/cli), FuzzCost (supervisor/internal/screen). It also sets how much
# of them the storms do, unless the environment says another number: HOLDFAST_KILLS,
# HOLDFAST_HANDOFFS, HOLDFAST_UPGRADES, HOLDFAST_COST and the time HOLDFAST_CHAOS.
#
# The steps run in two lanes, side by side: one fetches and runs what waits, the other
# computes at a low priority, so that it takes the time that the first does not use.
# The output of a step appears when the step has ended. The first failure stops the
# run. The last line counts the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

FUZZTIME=${FUZZTIME:-3s}
STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK=github.com/kisielk/errcheck@v1.20.0
SYSTEMS="linux/amd64 darwin/arm64 windows/amd64"
CORE="./supervisor/internal/vt ./supervisor/internal/vt/vttest ./supervisor/internal/screen"

SLOWEST=20m # a package's tests
case ${1:-} in
"") ;;
--long)
	export HOLDFAST_LONG=1 HOLDFAST_KILLS=${HOLDFAST_KILLS:-1000} HOLDFAST_HANDOFFS=${HOLDFAST_HANDOFFS:-200}
	export HOLDFAST_UPGRADES=${HOLDFAST_UPGRADES:-100} HOLDFAST_COST=${HOLDFAST_COST:-100} HOLDFAST_CHAOS=${HOLDFAST_CHAOS:-10m}
	SLOWEST=6h
	;;
*) echo "usage: scripts/check.sh [--long]" >&2; exit 64 ;;
esac

# All that is compiled is compiled as a release is, so that vet, staticcheck, builds and
# tests share the compiler's results. Only the race detector needs cgo.
GOFLAGS="$(go env GOFLAGS) -trimpath -buildvcs=false"
export GOFLAGS CGO_ENABLED=0

work=$(mktemp -d)
mkdir "$work/done"
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

# (set -e does not reach into a step: its parts say "|| return".)
#
# step NAME COMMAND... runs a step, and then prints its output and how long it took. If
# it fails, the run ends.
step() {
	local name=$1 began=$SECONDS out status=0
	out=$(mktemp "$work/step.XXXXXX")
	shift
	"$@" >"$out" 2>&1 </dev/null || status=$?
	until mkdir "$work/printing" 2>/dev/null; do sleep 0.05; done
	echo "== $name"
	cat "$out"
	if [ "$status" -ne 0 ]; then
		echo "== $name FAILED after $((SECONDS - began)) s" >&2
		kill -TERM $$ # and so both lanes; no other step prints any more
		exit 1
	fi
	echo "== $name: $((SECONDS - began)) s"
	rmdir "$work/printing"
}

# lane COMMAND... runs a list of steps beside all others.
lane() {
	set -m # as a process group of its own
	( "$@" ) </dev/null &
	set +m
	lanes="$lanes $!"
}

# finished NAME lets steps of the other lane begin that wait for NAME (after NAME).
finished() { touch "$work/done/$1"; }
after() { until [ -e "$work/done/$1" ]; do sleep 0.2; done; }

# What the end-to-end tests run, each program with its Debian packages; they
# skip what is missing. The C compiler is for -race, on Linux.
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
		asciinema asciinema
		qemu-system-x86_64 qemu-system-x86
		busybox  busybox-static
		cpio     cpio
	EOF
	# What the Python example of a policy imports, of the system's Python.
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

# npm's packages in a directory.
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

# The web page, and the client that it is made with; both with their tests that need
# no browser.
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

builds() {
	local system
	for system in $SYSTEMS; do
		echo "$system"
		mkdir -p "$work/bin/$system" || return
		CGO_ENABLED=0 GOOS=${system%/*} GOARCH=${system#*/} go build -trimpath -buildvcs=false -o "$work/bin/$system/" ./supervisor ./proxy || return
	done
}

# race says the flag of the race detector, which needs a C compiler on Linux.
race() {
	if [ "$(go env GOOS)" != linux ] || command -v cc >/dev/null; then
		echo -race
	fi
}

# report reads what go test -json prints. $1 is where to leave the total.
report() {
	local skips=
	[ "${HOLDFAST_REQUIRE_TESTS:-}" != 1 ] || skips="-skips scripts/report/skips.txt"
	# shellcheck disable=SC2086 # none, or two words
	"$work/report" $skips -total "$work/total.$1" || { cat "$work/total.$1"; return 1; }
}

# The packages but for scripts/ and the terminal core.
packages_raced() {
	local all
	all=$(go list ./...) || return
	# shellcheck disable=SC2086 # one for each package
	echo "$all" | grep -v /scripts/ | grep -vxF "$(go list $CORE)"
}

# Tests of the packages by themselves. go vet has been run, so that go test need not.
tests() {
	local flag packages
	flag=$(race)
	[ -n "$flag" ] || echo "NO RACE DETECTOR: it needs a C compiler"
	packages=$(packages_raced) || return
	# shellcheck disable=SC2086 # no argument where there is none; one for each package
	CGO_ENABLED=1 go test -vet=off $flag -timeout "$SLOWEST" -json $packages | report packages
}

# The terminal core starts no goroutine, which is made sure of; the race detector would
# find nothing, and take ten times as long. Those tests that start some run with it.
core() {
	local files timeout="-timeout $SLOWEST" flag
	flag=$(race)
	if [ -n "${STREAMS:-}" ]; then
		export HOLDFAST_STREAMS=$STREAMS
		timeout="-timeout $((10 + STREAMS / 100))m"
	fi
	files=$(go list -f '{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}} {{end}}' ./supervisor/internal/vt ./supervisor/internal/screen) || return
	# shellcheck disable=SC2086 # one for each file
	if grep -nE '^[[:space:]]*(go|defer go) |\.Go\(|time\.AfterFunc' $files; then
		echo "the terminal core starts a goroutine: test it with the race detector"
		return 1
	fi
	# shellcheck disable=SC2086 # no argument where there is none; one for each package
	go test -vet=off $timeout -skip "$MEASURED" -json $CORE | report core &&
		CGO_ENABLED=1 go test -vet=off $flag -run AtOnce $CORE &&
		go test -vet=off -tags vtother -skip "$MEASURED" ./supervisor/internal/vt ./supervisor/internal/screen
}

# The tests of scripts/, the one that takes longest first, and anew: what they build is not
# seen by what caches results. They wait for half of the time, so there are more of them at
# once than processors.
scripts() {
	local flag packages
	flag=$(race)
	packages=$(go list ./scripts/... | grep -v /scripts/e2e) || return
	# shellcheck disable=SC2086 # no argument where there is none; one for each package
	CGO_ENABLED=1 go test -vet=off $flag -count 1 -p 2 -parallel "$(($(getconf _NPROCESSORS_ONLN) * 3 / 2))" -timeout "$SLOWEST" -json ./scripts/e2e $packages | report scripts
}

# How fast the terminal core is and what it holds, in CPU time and without the
# race detector; then how many times faster than xterm.js it is.
MEASURED='^(Test.*NotSlow|TestMemory)$'
measures() {
	go test -vet=off -count 1 -run "$MEASURED" ./supervisor/internal/vt ./supervisor/internal/keeper &&
		go test -vet=off -run '^$' -bench AgainstXterm -benchtime 1x ./supervisor/internal/vt
}

# Every function FuzzX of every package; -fuzz takes one at a time, so each package is
# compiled once for all of its targets. One worker is enough beside the other lane. Before
# Go 1.27 its end may be told as a failure without an input (golang/go issue 75804).
fuzz() {
	local dir path name cache
	cache=$(go env GOCACHE)/fuzz
	grep -rlE --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]*' . | xargs -n 1 dirname | sort -u >"$work/fuzz" || return
	while read -r dir; do
		path=$(go list "$dir") && go test -c -vet=off -fuzz . -o "$work/fuzz.test" "$dir" || return
		for name in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go); do
			name=${name#func }
			[ "$name" != func ] || continue
			echo "$dir $name"
			(cd "$dir" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 1x -test.parallel 1 -test.fuzzcachedir "$cache/$path") >"$work/out" 2>&1 </dev/null ||
				{ grep -q '^ *context deadline exceeded$' "$work/out" && ! grep -q 'Failing input' "$work/out"; } ||
				{ cat "$work/out"; return 1; }
		done
	done <"$work/fuzz"
}

# fetching gets what the tests need, and then runs those that run the programs.
fetching() {
	step "programs for the tests" programs
	step "xterm.js" packages scripts/oracle # which the terminal core is compared with
		step "the npm client" packages proxy/internal/web/client
	step "web page" page
	finished fetching
	after report
	step "tests of the programs" scripts
}

# computing does all that needs the processors alone, when fetching does not want them.
computing() {
	renice -n 10 -p "$(exec sh -c 'echo $PPID')" >/dev/null 2>&1 || true
	step "gofmt" format
	step "the tool that reports" go build -o "$work/report" ./scripts/report
	finished report
	step "go vet" go vet ./...
	step "go vet, manual" go vet -tags manual ./proxy/internal/cli ./supervisor
	step "staticcheck" go run "$STATICCHECK" ./...
	step "errcheck" go run "$ERRCHECK" -ignoretests -exclude scripts/errcheck.txt ./...
	step "builds" builds
	step "go vet, darwin" env GOOS=darwin GOARCH=arm64 go vet ./protocol/... ./shared/... ./supervisor/... ./proxy/...
	step "go vet, windows" env GOOS=windows GOARCH=amd64 go vet ./protocol/... ./shared/... ./supervisor/... ./proxy/...
	step "fuzz, $FUZZTIME each" fuzz
	after fetching
	step "tests of the terminal core" core
	step "tests" tests
}

lane fetching
lane computing
for lane in $lanes; do
	wait "$lane" || exit 1
done
step "the terminal core, measured" measures
cat "$work"/total.* | awk '{ passed += $1; failed += $3 } END { printf "%d passed, %d failed\n", passed, failed }'
