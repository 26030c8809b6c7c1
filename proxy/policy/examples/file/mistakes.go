package main

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"holdfast/proxy/policy"
)

func (c *config) validate() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	c.validateUsers(say)
	c.validateTasks(say)
	for role, verbs := range c.Rules {
		for _, v := range verbs {
			if !slices.Contains(verbsKnown, v) {
				say("rules[%q]: %q is no verb, they are %q", role, v, verbsKnown)
			}
		}
	}
	if c.Audit != "" && !filepath.IsAbs(c.Audit) {
		say("audit: %q is not absolute", c.Audit)
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) }) // maps have no order
	return errors.Join(errs...)
}

var verbsKnown = []policy.Verb{policy.VerbSpawn, policy.VerbList, policy.VerbRead, policy.VerbType, policy.VerbTerminate}

func (c *config) validateUsers(say func(string, ...any)) {
	uids, tokens := map[int]bool{}, map[string]bool{}
	for i := range c.Users {
		u := &c.Users[i]
		if err := u.principal().Validate(); err != nil {
			say("users[%d]: %w", i, err)
		}
		if u.User == "" {
			say("users[%d]: user is empty", i)
		}
		if u.UID == nil && len(u.Tokens) == 0 {
			say("users[%d]: neither uid nor tokens_sha256, so nobody can be it", i)
		}
		if u.UID != nil && (*u.UID < 0 || uids[*u.UID]) {
			say("users[%d]: uid %d is negative, or another's", i, *u.UID)
		} else if u.UID != nil {
			uids[*u.UID] = true
		}
		for k, text := range u.Tokens {
			sum, err := hex.DecodeString(text)
			if err != nil || len(sum) != 32 { // the text may be the token itself: keep it out of logs
				say("users[%d]: tokens_sha256[%d] is not 64 hex digits", i, k)
			} else if tokens[string(sum)] {
				say("users[%d]: tokens_sha256[%d] is there twice", i, k)
			}
			tokens[string(sum)] = true
			u.sums = append(u.sums, sum)
		}
		for _, role := range u.Roles {
			if _, ok := c.Rules[role]; !ok {
				say("users[%d]: there is no rule for the role %q", i, role)
			}
		}
	}
}

func (c *config) validateTasks(say func(string, ...any)) {
	seen := map[string]bool{}
	for i, t := range c.Tasks {
		if err := t.task().Validate(); err != nil {
			say("tasks[%d]: %w", i, err)
		}
		if t.ID == "" || seen[t.ID] {
			say("tasks[%d]: the id %q is empty, or another's", i, t.ID)
		}
		if t.WorkDir == "" {
			say("tasks[%d]: work_dir is empty", i)
		}
		seen[t.ID] = true
	}
}
