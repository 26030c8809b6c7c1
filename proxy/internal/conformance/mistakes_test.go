package conformance

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/shared/testkit"
)

// mistakes are the mistakes that plain can make, and the scenarios that must catch them. There may be more that do.
var mistakes = []struct {
	name, about string
	caughtBy    []string
}{
	{"resumes-at-0", "it resumes at offset 0", []string{"cut-between-frames"}},
	{"resumes-one-late", "it resumes one byte too late", []string{"cut-between-frames"}},
	{"resumes-without-position", "it attaches again without resume", []string{"cut-between-frames"}},
	{"ignores-stored-position", "it does not attach at the position that the application has stored", []string{"resume-stored"}},
	{"same-attempt", "its attaches have the same attempt", []string{"cut-between-frames"}},
	{"offset-of-frame", "it stores the offset of a frame without its length", []string{"exact"}},
	{"offset-32-bit", "it keeps offsets in 32 bits", []string{"large-offsets"}},
	{"offset-float", "it keeps offsets in a float32", []string{"large-offsets"}},
	{"partial-frame-counts", "the bytes of an incomplete frame count", []string{"cut-in-frame"}},
	{"one-read-is-one-frame", "it takes the bytes of one read for a frame", []string{"slow-proxy", "largest-frames"}},
	{"small-frames-only", "it refuses frames of more than 64 KiB", []string{"largest-frames"}},
	{"decodes-frames", "it decodes each frame as UTF-8", []string{"tiny-frames"}},
	{"decodes-frames-twice", "it translates line ends", []string{"exact"}},
	{"delivers-twice", "after the first resume it delivers output twice", []string{"cut-between-frames"}},
	{"listens-late", "it drops output that arrives right after the answer to attach", []string{"one-write"}},
	{"impatient", "it takes a proxy for lost that is silent for 30 ms", []string{"slow-proxy"}},
	{"always-resets", "it empties the terminal at each resume", []string{"cut-between-frames"}},
	{"always-snapshot", "it requests a snapshot at each resume", []string{"cut-after-snapshot"}},
	{"half-snapshot-counts", "it resumes at the offset of an incomplete snapshot", []string{"cut-in-snapshot", "resync-in-snapshot"}},
	{"no-new-snapshot", "it resumes without snapshot after an incomplete one", []string{"cut-in-snapshot"}},
	{"snapshot-counts-as-output", "the bytes of a snapshot count as output", []string{"snapshot", "cut-after-snapshot"}},
	{"snapshot-counts-at-once", "its position is that of the snapshot before the snapshot is complete", []string{"cuts-in-snapshots", "resync-in-snapshot"}},
	{"stores-half-a-snapshot", "the position that it lets the application store counts an incomplete snapshot", []string{"cuts-in-snapshots"}},
	{"waits-for-empty-snapshot", "it waits for the frames of an empty snapshot", []string{"empty-snapshot"}},
	{"missed-counts-at-the-end", "missed bytes do not count before the snapshot is complete", []string{"cuts-in-snapshots"}},
	{"ignores-missed", "it does not tell what was missed", []string{"gap", "resync"}},
	{"no-reset", "it does not tell that a snapshot replaces the terminal's content", []string{"gap", "resync"}},
	{"ignores-resync", "it ignores resync", []string{"resync"}},
	{"ignores-screen-only", "it ignores screen_only", []string{"screen-only"}},
	{"ignores-resized", "it ignores resized", []string{"resized"}},
	{"view-resumes-exactly", "it resumes its own view exactly", []string{"own-view"}},
	{"view-counts-as-output", "the bytes of a view count as output", []string{"unasked-views"}},
	{"no-backoff", "it does not wait before an attempt", []string{"refused-hello", "refused-attach", "refused-at-first"}},
	{"constant-backoff", "it waits equally short before each attempt", []string{"refused-hello", "refused-attach"}},
	{"attached-is-progress", "its waits begin anew when the proxy answers attach", []string{"cut-attachments"}},
	{"gives-up-at-hello", "it gives up if the next connection is lost as well", []string{"cut-at-hello"}},
	{"gives-up-at-attach", "it gives up if the next attach is lost as well", []string{"cut-at-attach"}},
	{"ignores-half-closed", "it does not notice the end of the stream", []string{"half-closed"}},
	{"close-is-an-end", "close status 1012 ends its attachment", []string{"close-1012"}},
	{"no-fragments", "it takes fragments of a WebSocket message for messages", []string{"fragments"}},
	{"goaway-is-an-end", "goaway ends its attachment", []string{"goaway"}},
	{"goaway-at-hello-is-an-end", "goaway as the answer to hello ends its attachment", []string{"goaway-at-attach"}},
	{"ignores-goaway-time", "it connects before the time of goaway", []string{"goaway"}},
	{"ignores-retry-after", "it tries again before the time of an error", []string{"retry-after"}},
	{"hello-errors-are-final", "a retryable error at hello ends its attachment", []string{"retry-after"}},
	{"retries-unreachable-only", "it compares codes instead of obeying retryable", []string{"retryable-attach"}},
	{"fails-at-unknown-code", "it does not try again after an unknown code", []string{"retryable-attach"}},
	{"absent-means-retryable", "it tries again if retryable is absent", []string{"absent-fields"}},
	{"retries-refusals", "it tries again after errors that are not retryable", []string{"unauthorized", "wrong-version", "unknown-session"}},
	{"loses-codes", "it does not tell the code of an error", []string{"spawn-refused", "first-attach-refused"}},
	{"ignores-attachment-errors", "it ignores an error that ends its attachment", []string{"attachment-fails"}},
	{"exit-when-lost", "it reports an exit if the connection is lost", []string{"lost-is-no-exit", "cut-before-exit"}},
	{"exit-when-unreachable", "it reports an exit for supervisor_unreachable", []string{"refused-attach", "attachment-fails"}},
	{"exit-when-not-found", "it reports an exit for session_not_found", []string{"unknown-session"}},
	{"exited-is-an-error", "it reports an error for session_exited", []string{"exited-meanwhile"}},
	{"exit-twice", "it reports an exit twice", []string{"exit-after-output"}},
	{"exit-code-lost", "it loses the exit code", []string{"exit-after-output"}},
	{"exit-overtakes-output", "it delivers the last output after the exit", []string{"exit-after-output"}},
	{"attaches-after-exit", "it attaches again after the exit", []string{"exit-without-output"}},
	{"connects-for-nothing", "it replaces a connection that nothing uses", []string{"exit-without-output"}},
	{"attaches-to-other-instance", "it attaches to another instance of the session", []string{"other-instance"}},
	{"takes-back", "it takes its place back from another client", []string{"stolen"}},
	{"steals-back", "it resumes with steal", []string{"cut-between-frames"}},
	{"attaches-after-detach", "it attaches again after detach", []string{"detach"}},
	{"detached-at-once", "it delivers output after it has told that it is detached", []string{"detach"}},
	{"new-writer", "it resumes as another writer", []string{"cut-between-frames"}},
	{"lost-input", "it forgets input that was not accepted when a connection is lost", []string{"input-cut"}},
	{"input-is-sent-and-forgotten", "it forgets input when it is sent", []string{"input-goaway", "input-gap"}},
	{"input-not-again", "it sends no input twice", []string{"input-cut", "input-gap"}},
	{"input-renumbered", "it gives input new offsets when it sends it again", []string{"input-cut"}},
	{"input-skips-a-byte", "it leaves out input", []string{"input"}},
	{"input-away-lost", "it drops input while there is no connection", []string{"input-while-away"}},
	{"large-input-frames", "its frames of input are too large", []string{"input"}},
	{"accepted-is-a-count", "it takes the offset of accepted for a number of bytes", []string{"accepted-late"}},
	{"accepted-goes-back", "an older accepted moves its input back", []string{"accepted-late"}},
	{"ignores-input-gap", "it ignores input_gap", []string{"input-gap"}},
	{"ignores-input-full", "it ignores input_full", []string{"input-full"}},
	{"input-full-at-once", "it sends input again at once after input_full", []string{"input-full"}},
	{"line-too-long-is-an-end", "line_too_long ends its attachment", []string{"line-too-long"}},
	{"line-too-long-again", "it sends a line again after line_too_long", []string{"line-too-long"}},
	{"writer-is-never-forgotten", "it assumes that input_offset never decreases", []string{"writer-forgotten"}},
	{"resize-away-lost", "it does not send a size that changed while there was no connection", []string{"resize-while-away"}},
	{"fails-at-unknown-kind", "a frame of an unknown kind ends its connection", []string{"unknown-kinds"}},
	{"fails-at-unknown-message", "a message of an unknown type ends its connection", []string{"unknown-messages"}},
	{"strict-fields", "an unknown field ends its connection", []string{"unknown-fields"}},
	{"any-number", "it does not compare the numbers of attachments", []string{"other-attachments"}},
	{"no-hello", "its hello names no client", []string{"exact"}},
	{"loses-instance", "it does not tell the instance of a session that it has started", []string{"spawn"}},
	{"new-token", "it repeats spawn with another token", []string{"spawn-repeated"}},
	{"repeats-spawn-at-once", "it repeats spawn before the time of the error", []string{"spawn-retryable"}},
	{"answers-in-order", "it takes the answers for those of its requests in order", []string{"answers-out-of-order"}},
}

