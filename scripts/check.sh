#!/usr/bin/env bash
# What CI runs, and what to run before a commit. It needs Go and nothing else;
# on Debian, as root, it installs what the end-to-end tests use.
#
#   scripts/check.sh                everything
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
# and HOLDFAST_REQUIRE_VM=1.
#
# It stops at the first step that fails. The last line counts the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

FUZZTIME=${FUZZTIME:-3s}
STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.8.2
SYSTEMS="linux/amd64 darwin/arm64 windows/amd64"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# (set -e does not reach into a step: its parts say "|| return".)
#
# step NAME COMMAND... announces a step, runs it and says how long it took.
step() {
	local name=$1 began=$SECONDS
	shift
	echo "== $name"
	"$@" || { echo "== $name FAILED after $((SECONDS - began)) s" >&2; exit 1; }
	echo "== $name: $((SECONDS - began)) s"
}

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

tests() {
	local race=-race
	if [ "$(go env GOOS)" = linux ] && ! command -v cc >/dev/null; then
		race=
		echo "NO RACE DETECTOR: it needs a C compiler"
	fi
	go build -o "$work/report" ./scripts/report || return
	local timeout=
	if [ -n "${STREAMS:-}" ]; then
		export HOLDFAST_STREAMS=$STREAMS
		timeout="-timeout $((10 + STREAMS / 100))m"
	fi
	# One package at a time where real programs are run against the clock, and anew:
	# what they build is not seen by what caches results. Their tests wait for half of
	# the time, so there are more of them at once than processors.
	local parallel
	parallel=$(($(getconf _NPROCESSORS_ONLN) * 3 / 2))
	# shellcheck disable=SC2046,SC2086 # no argument where there is none; one for each package
	{ go test $race $timeout -json $(go list ./... | grep -v /scripts/) && go test $race -count 1 -p 1 -parallel "$parallel" -timeout 20m -json ./scripts/...; } |
		"$work/report" -total "$work/total" || { cat "$work/total"; return 1; }
}

# How fast the terminal core is and what it holds, in CPU time and without the
# race detector; then how many times faster than xterm.js it is.
measures() {
	go test -count 1 -run '^(TestNotSlow|TestMemory)$' ./supervisor/internal/vt &&
		go test -run '^$' -bench AgainstXterm -benchtime 1x ./supervisor/internal/vt
}

# Every function FuzzX of every package; -fuzz takes one at a time. Before Go 1.27
# its end may be told as a failure without an input (golang/go issue 75804).
fuzz() {
	local file name
	grep -rno --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]*' . >"$work/fuzz" || { echo "none"; return 0; }
	while IFS=: read -r file _ name; do
		echo "$(dirname "$file") ${name#func }"
		go test -run '^$' -fuzz "^${name#func }\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 1x "$(dirname "$file")" >"$work/out" 2>&1 </dev/null ||
			{ grep -q '^    context deadline exceeded$' "$work/out" && ! grep -q 'Failing input' "$work/out"; } ||
			{ cat "$work/out"; return 1; }
	done <"$work/fuzz"
}

step "programs for the tests" programs
step "xterm.js" packages scripts/oracle # which the terminal core is compared with
step "the npm client" packages proxy/internal/web/client
step "web page" page
step "gofmt" format
step "go vet" go vet ./...
step "go vet, manual" go vet -tags manual ./proxy ./supervisor
step "go vet, darwin" env GOOS=darwin go vet ./protocol/... ./shared/... ./supervisor/... ./proxy/...
step "go vet, windows" env GOOS=windows go vet ./protocol/... ./shared/... ./supervisor/... ./proxy/...
step "staticcheck" go run "$STATICCHECK" ./...
step "builds" builds
step "tests" tests
step "the terminal core, with other internals" go test -tags vtother ./supervisor/internal/vt ./supervisor/internal/screen
step "the terminal core, measured" measures
step "fuzz, $FUZZTIME each" fuzz
cat "$work/total"
