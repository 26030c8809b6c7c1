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
	report := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	c.validateUsers(report)
	c.validateTasks(report)
	for role, verbs := range c.Rules {
		for _, v := range verbs {
			if !slices.Contains(knownVerbs, v) {
				report("rules[%q]: %q is no verb, they are %q", role, v, knownVerbs)
			}
		}
	}
	if c.Audit != "" && !filepath.IsAbs(c.Audit) {
		report("audit: %q is not absolute", c.Audit)
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) }) // the order of a map's keys is random
	return errors.Join(errs...)
}

var knownVerbs = []policy.Verb{policy.VerbSpawn, policy.VerbList, policy.VerbRead, policy.VerbType, policy.VerbTerminate}

func (c *config) validateUsers(report func(string, ...any)) {
	uids, tokens := map[int]bool{}, map[string]bool{}
	for i := range c.Users {
		u := &c.Users[i]
		if err := u.principal().Validate(); err != nil {
			report("users[%d]: %w", i, err)
		}
		if u.User == "" {
			report("users[%d]: user is empty", i)
		}
		if u.UID == nil && len(u.Tokens) == 0 {
			report("users[%d]: neither uid nor tokens_sha256, so nobody can be it", i)
		}
		if u.UID != nil && (*u.UID < 0 || uids[*u.UID]) {
			report("users[%d]: uid %d is negative, or another's", i, *u.UID)
		} else if u.UID != nil {
			uids[*u.UID] = true
		}
		for k, hexSum := range u.Tokens {
			sum, err := hex.DecodeString(hexSum)
			if err != nil || len(sum) != 32 { // the text is not logged, because it may be the token itself
				report("users[%d]: tokens_sha256[%d] is not 64 hex digits", i, k)
			} else if tokens[string(sum)] {
				report("users[%d]: tokens_sha256[%d] is there twice", i, k)
			}
			tokens[string(sum)] = true
			u.sums = append(u.sums, sum)
		}
		for _, role := range u.Roles {
			if _, ok := c.Rules[role]; !ok {
				report("users[%d]: there is no rule for the role %q", i, role)
			}
		}
	}
}

func (c *config) validateTasks(report func(string, ...any)) {
	seen := map[string]bool{}
	for i, t := range c.Tasks {
		if err := t.task().Validate(); err != nil {
			report("tasks[%d]: %w", i, err)
		}
		if t.ID == "" || seen[t.ID] {
			report("tasks[%d]: the id %q is empty, or another's", i, t.ID)
		}
		if t.WorkDir == "" {
			report("tasks[%d]: work_dir is empty", i)
		}
		seen[t.ID] = true
	}
}
