package main

import (
	"os"
	"strings"
	"testing"
)

func TestExample(t *testing.T) {
	text, err := os.ReadFile("policy.example.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse(text)
	if err != nil || len(c.Users) != 3 || len(c.Tasks) != 2 || len(c.Rules) != 3 {
		t.Errorf("got %+v %v, want 3 users, 2 tasks and 3 rules", c, err)
	}
}

func TestParse(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		name, text string
		says       []string // one message for each mistake
	}{
		{"nothing", `{}`, nil},
		{"an empty file", ``, []string{"EOF"}},
		{"a user", `{"users": [{"user": "a", "uid": 0, "roles": ["r"]}], "rules": {"r": []}}`, nil},
		{"more after it", `{} {}`, []string{"continues after the end of the value"}},
		{"an unknown field", `{"user": []}`, []string{`unknown field "user"`}},
		{"unknown fields", `{"users": [{"user": "a", "uid": 1, "rôle": ""}], "tasks": [{"id": "t", "work_dir": "/", "dir": ""}]}`,
			[]string{`users[0]: json: unknown field "rôle"`, `tasks[0]: json: unknown field "dir"`}},
		{"another kind", `{"users": [{"user": "a", "uid": "1"}]}`, []string{"users[0]: json: cannot"}},
		{"a user without a name", `{"users": [{}]}`, []string{"users[0]: user is empty", "users[0]: neither uid nor"}},
		{"twice", `{"users": [{"user": "a", "uid": 1, "tokens_sha256": ["` + sum + `"]}, {"user": "b", "uid": 1, "tokens_sha256": ["` + strings.ToUpper(sum) + `"]}]}`,
			[]string{"users[1]: uid 1", "users[1]: tokens_sha256[0] is there twice"}},
		{"no sums", `{"users": [{"user": "a", "tokens_sha256": ["", "secret", "` + sum + `00"]}]}`,
			[]string{"tokens_sha256[0] is not", "tokens_sha256[1] is not", "tokens_sha256[2] is not"}},
		{"no rule", `{"users": [{"user": "a", "uid": 1, "roles": ["x"]}], "rules": {"y": ["read", "reed"]}}`, []string{`rules["y"]: "reed"`, `no rule for the role "x"`}},
		{"too long", `{"users": [{"user": "` + strings.Repeat("a", 257) + `", "uid": 1}]}`, []string{"users[0]: user: more than"}},
		{"tasks", `{"tasks": [{"id": "t", "work_dir": "/"}, {"id": "t", "work_dir": "."}, {"env": ["A"]}]}`,
			[]string{`tasks[1]: the id "t"`, "tasks[1]: work_dir", `tasks[2]: the id ""`, "tasks[2]: env[0]", "tasks[2]: work_dir is empty"}},
		{"an audit", `{"audit": "log"}`, []string{`audit: "log" is not absolute`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parse([]byte(tt.text))
			got := []string(nil)
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(tt.says) || (c == nil) != (err != nil) || strings.Contains(strings.Join(got, ""), "secret") {
				t.Errorf("got %+v %q, want %q", c, got, tt.says)
			}
			for _, want := range tt.says {
				if !strings.Contains(strings.Join(got, "\n"), want) {
					t.Errorf("got %q, want %q in it", got, want)
				}
			}
		})
	}
}