// Each mistake is caught by the scenarios that it names, and each scenario catches a mistake, so each can fail. In the
// long mode every mistake meets every scenario. Clock and connections are fakes, so that times are exact on a busy machine.
func TestMistakes(t *testing.T) {
	t.Parallel()
	uncaught := make(map[string]bool)
	for _, s := range scenarios {
		uncaught[s.name] = true
	}
	for _, m := range mistakes {
		for _, name := range m.caughtBy {
			delete(uncaught, name)
		}
	}
	for name := range uncaught {
		t.Errorf("scenario %s catches no mistake", name)
	}
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			memory := newMemoryNet()
			o := Options{Start: plainStart(m.name, memory.dial), Patience: time.Second, Jobs: len(m.caughtBy), Transports: []string{Unix}, listen: memory.listen}
			if needsWebSocket(m.caughtBy[0]) {
				o.Transports = []string{WebSocket}
			}
			if os.Getenv("HOLDFAST_LONG") == "" {
				o.Only = regexp.MustCompile("^(" + strings.Join(m.caughtBy, "|") + ")$")
			}
			var caught []string
			synctest.Test(t, func(t *testing.T) {
				if err := Run(t.Context(), o, func(r Result) {
					if len(r.Faults) > 0 {
						caught = append(caught, r.Scenario)
					}
				}); err != nil {
					t.Error(err)
				}
			})
			for _, name := range m.caughtBy {
				if !slices.Contains(caught, name) {
					t.Errorf("%s does not catch a client with this mistake: %s", name, m.about)
				}
			}
			slices.Sort(caught)
			t.Logf("caught by %v", caught)
		})
	}
}

func needsWebSocket(name string) bool {
	return slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name && slices.Contains(s.needs, WebSocket) })
}

// README.md has the tables of scenarios and mistakes; -update writes them.
func TestTables(t *testing.T) {
	var b strings.Builder
	b.WriteString("| scenario | the proxy; the client |\n| --- | --- |\n")
	for _, s := range scenarios {
		fmt.Fprintf(&b, "| `%s` | %s |\n", s.name, s.about)
	}
	b.WriteString("\n| mistake | the faulty client | scenarios that must catch it |\n| --- | --- | --- |\n")
	for _, m := range mistakes {
		fmt.Fprintf(&b, "| `%s` | %s | `%s` |\n", m.name, m.about, strings.Join(m.caughtBy, "`, `"))
	}
	const mark = "<!-- The tables are written by go test -run TestTables -update. -->\n\n"
	page, err := os.ReadFile("README.md")
	testkit.Must(t, err)
	before, _, found := strings.Cut(string(page), mark)
	if !found {
		t.Fatalf("README.md lacks the line %s", mark)
	}
	testkit.Golden(t, "README.md", []byte(before+mark+b.String()))
}
