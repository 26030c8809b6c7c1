package policytest

import (
	"slices"
	"strings"

	"holdfast/proxy/policy"
)

// odd holds unusual texts that a client may send.
var odd = []string{
	strings.Repeat("a", 64<<10),
	strings.Repeat("\u00e9", 32<<10),
	"\xff\xfe", "a\xc3", "\xed\xa0\x80", // not UTF-8: bytes, half a character, a surrogate
	"a\x00b", "a\nb", "\x1b[2J", "\u202e", "\ufffd", "\U0001f600",
	"../../etc/passwd", "%s%n", `{"a":1}`, `"`, "-1", "null", "__proto__",
}

// oddText sends these texts in every field that a client can set. The policy may allow or refuse
// such a question, but must answer.
func oddText(q asker, s Subject) {
	for _, text := range odd {
		for _, c := range []policy.Credentials{
			{Token: text, Transport: policy.TransportWebSocket, UID: -1, Client: text},
			{Token: "policytest", Transport: text, UID: -1},
			{Transport: policy.TransportUnix, UID: 1, PID: -1, Client: text},
		} {
			q.authenticate(c)
		}
		for _, p := range principals(s) {
			q.resolve(policy.TaskRequest{Principal: p, TaskID: text, WorkspaceID: p.Workspace, UserID: text})
			q.resolve(policy.TaskRequest{Principal: p, TaskID: "policytest", WorkspaceID: text})
			for _, verb := range []policy.Verb{policy.VerbSpawn, policy.VerbList, policy.VerbRead, policy.VerbType, policy.VerbTerminate} {
				q.authorize(policy.Access{Principal: p, Verb: verb, SessionID: text, Labels: map[string]string{text: text, "workspace_id": text}})
			}
			q.authorize(policy.Access{Principal: p, Verb: policy.VerbSpawn, Argv: slices.Repeat([]string{text}, 4), WorkDir: "/" + text})
		}
		q.observe(policy.Event{Kind: policy.EventRefused, SessionID: text, Code: text, Verb: policy.Verb(text), Labels: map[string]string{"a": text}})
	}
}
